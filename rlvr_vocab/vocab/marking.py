"""Surface text in stretches, each with the multiplicity of its tokens, so that a reader can see the copies."""

from __future__ import annotations

from itertools import groupby

from transformers import PreTrainedTokenizerBase

from rlvr_vocab.vocab.layout import VocabLayout


def marked_stretches(tokenizer: PreTrainedTokenizerBase, layout: VocabLayout, ids: list[int]) -> list[tuple[str, int]]:
    """Decode ids in runs of equal multiplicity: `(text, 0)` for standard tokens, `(text, m)` for an m-th copy."""

    def multiplicity(token: int) -> int:
        return layout.multiplicities[token - layout.standard_size] if token >= layout.standard_size else 0

    return [
        (tokenizer.decode(list(run), skip_special_tokens=True), copy) for copy, run in groupby(ids, key=multiplicity)
    ]
