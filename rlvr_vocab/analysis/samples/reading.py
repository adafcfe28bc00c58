"""Where a reader is among the completions of a run; knows nothing of a screen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import get_args

from rlvr_vocab.analysis.samples.first_lines import Place
from rlvr_vocab.analysis.samples.matches import Matches, Search
from rlvr_vocab.analysis.samples.sieve import Judge, Order, Sieve
from rlvr_vocab.record.completions import CompletionFiles


@dataclass(frozen=True)
class View:
    """Which completions are looked at, and in which order."""

    sieve: Sieve
    order: Order


class Reading:
    """A view, what has been found of it so far, and the place in it.

    Attributes:
        matches: what has been found so far.
        index: the completion among them that is read.
        search: the one whose finds are taken; those of an earlier one come too late.
    """

    def __init__(self, files: CompletionFiles, view: View, judge: Judge | None) -> None:
        self._files, self._judge = files, judge
        self._before_compare: tuple[View, Place | None] | None = None
        self._wanted: Place | None = None
        self._has_moved = False
        self.index = 0
        self.matches = Matches.together([])
        self.view = view
        self.search = self.look(view)

    @property
    def place(self) -> Place | None:
        """Step and row of what is read; None where nothing was found."""
        return self.matches.place(self.index) if len(self.matches) else None

    def look(self, view: View, wanted: Place | None = None) -> Search:
        """Begin to look at something else; the reader comes to `wanted` as soon as that is found."""
        self.view, self._wanted, self._has_moved = view, wanted, False
        self.search = Search(self._files, view.sieve, self._judge, view.order)
        return self.search

    def take(self, matches: Matches) -> None:
        """More has been found: whoever has moved stays where they are, others are at the beginning."""
        stay = self._wanted or (self.place if self._has_moved else None)
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

    def filtered(self, sieve: Sieve) -> View:
        """Another sieve; a comparison stays one."""
        return replace(self.view, sieve=replace(sieve, prompt=self.view.sieve.prompt))

    def reordered(self) -> View:
        orders = get_args(Order)
        return replace(self.view, order=orders[(orders.index(self.view.order) + 1) % len(orders)])

    def toggle_compare(self) -> Search | None:
        """All completions to the prompt of this one, or back to what was looked at before; None without any."""
        if self._before_compare is not None:
            (view, place), self._before_compare = self._before_compare, None
            return self.look(view, place)
        if self.place is None:
            return None
        self._before_compare = (self.view, self.place)
        prompt = self._files.read_row(*self.place).prompt
        return self.look(View(Sieve(prompt=prompt), "file"), self.place)
