"""What the sampler recorded of the tokens of one generation: entropies, and the texts that a truncation kept."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import torch

from rlvr_vocab.vocab.sampling import RegionSampler
from rlvr_vocab.vocab.truncation import PackedTexts, pack_kept_texts

# The ids of a prompt and of a completion, and 1 for each id of the latter that the model sampled, 0 for a given one.
CompletionRows = Sequence[tuple[list[int], list[int], list[int]]]
_ENTROPIES = ("over texts", "over copies")  # in nats: of the texts, and H(copy | text)
KEPT_TEXTS = "kept texts"


class DrawnTokens:
    """The turns of one generation, each found by the ids that came before it."""

    def __init__(self) -> None:
        self._turns: dict[tuple[int, ...], deque[dict[str, Sequence[Any]]]] = defaultdict(deque)

    def add(self, context_ids: Sequence[list[int]], completion_ids: Sequence[list[int]], **columns: Any) -> None:
        """Keep one turn of each row; a column has a figure for each of its tokens, and perhaps more."""
        for row, (context, ids) in enumerate(zip(context_ids, completion_ids, strict=True)):
            self._turns[tuple(context)].append({name: each[row][: len(ids)] for name, each in columns.items()})

    def add_recorded(
        self, context_ids: Sequence[list[int]], completion_ids: Sequence[list[int]], sampler: RegionSampler
    ) -> list[list[float]] | None:
        """Keep what a sampler recorded of a turn; the log-probabilities of its tokens, None where it recorded none."""
        if sampler.last_logps is None or sampler.last_entropies is None:
            return None
        columns = dict(zip(_ENTROPIES, (each.tolist() for each in sampler.last_entropies), strict=True))
        if sampler.last_kept:
            columns[KEPT_TEXTS] = sampler.last_kept
        self.add(context_ids, completion_ids, **columns)
        return [row[: len(ids)] for row, ids in zip(sampler.last_logps.tolist(), completion_ids, strict=True)]

    def entropies(self, rows: CompletionRows) -> list[list[list[float]]] | None:
        """Over texts, and over the copies of a text, of each token of each completion; 0 for given tokens."""
        of_both = [self._column(name, rows, 0.0) for name in _ENTROPIES]
        return [each for each in of_both if each is not None] or None

    def kept_texts(self, rows: CompletionRows) -> list[PackedTexts] | None:
        """Those of each completion, none for given tokens; None without a truncation."""
        column = self._column(KEPT_TEXTS, rows, torch.empty(0, dtype=torch.int32))
        return None if column is None else [pack_kept_texts(each) for each in column]

    def _column(self, name: str, rows: CompletionRows, given: Any) -> list[list[Any]] | None:
        if not any(name in turn for turns in self._turns.values() for turn in turns):
            return None
        turns = {context: iter(each) for context, each in self._turns.items()}
        column = [[given] * len(ids) for _, ids, _ in rows]
        for (prompt_ids, ids, mask), cells in zip(rows, column, strict=True):
            for start, end in sampled_spans(mask):
                cells[start:end] = next(turns[*prompt_ids, *ids[:start]])[name][: end - start]
        return column


def sampled_spans(mask: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Start and end of each run of sampled tokens in a completion.

    >>> [*sampled_spans([1, 1, 0, 0, 1])]
    [(0, 2), (4, 5)]
    """
    start = 0
    for sampled, run in groupby(mask):
        end = start + len(list(run))
        if sampled:
            yield start, end
        start = end
