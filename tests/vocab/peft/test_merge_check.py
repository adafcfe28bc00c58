"""What a merge is compared by: a chat in both vocabularies, and a process that knows nothing of this package."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.peft import merge_check, stock_reload
from rlvr_vocab.vocab.peft.adapter import load_model
from rlvr_vocab.vocab.peft.merge import merge_adapter
from rlvr_vocab.vocab.peft.merge_check import probe_ids
from rlvr_vocab.vocab.policy import open_copies
from rlvr_vocab.vocab.regions import THINKING, scored_regions
from rlvr_vocab.vocab.tokenizer import load_tokenizer


@pytest.mark.slow
def test_where_memory_is_short_float32_decides_with_what_it_is_off_by_itself(
    expand_shape: Callable[..., Path],
    make_adapter: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base = expand_shape("llama", size=100)
    monkeypatch.setattr(merge_check.psutil, "virtual_memory", lambda: type("Memory", (), {"available": 1_000}))
    adapter = make_adapter(base, "reasoning")
    report = merge_adapter(adapter, tmp_path / "merged", base)
    assert report.arithmetic == "float32" and report.reloading == 0.0
    check = merge_check.MergeCheck(base, load_model(adapter, base))
    assert check.allowed(torch.tensor([-40.0, 3.0])) == pytest.approx(8e-4)
    assert check.allowed(torch.tensor([1.0])) == 1e-4


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


def test_the_fresh_process_knows_nothing_of_this_package() -> None:
    source = Path(stock_reload.__file__).read_text()
    imported = [node for node in ast.walk(ast.parse(source)) if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert not any("rlvr_vocab" in ast.unparse(node) for node in imported)
