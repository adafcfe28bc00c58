"""Tokens as people can read them: spaces, line breaks and control characters visible, never nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from rlvr_vocab.visible_text import visible_character
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.marking import TOKENIZER_FILE, read_tokenizer

_SIGNS = {" ": "␣", "\n": "⏎"}
_WORD_START = "▁"  # what SentencePiece writes for a space, and some decoders drop at the start of a text
_LONGEST = 32
_UNFINISHED = "\N{REPLACEMENT CHARACTER}"


class TokenTexts:
    """Surface text by token id, of a model folder; ids alone where it has no tokenizer."""

    def __init__(self, folder: Path, layout: VocabLayout) -> None:
        self._file = folder / TOKENIZER_FILE
        self._layout = layout
        self._known: dict[int, str] = {}

    def __call__(self, token: int) -> str:
        return self.of([token])[0]

    def of(self, tokens: Sequence[int] | np.ndarray) -> list[str]:
        """The text of each token, a copy's as its source's."""
        standard = self._layout.standard_size
        copied = self._layout.source_ids
        sources = [token if token < standard else copied[token - standard] for token in map(int, tokens)]
        unknown = [source for source in dict.fromkeys(sources) if source not in self._known]
        self._known.update(zip(unknown, self._read(unknown), strict=True))
        return [self._known[source] for source in sources]

    def _read(self, sources: list[int]) -> list[str]:
        if self._tokenizer is None:
            return [f"#{source}" for source in sources]
        texts = self._tokenizer.decode_batch([[source] for source in sources], skip_special_tokens=False)
        return [shown(self._whole(source, text), source) for source, text in zip(sources, texts, strict=True)]

    @cached_property
    def _tokenizer(self) -> Tokenizer | None:
        return read_tokenizer(self._file) if self._file.is_file() else None

    def _whole(self, source: int, text: str) -> str:
        """The text, with the space that it begins with."""
        assert self._tokenizer is not None
        string = self._tokenizer.id_to_token(source) or ""
        return f" {text}" if string.startswith(_WORD_START) and not text.startswith(" ") else text


def shown(text: str, token: int) -> str:
    """A token's text made visible and short; its id where it has none, or is part of a character alone."""
    if not text or _UNFINISHED in text:
        return f"#{token}"
    drawn = "".join(_SIGNS.get(character) or visible_character(character) for character in text)
    return drawn if len(drawn) <= _LONGEST else f"{drawn[: _LONGEST - 1]}…"
