"""The sampled tokens of a run: read step by step from its completions, and counted by id, region and window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from rlvr_vocab.analysis.vocabulary.results import Kind, UsePoint, Window
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.completions import CompletionFiles
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import ANSWERING, THINKING, scored_regions

Item = TypeVar("Item")
MOST_STEPS = 200
_COLUMN: dict[Kind, str] = {"entropy": "sampling_entropies", "surprisal": "sampling_logps"}
_NO_TOKEN = -1
# Positions whose regions are found at once: some tens of megabytes.
_AT_ONCE = 2**20


@dataclass(frozen=True)
class SampledStep:
    """The sampled tokens of a step one after another, `(tokens,)` each.

    Attributes:
        before: surface id of what stands before a token.
        nats: entropy or surprisal; not finite where there is none.
    """

    step: int
    ids: np.ndarray
    before: np.ndarray
    thinking: np.ndarray
    nats: np.ndarray


def evenly_spread(items: Sequence[Item], most: int) -> list[Item]:
    """At most so many of the items, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[at] for at in np.linspace(0, len(items) - 1, most).round().astype(int)]


def recorded_kind(files: CompletionFiles, steps: Sequence[int]) -> Kind | None:
    """Entropies where any of the steps has them, else surprisals, else nothing."""
    names: set[str] = set()
    for step in steps:
        with suppress(UserError):  # raised again when the step is read
            names.update(files.table(step, list(_COLUMN.values())).column_names)
    return next((kind for kind, column in _COLUMN.items() if column in names), None)


def read_step(
    files: CompletionFiles, step: int, kind: Kind | None, layout: VocabLayout, surface: np.ndarray
) -> SampledStep:
    """The tokens of one step.

    Args:
        surface: the `surface_ids` of the layout.

    Raises:
        UserError: its file cannot be read, or is not of a model with this layout.
    """
    column = "" if kind is None else _COLUMN[kind]
    table = files.table(step, ["prompt_ids", "completion_ids", column])
    try:
        prompts, completions = (_Lists.of(table, name) for name in ("prompt_ids", "completion_ids"))
        values = _Lists.of(table, column) if column in table.column_names else None
    except (pa.ArrowException, KeyError) as error:
        raise UserError(f"{files.path(step)}: cannot be read: {' '.join(str(error).split())}") from error
    for lists in (prompts, completions):
        if lists.values.size and not 0 <= lists.values.min() <= lists.values.max() < layout.rows:
            raise UserError(f"{files.path(step)}: holds ids outside the {layout.rows:,} rows of the model")
    if values is not None and not np.array_equal(values.lengths, completions.lengths):
        raise UserError(f"{files.path(step)}: {column} has not a value for every token")
    nats = np.full(len(completions.values), np.nan) if values is None else values.values
    regions, before = _in_context(prompts, completions, layout)
    before = np.where(before == _NO_TOKEN, before, surface[before])
    surprisal = kind == "surprisal"
    return SampledStep(step, completions.values, before, regions == THINKING, -nats if surprisal else nats)


def surface_ids(layout: VocabLayout) -> np.ndarray:
    """The standard token that each id reads as, `(rows,)`."""
    return np.concatenate([np.arange(layout.standard_size), np.asarray(layout.source_ids, dtype=np.int64)])


@dataclass(frozen=True)
class _Lists:
    """A column of lists: all their values one after another, and how many each row has."""

    values: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, table: pa.Table, name: str) -> _Lists:
        column = table.column(name)
        if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
            raise pa.ArrowInvalid(f"{name} holds no lists")
        values = pc.list_flatten(column)
        if pa.types.is_integer(values.type):
            numbers = values.fill_null(_NO_TOKEN).to_numpy().astype(np.int64)
        else:
            numbers = values.cast(pa.float64()).to_numpy().astype(np.float64)
        return cls(numbers, pc.list_value_length(column).fill_null(0).to_numpy().astype(np.int64))

    def rows(self) -> list[np.ndarray]:
        return np.split(self.values, np.cumsum(self.lengths)[:-1]) if len(self.lengths) else []


def _in_context(prompts: _Lists, completions: _Lists, layout: VocabLayout) -> tuple[np.ndarray, np.ndarray]:
    """Region of each sampled token, and the id of what stands before it."""
    regions, before = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for sequences, starts in _blocks(prompts.rows(), completions.rows()):
        found = scored_regions(torch.from_numpy(sequences), layout).numpy()
        for row, (start, end) in enumerate(starts):
            regions.append(found[row, start:end])
            earlier = sequences[row, max(start - 1, 0) : max(end - 1, 0)]
            before.append(earlier if start else np.concatenate([[_NO_TOKEN], earlier])[: end - start])
    return np.concatenate(regions), np.concatenate(before)


def _blocks(
    prompts: list[np.ndarray], completions: list[np.ndarray]
) -> Iterator[tuple[np.ndarray, list[tuple[int, int]]]]:
    """Some sequences at a time, padded, with the places of their sampled tokens."""
    longest = max((len(prompt) + len(answer) for prompt, answer in zip(prompts, completions, strict=True)), default=0)
    height = max(1, _AT_ONCE // max(longest, 1))
    for first in range(0, len(prompts), height):
        rows = list(zip(prompts[first : first + height], completions[first : first + height], strict=True))
        sequences = np.full((len(rows), longest), _NO_TOKEN, dtype=np.int64)
        places = []
        for row, (prompt, answer) in enumerate(rows):
            end = len(prompt) + len(answer)
            sequences[row, : len(prompt)], sequences[row, len(prompt) : end] = prompt, answer
            places.append((len(prompt), end))
        yield sequences, places


@dataclass
class Sums:
    """Per region and id, `(2, rows)`: positions, positions with a value, and the sum of their values."""

    counts: np.ndarray
    valued: np.ndarray
    nats: np.ndarray

    @classmethod
    def empty(cls, rows: int) -> Sums:
        return cls(np.zeros((2, rows), np.int64), np.zeros((2, rows), np.int64), np.zeros((2, rows)))

    def add(self, step: SampledStep) -> None:
        rows = self.counts.shape[1]
        known = np.isfinite(step.nats)
        for region in (ANSWERING, THINKING):
            here = step.thinking == (region == THINKING)
            self.counts[region] += np.bincount(step.ids[here], minlength=rows)
            valued = here & known
            self.valued[region] += np.bincount(step.ids[valued], minlength=rows)
            self.nats[region] += np.bincount(step.ids[valued], weights=step.nats[valued], minlength=rows)


@dataclass
class Tally:
    """Counts that one pass over the steps gathers.

    Attributes:
        windows: the steps that count as early, and those that count as late.
        kind: of the nats that were recorded.
        means: by step: mean nats of answering, thinking, and thinking written as standard tokens and as copies.
        pairs: late thinking tokens with what stands before them, `before · rows + id`, and how often.
    """

    layout: VocabLayout
    windows: tuple[Window, Window]
    kind: Kind | None
    early: Sums = field(init=False)
    late: Sums = field(init=False)
    total: np.ndarray = field(init=False)
    points: list[UsePoint] = field(default_factory=list)
    means: list[tuple[int, float, float, float, float]] = field(default_factory=list)
    pairs: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.early, self.late = Sums.empty(self.layout.rows), Sums.empty(self.layout.rows)
        self.total = np.zeros(self.layout.rows, np.int64)

    def add(self, step: SampledStep) -> None:
        thought = step.ids[step.thinking]
        self.total += np.bincount(thought, minlength=self.layout.rows)
        self.points.append(use_point(step.step, thought, self.layout.standard_size))
        self.means.append(self._means(step))
        early, late = self.windows
        if step.step <= early.last_step:
            self.early.add(step)
        if step.step >= late.first_step:
            self.late.add(step)
            keys = step.before[step.thinking] * self.layout.rows + thought
            self.pairs.append(np.unique(keys[keys >= 0], return_counts=True))

    def _means(self, step: SampledStep) -> tuple[int, float, float, float, float]:
        copies = step.ids >= self.layout.standard_size
        groups = (~step.thinking, step.thinking, step.thinking & ~copies, step.thinking & copies)
        answering, thinking, standard, copied = (_mean(step.nats[group]) for group in groups)
        return step.step, answering, thinking, standard, copied


def use_point(step: int, thought: np.ndarray, standard_size: int) -> UsePoint:
    copies = thought[thought >= standard_size]
    return UsePoint(step, len(thought), len(copies), len(np.unique(copies)))


def _mean(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else float("nan")
