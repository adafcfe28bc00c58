"""What the pages in the terminal say around a completion, as plain values."""

from __future__ import annotations

from rich.text import Text

from rlvr_vocab.analysis.marked import as_plain, colour_of, readable
from rlvr_vocab.analysis.samples.matches import RIGHT, WRONG
from rlvr_vocab.analysis.samples.reading import Reading
from rlvr_vocab.analysis.samples.sample import Sample
from rlvr_vocab.vocab.marking import Stretch

_COLOURS = ("magenta", "cyan", "yellow", "green", "blue", "red")
_VERDICT_SIGNS = {RIGHT: "✓", WRONG: "✗"}
_ORDER_WORDS = {
    "file": "as sampled",
    "lowest": "lowest reward first",
    "highest": "highest reward first",
    "problem": "each problem over time",
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
    ("o", "order: as sampled, lowest reward, highest reward, each problem over time"),
    ("c", "all completions to this prompt, through the run; once more: back"),
    ("r", "look for new steps of a run that goes on"),
    ("?, Esc", "this page; back"),
    ("q", "quit"),
)
SHORT_HELP = "q quit · ? help · n p next, back · / search · f filter · o order · c compare"


def list_line(place: tuple[int, int], reward: float, verdict: int, first_line: str) -> str:
    """One completion in the list."""
    step, row = place
    return f"{step:>6} {row:>4} {reward:>8.3g} {_VERDICT_SIGNS.get(verdict, ' ')}  {first_line}"


LIST_HEAD = f"{'step':>6} {'row':>4} {'reward':>8}    completion"


def legend(stretches: tuple[Stretch, ...], *, colour: bool) -> Text:
    """The copies that occur, as they look."""
    copies = sorted({each.multiplicity for each in stretches if each.multiplicity})
    text = Text()
    for copy in copies:
        text.append("  " if text else "")
        text.append_text(_stretch(Stretch(f"copy {copy}", copy), colour=colour))
    return text


def sample_text(sample: Sample, *, colour: bool) -> Text:
    """Everything there is to read about a completion."""
    text = Text()
    text.append(f"{sample.title}\n", "bold")
    facts = [(label, Text(value)) for label, value in sample.facts()]
    copies = legend(sample.stretches, colour=colour)
    facts += [("copies", copies)] if copies else []
    width = max(len(label) for label, _ in facts)
    for label, shown in facts:
        text.append(f"{label:<{width}}  ", "dim").append_text(shown).append("\n")
    text.append("\nprompt\n", "dim")
    text.append(f"{readable(sample.completion.prompt).rstrip()}\n")
    text.append("\ncompletion\n", "dim")
    for stretch in sample.stretches:
        text.append_text(_stretch(stretch, colour=colour))
    return text


def _stretch(stretch: Stretch, *, colour: bool) -> Text:
    if not colour:
        return Text(as_plain([stretch]))
    if not stretch.multiplicity:
        return Text(readable(stretch.text))
    return Text(readable(stretch.text), f"bold {_COLOURS[colour_of(stretch.multiplicity) - 1]}")


def status_line(reading: Reading, note: str) -> str:
    """Where the reader is, what is left out, how far the search is, and what there is to note."""
    found, search, sieve = len(reading.matches), reading.search, str(reading.view.sieve)
    parts = [f"{reading.index + 1:,} of {found:,}" if found else "nothing found", _ORDER_WORDS[reading.view.order]]
    if sieve:
        parts.append(f"only {readable(sieve)}")
    if search.pending:
        done = search.number_of_steps - len(search.pending)
        parts.append(f"reading: {done:,} of {search.number_of_steps:,} steps")
    if search.unreadable:
        number = len(search.unreadable)
        parts.append(f"{number} file{'s' * (number > 1)} could not be read")
    return " · ".join([readable(note), *parts] if note else parts)
