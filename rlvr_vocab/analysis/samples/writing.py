"""Writes samples out, one after the other: a run of any size goes through without being held as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from rlvr_vocab.analysis.samples.as_html import html_pieces
from rlvr_vocab.analysis.samples.as_tex import tex_pieces
from rlvr_vocab.analysis.samples.as_text import markdown_pieces, text_pieces
from rlvr_vocab.analysis.samples.matches import Matches
from rlvr_vocab.analysis.samples.sample import Sample, SampleReader
from rlvr_vocab.record.completions import CompletionFiles

Format = Literal["text", "html", "md", "tex"]
PIECES: dict[Format, Callable[[Iterable[Sample], str], Iterator[str]]] = {
    "text": text_pieces,
    "html": html_pieces,
    "md": markdown_pieces,
    "tex": tex_pieces,
}


def samples_of(files: CompletionFiles, matches: Matches, reader: SampleReader) -> Iterator[Sample]:
    """Raises UserError where a file is no longer what it was when it was searched."""
    return (reader.sample(files.read_row(*matches.place(index))) for index in range(len(matches)))
