"""Surface text in stretches, each with the multiplicity of its tokens, and how each kind of document shows them.

Like `vocab.marking`, but with the `tokenizers` library alone: it starts in a tenth of a second, not in four.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from markupsafe import Markup, escape
from tokenizers import Tokenizer

from rlvr_vocab.data.visible import visible_character
from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.layout import VocabLayout

TOKENIZER_FILE = "tokenizer.json"
# Where there is no colour, reasoning tokens stand between these.
OPEN_MARK, CLOSE_MARK = "⟦", "⟧"
# Copies past the last colour take the first one again.
NUMBER_OF_COLOURS = 6
_UNFINISHED = "\N{REPLACEMENT CHARACTER}"
# UTF-8 has up to four bytes a character: what is held back of one is at most three tokens.
_MOST_HELD = 3


@dataclass(frozen=True)
class Stretch:
    """Text of neighbouring tokens of one multiplicity: 0 for standard tokens, m for an m-th copy."""

    text: str
    multiplicity: int


def read_tokenizer(file: Path) -> Tokenizer:
    """The tokenizer in a `tokenizer.json`.

    Raises:
        UserError: it holds none.
    """
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library has no class of its own for it
        raise UserError(f"{file} is not a tokenizer: {error}") from error


class Marker:
    """Turns ids into surface text that says which of it are reasoning tokens."""

    def __init__(self, tokenizer: Tokenizer, layout: VocabLayout) -> None:
        self.layout = layout
        self._tokenizer = tokenizer

    @classmethod
    def from_folder(cls, model_folder: Path) -> Marker:
        """The marker of a model folder, such as a run's `initial_model/`.

        Raises:
            UserError: the folder has no layout or no tokenizer, or they cannot be read.
        """
        path = model_folder / TOKENIZER_FILE
        layout = VocabLayout.load(model_folder)
        if not path.is_file():
            raise UserError(f"{model_folder} has no {TOKENIZER_FILE}: give a folder written by `rlvr-vocab expand`")
        return cls(read_tokenizer(path), layout)

    def multiplicity(self, token: int) -> int:
        """0 for a standard token, and for a row that nothing is in; m for an m-th copy."""
        copy = token - self.layout.standard_size
        return self.layout.multiplicities[copy] if 0 <= copy < self.layout.size else 0

    def stretches(self, ids: Sequence[int]) -> list[Stretch]:
        """The surface text of ids, special tokens left out, in stretches of equal multiplicity.

        A character whose bytes lie in two stretches belongs to the second one. Their texts put together are the
        text of all ids.
        """
        found: list[Stretch] = []
        shown: list[int] = []
        held: list[int] = []
        multiplicity = 0
        for multiplicity, run in groupby(ids, key=self.multiplicity):
            whole, held = self._split_at_whole_character([*held, *run])
            found.append(Stretch(self._text_after(shown, whole), multiplicity))
            shown = whole or shown
        found.append(Stretch(self._text_after(shown, held), multiplicity))
        return _joined(found)

    def _split_at_whole_character(self, ids: list[int]) -> tuple[list[int], list[int]]:
        """Ids up to where a character ends, and those of one that is unfinished; bytes that are none are not held."""
        for held in range(min(_MOST_HELD, len(ids)) + 1):
            end = len(ids) - held
            if not self._text(ids[:end]).endswith(_UNFINISHED):
                return ids[:end], ids[end:]
        return ids, []

    def _text_after(self, before: list[int], ids: list[int]) -> str:
        """The text of ids that follow others: some decoders strip the space in front of a text's first word."""
        both, known = self._text([*before, *ids]), self._text(before)
        return both[len(known) :] if both.startswith(known) else self._text(ids)

    def _text(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)


def readable(text: str) -> str:
    r"""Text with what a screen would hide or obey made visible; line feeds stay what they are.

    >>> readable("a\n\x1b[2Jb\u202e") == "a\n␛[2Jb<U+202E>"
    True
    """
    if text.isprintable():
        return text
    return "".join(each if each == "\n" else visible_character(each) for each in text)


def colour_of(multiplicity: int) -> int:
    """Which of the colours, from 1, shows an m-th copy."""
    return (multiplicity - 1) % NUMBER_OF_COLOURS + 1


def as_plain(stretches: Iterable[Stretch]) -> str:
    """Text for where there is no colour: the marks around what is not standard, with its number from the 2nd copy on.

    >>> as_plain([Stretch("a", 0), Stretch("b", 1), Stretch("c", 2)])
    'a⟦b⟧⟦2:c⟧'
    """
    return "".join(
        f"{OPEN_MARK}{'' if each.multiplicity == 1 else f'{each.multiplicity}:'}{readable(each.text)}{CLOSE_MARK}"
        if each.multiplicity
        else readable(each.text)
        for each in stretches
    )


def as_html(stretches: Iterable[Stretch]) -> Markup:
    """Escaped text, a `<span class="m1" title="copy 1">` around first copies, and so on."""
    return Markup("").join(
        Markup('<span class="m{}" title="copy {}">{}</span>').format(
            colour_of(each.multiplicity), each.multiplicity, escape(readable(each.text))
        )
        if each.multiplicity
        else escape(readable(each.text))
        for each in stretches
    )


def _joined(stretches: Iterable[Stretch]) -> list[Stretch]:
    """Empty ones left out, neighbours of one multiplicity made one."""
    told = (each for each in stretches if each.text)
    return [
        Stretch("".join(each.text for each in run), multiplicity)
        for multiplicity, run in groupby(told, key=lambda each: each.multiplicity)
    ]
