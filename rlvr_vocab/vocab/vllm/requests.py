"""Which region each request of a vLLM batch is in, kept up to date token by token from what vLLM has committed.

Nothing here imports vLLM: its objects are plain lists and numbers by the time they arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import ANSWERING, THINKING

# What vLLM's asynchronous scheduling writes for a token that was sampled but has not reached the host yet.
UNKNOWN = -1
# Below this temperature vLLM takes the most likely token.
GREEDY_BELOW = 1e-5


class RequestRegion:
    """The region in which one request chooses its next token.

    Attributes:
        temperature: what vLLM divides this request's logits by; 0.0 for a greedy one.
    """

    def __init__(
        self, layout: VocabLayout, prompt_ids: Sequence[int], output_ids: list[int], temperature: float
    ) -> None:
        """
        Args:
            prompt_ids: the request's prompt.
            output_ids: vLLM's own list of what the request has generated, which grows and is mended in place.
            temperature: as the request gives it.
        """
        self.temperature = 0.0 if temperature < GREEDY_BELOW else temperature
        self._layout = layout
        self._output = output_ids
        self._prompt_tail = list(prompt_ids[max(0, len(prompt_ids) - len(layout.turn_ids) + 1) :])
        self._prompt_region = last_region(layout, prompt_ids)
        self._region, self._taken = self._prompt_region, 0
        self.advance()

    def advance(self) -> None:
        """Take over the tokens committed since the last call, up to the first that is not known yet."""
        if len(self._output) < self._taken:  # vLLM takes tokens back after a failed load of the cache
            self._region, self._taken = self._prompt_region, 0
        self._region, self._taken = self._followed()

    def region(self) -> int:
        """Region of the next token, with tokens that became known since `advance`; changes nothing.

        Raises:
            RuntimeError: a token that decides the region is not known.
        """
        if self._taken == len(self._output):
            return self._region
        region, taken = self._followed()
        if taken < len(self._output):
            raise RuntimeError(
                "vLLM did not tell the region policy which token it sampled last: start it with --no-async-scheduling"
            )
        return region

    def _followed(self) -> tuple[int, int]:
        region, position, output = self._region, self._taken, self._output
        while position < len(output) and output[position] != UNKNOWN:
            event = self._event(position)
            region = region if event is None else event
            position += 1
        return region, position

    def _event(self, position: int) -> int | None:
        layout, token = self._layout, self._output[position]
        if layout.turn_ids and token == layout.turn_ids[-1] and self._turn_opens_at(position):
            return ANSWERING
        if token == layout.think_open_id:
            return THINKING
        return ANSWERING if token == layout.think_close_id else None

    def _turn_opens_at(self, position: int) -> bool:
        start = position + 1 - len(self._layout.turn_ids)
        before = self._prompt_tail[start:] if start < 0 else []
        return (*before, *self._output[max(0, start) : position + 1]) == self._layout.turn_ids


def last_region(layout: VocabLayout, ids: Sequence[int]) -> int:
    """Region after the last of `ids`, read from the end: `regions_after` at its last position."""
    turn = layout.turn_ids
    for end in range(len(ids), 0, -1):
        token = ids[end - 1]
        if turn and token == turn[-1] and end >= len(turn) and tuple(ids[end - len(turn) : end]) == turn:
            return ANSWERING
        if token == layout.think_open_id:
            return THINKING
        if token == layout.think_close_id:
            return ANSWERING
    return ANSWERING


class BatchRegions:
    """The requests of a batch by their row, through vLLM's additions, removals and moves."""

    def __init__(self, layout: VocabLayout) -> None:
        self._layout = layout
        self._requests: dict[int, RequestRegion] = {}

    def update(
        self,
        removed: Iterable[int],
        added: Iterable[tuple[int, float, Sequence[int], list[int]]],
        moved: Iterable[tuple[int, int, bool]],
    ) -> None:
        """Follow one change of the batch, in the order that vLLM prescribes.

        Args:
            removed: rows whose request is gone.
            added: row, temperature, prompt ids and the running list of output ids; the row may be taken.
            moved: from, to, and whether the two rows change places.
        """
        for row in removed:
            self._requests.pop(row, None)
        for row, temperature, prompt_ids, output_ids in added:
            self._requests[row] = RequestRegion(self._layout, prompt_ids, output_ids, temperature)
        for source, target, is_swap in moved:
            request, other = self._requests.pop(source, None), self._requests.pop(target, None)
            if request is not None:
                self._requests[target] = request
            if is_swap and other is not None:
                self._requests[source] = other

    def advance(self) -> None:
        for request in self._requests.values():
            request.advance()

    def rows(self) -> dict[int, list[tuple[int, float]]]:
        """For each region, the rows in it with their temperatures, as things stand now."""
        rows: dict[int, list[tuple[int, float]]] = {ANSWERING: [], THINKING: []}
        for row, request in self._requests.items():
            rows[request.region()].append((row, request.temperature))
        return rows
