"""Samples as plain text and as Markdown; reasoning tokens stand between marks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rlvr_vocab.analysis.marked import CLOSE_MARK, OPEN_MARK, as_plain, readable
from rlvr_vocab.analysis.samples.sample import Sample

LEGEND = (
    f"{OPEN_MARK}…{CLOSE_MARK} reasoning tokens that are first copies, {OPEN_MARK}2:…{CLOSE_MARK} second copies, "
    "and so on; characters that would not show are drawn: ␛ <U+202E>"
)


def text_pieces(samples: Iterable[Sample], heading: str) -> Iterator[str]:
    """What people wrote and models sampled is indented: no line of it can pass for one of ours."""
    yield f"{heading}\n{LEGEND}\n"
    for sample in samples:
        facts = "".join(f"{label}: {value}\n" for label, value in sample.facts())
        yield f"\n--- {sample.title}\n{facts}"
        yield f"prompt:\n{_indented(readable(sample.completion.prompt))}\n"
        yield f"completion:\n{_indented(as_plain(sample.stretches))}\n"


def markdown_pieces(samples: Iterable[Sample], heading: str) -> Iterator[str]:
    """All that is not ours stands in fenced blocks."""
    head = _fenced(f"{heading}\n{LEGEND}")
    yield f"# Completions\n\n{head}"
    for sample in samples:
        facts = "\n".join(f"{label}: {value}" for label, value in sample.facts())
        yield f"\n## {sample.title.capitalize()}\n\n{_fenced(facts)}"
        yield f"\nPrompt:\n\n{_fenced(readable(sample.completion.prompt))}"
        yield f"\nCompletion:\n\n{_fenced(as_plain(sample.stretches))}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.split("\n"))


def _fenced(text: str) -> str:
    """A block whose fence is longer than any that its text could close it with."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}\n"
