"""Loads a problem set: reads and sorts rows, holds out problems, lays out trainer rows, and accounts for every row."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr_vocab.data.answers import cell_at, decimal_comma, is_blank
from rlvr_vocab.data.files import hub_rows, local_file, read_rows
from rlvr_vocab.data.generators import GYM_COLUMNS, ArithmeticTask, GymProblems, arithmetic_problems, check_tasks
from rlvr_vocab.data.rows import (
    DroppedRow,
    Problem,
    UsableRows,
    disambiguate_by_system_prompt,
    refuse_examples,
    require_columns,
    usable_rows,
)
from rlvr_vocab.data.source import ProblemSource, PromptStyle, Split, extension_of, fields_of
from rlvr_vocab.data.warnings import problem_warnings
from rlvr_vocab.errors import UserError
from rlvr_vocab.text import pluralize

if TYPE_CHECKING:
    from datasets import Dataset

EXAMPLES_PER_REASON = 3
_MANY_HELD_OUT = 100  # have an interval of less than ±10 points


@dataclass(frozen=True)
class Partition:
    """Indices into the problems, in order of use; those of a separate eval set follow the training problems.

    Training never uses `reserved` problems, whose other rows are `removed`; `held_out` are the first of them.
    """

    train: list[int]
    held_out: list[int]
    reserved: list[int]
    removed: int


@dataclass(frozen=True)
class DividedProblems:
    """A problem set after reading and dividing.

    `problems`, which `parts` indexes, are the `num_train_rows` of the training set, then those of a separate eval set.
    `dropped` are the rows left out of both sets; `columns` are those of the training set.
    """

    source: ProblemSource
    split: Split
    problems: tuple[Problem, ...]
    num_train_rows: int
    dropped: tuple[DroppedRow, ...]
    columns: tuple[str, ...]
    parts: Partition

    @property
    def train_rows(self) -> tuple[Problem, ...]:
        return self.problems[: self.num_train_rows]

    @property
    def trained(self) -> list[Problem]:
        """The problems to train on, in order of use."""
        return [self.problems[index] for index in self.parts.train]

    def account(self, style: PromptStyle | None = None) -> list[str]:
        """The number of usable rows, then a line for each exception."""
        parts, name = self.parts, self.source.name
        rows = pluralize(len(self.problems) + len(self.dropped), "row")
        usable = f"{len(self.problems):,} usable; {len(parts.train):,} to train on, {len(parts.held_out):,} held out"
        lines = [f"{name}: {rows} read, {usable}"]
        for reason, count in Counter(row.reason for row in self.dropped).most_common():
            examples = [f"row {row.row_number}: {row.shown}" for row in self.dropped if row.reason == reason]
            examples[EXAMPLES_PER_REASON:] = ["…"] * (count > EXAMPLES_PER_REASON)
            lines.append(f"dropped {count:,}: {reason} ({'; '.join(examples)})")
        different = {problem.key for problem in self.train_rows}
        counts = {
            "rows that repeat an earlier problem, kept unless it is held out": self.num_train_rows - len(different),
            "left out of training, as the same problem is held out": parts.removed,
            "held out too, but beyond dataset.max_eval_samples": len(parts.reserved) - len(parts.held_out),
        }
        for name in fields_of(self.source.columns.problem):
            empty = sum(is_blank(cell_at(problem.row, name)) for problem in self.train_rows)
            counts[f"rows without {name}, which the problem joins"] = empty
        if extension_of(Path(self.source.name)) in (".csv", ".tsv"):
            short = sum(None in problem.row.values() for problem in self.train_rows)
            counts["rows with fewer cells than the table has columns"] = short
        lines += [f"{text}: {count:,}" for text, count in counts.items() if count]
        if 0 < (count := len(parts.held_out)) < _MANY_HELD_OUT:
            is_few = self.source.eval_split is None and self.split.eval_fraction < 0.2
            key = "dataset.eval_fraction=0.2" if is_few else ""
            key = "dataset.max_eval_samples=null" if len(parts.reserved) > count else key
            points = f"{98 / math.sqrt(count + 1.96**2):.0f} points"  # of Wilson's interval of 50 %, the widest
            measured, more = pluralize(count, "held-out problem"), f"; for more of them set {key}" * bool(key)
            lines.append(f"accuracy on {measured} has a 95 % interval of up to ±{points}{more}")
        own_system = all((each.messages or [{}])[0].get("role") == "system" for each in self.problems)
        if style is not None and style.system_prompt and own_system:
            lines.append("dataset.system_prompt is not used: every row has its own system message")
        return lines

    def warnings(self) -> list[str]:
        """Why problems may not reach the model as intended: one line per reason, with the remedy."""
        golds = [problem.solution for problem in self.train_rows if self.source.generator is None]
        return [*filter(None, [decimal_comma(golds)]), *problem_warnings(self.train_rows, self.source.columns)]

    def require_problems(self) -> None:
        """Raises UserError if no problem is left to train on, or none of the requested held-out problems is usable."""
        wants_eval = self.source.eval_split is not None and self.split.max_eval_samples != 0
        if not self.parts.train or (wants_eval and not self.parts.held_out):
            missing = "held-out problem is usable" if self.parts.train else "problem is left to train on"
            raise UserError(f"no {missing}: " + "; ".join(self.account()))


@dataclass(frozen=True)
class ProblemSets:
    """Problems to train on, held-out problems to measure on (None for none), and the account of all rows."""

    train: Dataset
    eval: Dataset | None
    account: tuple[str, ...]
    reserved_keys: frozenset[str]  # of all held-out problems, also those beyond `max_eval_samples`


def lay_out(divided: DividedProblems, style: PromptStyle) -> ProblemSets:
    """The rows for the trainer, and the account of all rows; raises UserError where no problem is left."""
    from rlvr_vocab.data.table import problem_table  # with `datasets`, which takes a second

    divided.require_problems()
    table, parts = problem_table(divided.problems, style, divided.source.columns), divided.parts
    held_out = table.select(parts.held_out) if parts.held_out else None
    lines = (*divided.account(style), *(f"warning: {line}" for line in divided.warnings()))
    reserved_keys = frozenset(divided.problems[index].key for index in parts.reserved)
    return ProblemSets(table.select(parts.train), held_out, lines, reserved_keys)


def read_problems(source: ProblemSource, split: Split) -> DividedProblems:
    """Read, sort and divide the problems that `source` names; there may be none. Raises UserError for a bad file."""
    sources = [source] if source.eval_split is None else [source, _eval_source(source)]
    train, *others = disambiguate_by_system_prompt([read_usable_rows(each, split.seed) for each in sources])
    problems, dropped, eval_keys = train.problems, train.dropped, None
    for held_out in others:
        eval_keys = [problem.key for problem in held_out.problems]
        problems += held_out.problems
        dropped += tuple(replace(row, reason=f"{row.reason}, in {source.eval_split}") for row in held_out.dropped)
    parts = partition([problem.key for problem in train.problems], eval_keys, split)
    return DividedProblems(source, split, problems, len(train.problems), dropped, train.columns, parts)


def read_usable_rows(source: ProblemSource, seed: int) -> UsableRows:
    """Read one source, without its `eval_split`, and sort its rows."""
    if isinstance(source.generator, GymProblems):
        from rlvr_vocab.data.reasoning_gym import gym_rows

        return gym_rows(source.generator, source.split, seed)
    return usable_rows(_read_table(source, seed), source)


def _read_table(source: ProblemSource, seed: int) -> Sequence[object]:
    """The rows of a file, of the hub or of the embedded task; raises UserError without rows or a mapped column."""
    rows: Sequence[object]
    if isinstance(source.generator, ArithmeticTask):
        rows = arithmetic_problems(source.generator, seed)
    elif (path := local_file(source.name)) is not None:
        rows = read_rows(path, source.split, source.header)
    else:
        rows = hub_rows(source.name, source.subset, source.split)
    if not rows:
        raise UserError(f"{source.name} has no rows; it must hold at least one problem")
    require_columns(source, rows)
    return rows


def _eval_source(source: ProblemSource) -> ProblemSource:
    """The source of the held-out problems: the second file, or the other split of the same set."""
    assert source.eval_split is not None
    if local_file(source.name) is None:
        return replace(source, split=source.eval_split, eval_split=None)
    if local_file(source.eval_split) is None:
        why = f'dataset.eval_split is "{source.eval_split}", but dataset.name is a file, which has no splits'
        raise UserError(f"{why}: name a second file, or hold problems out with dataset.eval_fraction")
    return replace(source, name=source.eval_split, eval_split=None)


def partition(train_keys: Sequence[str], eval_keys: Sequence[str] | None, split: Split) -> Partition:
    """Shuffle, hold out problems, remove them from training, and only then cut to `max_train_samples`.

    So a larger `max_train_samples` adds problems and changes neither the earlier nor the held-out ones. If
    `eval_fraction` holds out a repeated problem, one of its rows is reserved and the others are removed.
    """
    order = _shuffled(len(train_keys), split.seed)
    if eval_keys is None:
        first_rows: dict[str, int] = {}
        for index in order:
            first_rows.setdefault(train_keys[index], index)
        wanted = max(1, round(split.eval_fraction * len(first_rows))) if split.eval_fraction else 0
        reserved = list(first_rows.values())[:wanted]
        reserved_keys, not_reserved = {train_keys[index] for index in reserved}, len(order) - len(reserved)
    else:
        reserved = [len(train_keys) + index for index in _shuffled(len(eval_keys), split.seed)]
        reserved_keys, not_reserved = set(eval_keys), len(order)
    train = [index for index in order if train_keys[index] not in reserved_keys]
    removed = not_reserved - len(train)
    return Partition(train[: split.max_train_samples], reserved[: split.max_eval_samples], reserved, removed)


def _shuffled(count: int, seed: int) -> list[int]:
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return order


def check_source(source: ProblemSource, style: PromptStyle) -> None:
    """Raises UserError for a bad file, task or column before anything heavy loads; the hub is not looked up."""
    if isinstance(source.generator, GymProblems):
        check_tasks(source.generator)
        require_columns(source, [dict.fromkeys(GYM_COLUMNS, "")])
    elif isinstance(source.generator, ArithmeticTask) or local_file(source.name) is not None:
        rows = _read_table(source, seed=0)
        if source.columns.choices is not None:
            usable_rows(rows, source)  # answers that can be read in two ways
        if any(isinstance(row, dict) and isinstance(cell_at(row, source.columns.problem), list) for row in rows):
            refuse_examples(style)
        if source.eval_split is not None and source.generator is None:
            check_source(_eval_source(source), style)
