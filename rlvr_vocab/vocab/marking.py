"""Surface text in stretches, each with the multiplicity of its tokens, so that a reader can see the copies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tokenizers import Tokenizer

from rlvr_vocab.counted import counted
from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.layout import VocabLayout

if TYPE_CHECKING:  # seconds to import
    from transformers import PreTrainedTokenizerBase

TOKENIZER_FILE = "tokenizer.json"


class Stretch(NamedTuple):
    """Text of neighbouring tokens of one multiplicity: 0 for standard tokens, m for an m-th copy."""

    text: str
    multiplicity: int


def read_tokenizer(file: Path) -> Tokenizer:
    """The tokenizer in a `tokenizer.json`; that of Transformers takes seconds to import.

    Raises:
        UserError: it holds none.
    """
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library has no class of its own for it
        raise UserError(f"{file} is not a tokenizer: {error}") from error


class Marker:
    """Turns ids into surface text that says which of it are reasoning tokens."""

    def __init__(self, tokenizer: Tokenizer | PreTrainedTokenizerBase, layout: VocabLayout) -> None:
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

        A character whose bytes lie in several stretches belongs to the one that ends it. Their texts put together are
        the text of all ids.
        """
        text, told, found, multiplicity = self._text(ids), 0, list[Stretch](), 0
        before, run_ids, start = list[int](), list[int](), 0
        for multiplicity, run in groupby(ids, key=self.multiplicity):
            run_ids += run
            written = self._text_after(before, run_ids)
            # An unfinished character stands as � at the end of `written`; in the whole text it is what it becomes.
            end = start + shared_prefix_length(written, text[start : start + len(written)])
            found.append(Stretch(text[told : max(told, end)], multiplicity))
            told = max(told, end)
            if start < end == start + len(written):
                before, run_ids, start = run_ids, [], end
        return _joined([*found, Stretch(text[told:], multiplicity)])

    def _text_after(self, before: list[int], ids: list[int]) -> str:
        """The text of ids that follow others: some decoders strip the space in front of a text's first word."""
        both, known = self._text([*before, *ids]), self._text(before)
        return both[len(known) :] if both.startswith(known) else self._text(ids)

    def _text(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)


def shortened(stretches: Sequence[Stretch], head: int, tail: int) -> list[Stretch]:
    """The first and the last characters of what is longer, and how much lies between."""
    length = sum(len(each.text) for each in stretches)
    if length <= head + tail:
        return list(stretches)
    left_out = Stretch(f" … {counted(length - head - tail, 'character')} … ", 0)
    return [*_part(stretches, 0, head), left_out, *_part(stretches, length - tail, length)]


def shared_prefix_length(one: str, other: str) -> int:
    """How many characters two texts have in common at their start."""
    different = (index for index, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1])
    return next(different, min(len(one), len(other)))


def _part(stretches: Sequence[Stretch], start: int, end: int) -> Iterator[Stretch]:
    at = 0
    for each in stretches:
        text = each.text[max(start - at, 0) : max(end - at, 0)]
        at += len(each.text)
        if text:
            yield Stretch(text, each.multiplicity)


def _joined(stretches: Sequence[Stretch]) -> list[Stretch]:
    """Empty ones left out, neighbours of one multiplicity made one."""
    told = (each for each in stretches if each.text)
    return [
        Stretch("".join(each.text for each in run), multiplicity)
        for multiplicity, run in groupby(told, key=lambda each: each.multiplicity)
    ]
