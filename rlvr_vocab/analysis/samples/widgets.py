"""The parts of the screen: list of completions, one completion, status line, and the page that explains the keys."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from rlvr_vocab.analysis.samples.browser import Browser
from rlvr_vocab.analysis.samples.sample import Sample
from rlvr_vocab.analysis.samples.search import RIGHT, WRONG, Matches, SampleId
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.completions import CompletionFiles
from rlvr_vocab.visible_text import visible_lines
from rlvr_vocab.vocab.marking import TextSpan, colour_number, marked_plain

_COLOURS = ("magenta", "cyan", "yellow", "green", "blue", "red")
_VERDICT_SIGNS = {RIGHT: "✓", WRONG: "✗"}
_ORDER_WORDS = {
    "file": "as sampled",
    "lowest": "lowest reward first",
    "highest": "highest reward first",
}
KEYS = (
    ("n p, → ←", "next, previous completion"),
    ("↓ ↑, j k", "scroll the text by a line"),
    ("PgDn PgUp, space", "scroll it by a page; space goes on to the next completion at its end"),
    ("g G, Home End", "first, last completion"),
    ("] [", "next, previous step"),
    ("s", "go to a step"),
    ("/", "only completions that hold a text"),
    ("f", "filter: verdict=wrong min_reward=0.5 problem=apples step=10:50 contains=wait; empty: all"),
    ("o", "order: as sampled, lowest reward, highest reward"),
    ("c", "all completions to this prompt, through the run; once more: back"),
    ("r", "look for new steps of a run that goes on"),
    ("?, Esc", "this page; back"),
    ("q", "quit"),
)
SHORT_HELP = "q quit · ? help · n p next, back · / search · f filter · o order · c compare"
_STEPS_KEPT = 200
_LONGEST_FIRST_LINE = 200
LIST_HEAD = f"{'step':>6} {'row':>4} {'reward':>8}    completion"


def read_first_lines(files: CompletionFiles, step: int) -> list[str]:
    """The beginning of each completion of a step, on one line and harmless to show; none where it cannot be read."""
    try:
        texts = files.table(step, ["completion"])["completion"].to_pylist()
    except (UserError, KeyError):  # gone meanwhile; its completions say so when they are opened
        return []
    return [" ".join(visible_lines((text or "")[:_LONGEST_FIRST_LINE]).split()) for text in texts]


class SampleList(Static):
    """As many completions as fit, around the current one: of millions only these are ever turned into text.

    It shows how each begins as soon as the first lines of its step are known; those of the last steps are kept.
    """

    DEFAULT_CSS = "SampleList { text-wrap: nowrap; text-overflow: ellipsis }"

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._first_lines: OrderedDict[int, Sequence[str]] = OrderedDict()
        self._matches, self._index, self._top = Matches.joined([]), 0, 0

    def show_around(self, matches: Matches, index: int) -> list[int]:
        """Scroll to a completion; returns the visible steps whose first lines are not known yet."""
        rows = self._rows
        top = min(max(self._top, index - rows + 1), index)
        self._matches, self._index = matches, index
        self._top = max(0, min(top, len(matches) - rows))
        return sorted({int(matches.steps[each]) for each in self._visible} - self._first_lines.keys())

    def keep_lines(self, step: int, lines: Sequence[str]) -> None:
        self._first_lines[step] = lines
        if len(self._first_lines) > _STEPS_KEPT:
            self._first_lines.popitem(last=False)

    def forget_lines(self) -> None:
        self._first_lines.clear()

    def draw(self) -> None:
        text = Text().append(LIST_HEAD, "dim")
        for each in self._visible:
            step, row = sample_id = self._matches.sample_id(each)
            lines = self._first_lines.get(step, ())
            line = list_line(
                sample_id,
                float(self._matches.rewards[each]),
                int(self._matches.verdicts[each]),
                lines[row - 1] if row <= len(lines) else "",
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


def list_line(sample_id: SampleId, reward: float, verdict: int, first_line: str) -> str:
    """One completion in the list."""
    step, row = sample_id
    return f"{step:>6} {row:>4} {reward:>8.3g} {_VERDICT_SIGNS.get(verdict, ' ')}  {first_line}"


def legend(spans: tuple[TextSpan, ...], *, colour: bool) -> Text:
    """The marks that occur, as they look."""
    copies = sorted({each.copy_index for each in spans if each.copy_index})
    marks = [TextSpan(f"copy {copy}", copy) for copy in copies]
    marks += [TextSpan("chosen, not by chance", 0, chosen=True)] * any(each.chosen for each in spans)
    return Text("  ").join(_span(each, colour=colour) for each in marks)


def sample_text(sample: Sample, *, colour: bool) -> Text:
    """A completion with its facts and its prompt."""
    text = Text()
    text.append(f"{sample.title}\n", "bold")
    facts = [(label, Text(value)) for label, value in sample.facts()]
    marks = legend(sample.spans, colour=colour)
    facts += [("marks", marks)] if marks else []
    width = max(len(label) for label, _ in facts)
    for label, shown in facts:
        text.append(f"{label:<{width}}  ", "dim").append_text(shown).append("\n")
    text.append("\nprompt\n", "dim")
    text.append(f"{visible_lines(sample.completion.prompt).rstrip()}\n")
    text.append("\ncompletion\n", "dim")
    for span in sample.spans:
        text.append_text(_span(span, colour=colour))
    return text


def _span(span: TextSpan, *, colour: bool) -> Text:
    if not colour:
        return Text(marked_plain([span]))
    styles = [f"bold {_COLOURS[colour_number(span.copy_index) - 1]}"] * (span.copy_index > 0)
    return Text(visible_lines(span.text), " ".join([*styles, *["underline"] * span.chosen]))


def status_line(browser: Browser, note: str) -> str:
    """Number of the current completion, order, filter, progress of the search, and a note."""
    found, search, sample_filter = len(browser.matches), browser.search, str(browser.view.sample_filter)
    parts = [f"{browser.index + 1:,} of {found:,}" if found else "nothing found", _ORDER_WORDS[browser.view.order]]
    if sample_filter:
        parts.append(f"only {visible_lines(sample_filter)}")
    if search.steps_left:
        done = search.number_of_steps - len(search.steps_left)
        parts.append(f"reading: {done:,} of {search.number_of_steps:,} steps")
    if search.unreadable:
        number = len(search.unreadable)
        parts.append(f"{number} file{'s' * (number > 1)} could not be read")
    return " · ".join([visible_lines(note), *parts] if note else parts)
