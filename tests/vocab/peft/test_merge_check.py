"""What a merge is compared by: a chat in both vocabularies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.peft.merge import probe_ids, require_same
from rlvr_vocab.vocab.policy import open_copies
from rlvr_vocab.vocab.regions import THINKING, scored_regions
from rlvr_vocab.vocab.tokenizer import load_tokenizer


@pytest.mark.parametrize(
    ("largest", "off", "same"), [(1, 9e-5, True), (1, 1.1e-4, False), (40, 7e-4, True), (40, 9e-4, False)]
)
def test_logits_are_the_same_up_to_what_float32_is_off_by_itself(largest: float, off: float, same: bool) -> None:
    expected = torch.tensor([[-largest, 0.5]], dtype=torch.float64)
    if same:
        assert require_same(expected, expected + off) == pytest.approx(off)
    else:
        with pytest.raises(UserError, match="logits differ by"):
            require_same(expected, expected + off)


def test_the_chat_thinks_in_both_vocabularies_and_answers_in_one(expand_shape: Callable[..., Path]) -> None:
    folder = expand_shape("qwen3", size=None)
    layout, ids = VocabLayout.load(folder), probe_ids(folder)
    regions = scored_regions(torch.tensor([ids]), layout)[0]
    reasoning = torch.tensor(ids) >= layout.standard_size
    assert (regions[reasoning] == THINKING).all() and regions[-1] != THINKING
    assert ((regions == THINKING) & ~reasoning).sum() > 20 and reasoning.sum() > 20
    copies = open_copies(layout)[0].tolist()
    assert {copies[0], copies[-1]} <= set(ids)
    text = load_tokenizer(folder).decode(ids)
    assert "Natalia" in text and text.count("<think>") == text.count("</think>") == 1


@pytest.mark.parametrize("name", ["qwen3", "gpt2"])
def test_the_chat_of_a_model_without_a_reasoning_vocabulary_is_standard_text(
    name: str, make_shape: Callable[[str], Any], expand_shape: Callable[..., Path]
) -> None:
    baseline, stock = expand_shape(name, size=0), make_shape(name).folder
    assert max(probe_ids(baseline)) < VocabLayout.load(baseline).standard_size
    assert "72" in load_tokenizer(stock).decode(probe_ids(stock))
