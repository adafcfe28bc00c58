"""Samples as one document, in pieces: plain text, Markdown, or an HTML file that loads nothing and runs nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from rlvr_vocab.analysis.samples.sample import Sample
from rlvr_vocab.record.probe import ToldByProbe
from rlvr_vocab.visible_text import visible_lines
from rlvr_vocab.vocab.marking import (
    CHOSEN_MEANS,
    CLOSE_CHOSEN,
    CLOSE_MARK,
    OPEN_CHOSEN,
    OPEN_MARK,
    marked_html,
    marked_plain,
)

_LEGEND = (
    f"{OPEN_MARK}…{CLOSE_MARK} reasoning tokens that are first copies, {OPEN_MARK}2:…{CLOSE_MARK} second copies, "
    f"and so on; {OPEN_CHOSEN}…{CLOSE_CHOSEN} {CHOSEN_MEANS}; "
    "characters that would not show are drawn: ␛ <U+202E>"
)


def text_pieces(samples: Iterable[Sample], heading: str, probe: ToldByProbe | None = None) -> Iterator[str]:
    """Plain text. Prompts and completions are indented, so that no line of them can pass for one of ours."""
    yield f"{_head(heading, probe)}\n"
    for sample in samples:
        facts = "".join(f"{label}: {value}\n" for label, value in sample.facts())
        yield f"\n--- {sample.title}\n{facts}"
        yield f"prompt:\n{_indented(visible_lines(sample.completion.prompt))}\n"
        yield f"completion:\n{_indented(marked_plain(sample.spans))}\n"


def markdown_pieces(samples: Iterable[Sample], heading: str, probe: ToldByProbe | None = None) -> Iterator[str]:
    """Markdown. Facts, prompts and completions stand in fenced blocks."""
    yield f"# Completions\n\n{_fenced(_head(heading, probe))}"
    for sample in samples:
        facts = "\n".join(f"{label}: {value}" for label, value in sample.facts())
        yield f"\n## {sample.title.capitalize()}\n\n{_fenced(facts)}"
        yield f"\nPrompt:\n\n{_fenced(visible_lines(sample.completion.prompt))}"
        yield f"\nCompletion:\n\n{_fenced(marked_plain(sample.spans))}"


def _head(heading: str, probe: ToldByProbe | None) -> str:
    told = [] if probe is None else [f"probe: {visible_lines(probe.sentence)}"]
    return "\n".join([heading, _LEGEND, *told])


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.split("\n"))


def _fenced(text: str) -> str:
    """A block whose fence is longer than any that its text could close it with."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}\n"


def html_pieces(samples: Iterable[Sample], heading: str, probe: ToldByProbe | None = None) -> Iterator[str]:
    """The page of a report, with the completions as a section, and the thoughts that a probe has looked into."""
    from rlvr_vocab.analysis.report import page  # only here: it can draw, which takes a second to import

    cards = [
        page.SampleCard(
            sample.title, visible_lines(sample.completion.prompt), marked_html(sample.spans), sample.facts()
        )
        for sample in samples
    ]
    note = page.paragraph(f"Underlined: {CHOSEN_MEANS}.", "note")
    sections = [page.Section("Samples", note + page.samples("", cards), "samples")]
    if probe is not None:
        sections.append(page.Section("Probe", page.paragraph(visible_lines(probe.sentence)), "probe"))
    yield page.render(page.Page("Completions", visible_lines(heading), sections, kind="rlvr-vocab samples"))


Format = Literal["text", "html", "md"]
PIECES: dict[Format, Callable[[Iterable[Sample], str, ToldByProbe | None], Iterator[str]]] = {
    "text": text_pieces,
    "html": html_pieces,
    "md": markdown_pieces,
}
