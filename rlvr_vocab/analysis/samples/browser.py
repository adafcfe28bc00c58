"""The state of browsing through the completions of a run: filter, order, matches, current one. Knows no screen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import get_args

from rlvr_vocab.analysis.samples.filter import CorrectnessReward, Order, SampleFilter
from rlvr_vocab.analysis.samples.search import Matches, SampleId, Search
from rlvr_vocab.record.completions import CompletionFiles


@dataclass(frozen=True)
class View:
    """Which completions are shown, and in which order."""

    sample_filter: SampleFilter
    order: Order


class Browser:
    """A view, the matches found so far, and which of them is current.

    Attributes:
        matches: found so far.
        index: of the current completion among them.
        search: the current one; what an earlier one still finds is not taken.
    """

    def __init__(self, files: CompletionFiles, view: View, correctness: CorrectnessReward | None) -> None:
        self._files, self._correctness = files, correctness
        self._before_compare: tuple[View, SampleId | None] | None = None
        self._wanted: SampleId | None = None
        self._has_moved = False
        self.index = 0
        self.matches = Matches.joined([])
        self.view = view
        self.search = self.start_search(view)

    @property
    def sample_id(self) -> SampleId | None:
        """Step and row of the current completion; None where nothing was found."""
        return self.matches.sample_id(self.index) if len(self.matches) else None

    def start_search(self, view: View, wanted: SampleId | None = None) -> Search:
        """Start the search for another view; `wanted` becomes the current completion as soon as it is found."""
        self.view, self._wanted, self._has_moved = view, wanted, False
        self.search = Search(self._files, view.sample_filter, self._correctness, view.order)
        return self.search

    def take(self, matches: Matches) -> None:
        """Take new matches: a reader who has moved stays at their completion, others are at the first."""
        stay = self._wanted or (self.sample_id if self._has_moved else None)
        found = None if stay is None else matches.index_of(stay)
        self.matches, self.index = matches, found or 0

    def move_to(self, index: int) -> None:
        """To a completion by its number from 0, or the nearest that there is; -1 is the last one."""
        last = len(self.matches) - 1
        self.index = last if index == -1 else min(max(index, 0), last)
        self.index, self._wanted, self._has_moved = max(self.index, 0), None, True

    def move(self, by: int) -> None:
        self.move_to(max(self.index + by, 0))

    def move_step(self, direction: int) -> None:
        """To the step after (1) or before (-1) in the order shown."""
        if len(self.matches):
            self.move_to(self.matches.neighbour_step(self.index, direction))

    def go_to_step(self, step: int) -> None:
        """To the first completion shown of a step, or of the nearest one that has any."""
        self.move_to(self.matches.first_of_step(step) or 0)

    def filtered(self, sample_filter: SampleFilter) -> View:
        """The view with another filter; if it showed one prompt alone, it still does."""
        return replace(self.view, sample_filter=replace(sample_filter, prompt=self.view.sample_filter.prompt))

    def reordered(self) -> View:
        orders = get_args(Order)
        return replace(self.view, order=orders[(orders.index(self.view.order) + 1) % len(orders)])

    def toggle_compare(self) -> Search | None:
        """Show all completions to the prompt of this one, or go back to the view before; None without any."""
        if self._before_compare is not None:
            (view, sample_id), self._before_compare = self._before_compare, None
            return self.start_search(view, sample_id)
        if self.sample_id is None:
            return None
        self._before_compare = (self.view, self.sample_id)
        prompt = self._files.read_row(*self.sample_id).prompt
        return self.start_search(View(SampleFilter(prompt=prompt), "file"), self.sample_id)
