"""The parts of the screen: the list of completions, and the page that explains the keys."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from rlvr_vocab.analysis.samples.first_lines import FirstLines, Place
from rlvr_vocab.analysis.samples.lines import KEYS, LIST_HEAD, list_line
from rlvr_vocab.analysis.samples.matches import Matches


class SampleList(Static):
    """As many completions as fit, around the one that is read: of millions only these are ever turned into text."""

    DEFAULT_CSS = "SampleList { text-wrap: nowrap; text-overflow: ellipsis }"

    def __init__(self, first_lines: FirstLines) -> None:
        super().__init__(markup=False)
        self._first_lines = first_lines
        self._matches, self._index, self._top = Matches.together([]), 0, 0

    def place_at(self, matches: Matches, index: int) -> list[Place]:
        """Scroll to a completion; the places that are visible then."""
        rows = self._rows
        top = min(max(self._top, index - rows + 1), index)
        self._matches, self._index = matches, index
        self._top = max(0, min(top, len(matches) - rows))
        return [matches.place(each) for each in self._visible]

    def draw(self) -> None:
        text = Text().append(LIST_HEAD, "dim")
        for each in self._visible:
            place = self._matches.place(each)
            line = list_line(
                place,
                float(self._matches.rewards[each]),
                int(self._matches.verdicts[each]),
                self._first_lines.of(place),
            )
            text.append(f"\n{line}", "reverse" if each == self._index else "")
        self.update(text, layout=False)

    @property
    def _rows(self) -> int:
        return max(1, self.size.height - 1)

    @property
    def _visible(self) -> range:
        return range(self._top, min(self._top + self._rows, len(self._matches)))


class HelpPage(ModalScreen[None]):
    """Every key, and what it does; any of a few keys closes it."""

    CSS = """
    HelpPage { align: center middle }
    HelpPage > VerticalScroll { width: 90%; max-width: 100; height: auto; max-height: 90%; border: round;
      padding: 0 1 }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter,space", "dismiss"),
    ]

    def compose(self) -> ComposeResult:
        text = Text()
        for keys, meaning in KEYS:
            text.append(f"{keys:<17}", "bold").append(f"{meaning}\n")
        with VerticalScroll():
            yield Static(text, markup=False)
