"""Decodes ids to text in which reasoning tokens are marked, as plain text or HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, takewhile
from operator import eq, itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup, escape
from tokenizers import Tokenizer

from rlvr_vocab.errors import UserError
from rlvr_vocab.text import visible_text
from rlvr_vocab.vocab.layout import VocabLayout

if TYPE_CHECKING:  # seconds to import
    from transformers import PreTrainedTokenizerBase

OPEN_MARK, CLOSE_MARK = "⟦", "⟧"  # around reasoning tokens in plain text
NUMBER_OF_COLOURS = 6


class TextSpan(NamedTuple):
    """Text of neighbouring tokens with one copy index: 0 for standard tokens, m for m-th copies."""

    text: str
    copy_index: int


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a model folder, without Transformers, which takes seconds to import."""
    file = folder / "tokenizer.json"
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises a plain Exception
        raise UserError(f"{file} cannot be read: {error}") from error


class Marker:
    """Decodes ids to text spans, each with its copy index."""

    def __init__(self, tokenizer: Tokenizer | PreTrainedTokenizerBase, layout: VocabLayout) -> None:
        self.layout = layout
        self._tokenizer = tokenizer

    @classmethod
    def from_folder(cls, model_folder: Path) -> Marker:
        layout = VocabLayout.load(model_folder)
        return cls(read_tokenizer(model_folder), layout)

    def copy_index(self, token: int) -> int:
        """m for an m-th copy, 0 for any other id."""
        copy = token - self.layout.standard_size
        return self.layout.copy_indices[copy] if 0 <= copy < self.layout.size else 0

    def spans(self, ids: Sequence[int]) -> list[TextSpan]:
        """The surface text of ids, special tokens left out, in spans of one copy index.

        A character whose bytes lie in several spans belongs to the one that ends it.
        """
        runs = [(index, list(run)) for index, run in groupby(ids, key=self.copy_index)]
        texts = self._texts([run for _, run in runs])
        spans = (TextSpan(text, index) for text, (index, _) in zip(texts, runs, strict=True) if text)
        alike = groupby(spans, key=itemgetter(1))
        return [TextSpan("".join(each.text for each in run), index) for index, run in alike]

    def _texts(self, runs: Sequence[Sequence[int]]) -> list[str]:
        """The surface text of each of several consecutive runs of ids."""
        text, shown, found = self._text([token for run in runs for token in run]), 0, list[str]()
        before, run_ids, start = list[int](), list[int](), 0
        for run in runs:
            run_ids += run
            written = self._text_after(before, run_ids)
            # An unfinished character is � at the end of `written`, and the finished character in the whole text.
            same = takewhile(bool, map(eq, written, text[start : start + len(written)]))
            end = start + len(list(same))
            found.append(text[shown : max(shown, end)])
            shown = max(shown, end)
            if start < end == start + len(written):
                before, run_ids, start = run_ids, [], end
        return [*found[:-1], found[-1] + text[shown:]] if found else []

    def _text_after(self, before: list[int], ids: list[int]) -> str:
        """The text of ids after others: some decoders strip the space before the first word of a text."""
        both, known = self._text([*before, *ids]), self._text(before)
        return both[len(known) :] if both.startswith(known) else self._text(ids)

    def _text(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)


def colour_number(copy_index: int) -> int:
    """The number, from 1, of the colour of an m-th copy; after the last colour they start again at the first."""
    return (copy_index - 1) % NUMBER_OF_COLOURS + 1


def marked_plain(spans: Iterable[TextSpan]) -> str:
    """Text with marks around reasoning tokens, the copy index inside from the second copy on; controls made visible.

    >>> marked_plain([TextSpan("a", 0), TextSpan("b", 1), TextSpan("c", 2)])
    'a⟦b⟧⟦2:c⟧'
    """
    marked = []
    for text, copy_index in spans:
        number = "" if copy_index == 1 else f"{copy_index}:"
        marked.append(f"{OPEN_MARK}{number}{visible_text(text)}{CLOSE_MARK}" if copy_index else visible_text(text))
    return "".join(marked)


def marked_html(spans: Iterable[TextSpan]) -> Markup:
    """Escaped text with `<span class="m1" title="copy 1">` around first copies, and so on; controls made visible."""
    tag = Markup('<span class="m{}" title="copy {}">{}</span>')
    return Markup("").join(
        tag.format(colour_number(each.copy_index), each.copy_index, visible_text(each.text))
        if each.copy_index
        else escape(visible_text(each.text))
        for each in spans
    )
