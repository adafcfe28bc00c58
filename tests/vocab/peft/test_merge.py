"""Merged folders hold what arithmetic says they must, in stock form."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.expand import EXPANSION_RECORD
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.peft import merge
from rlvr_vocab.vocab.peft.adapter import load_model
from rlvr_vocab.vocab.peft.merge import merge_adapter, probe_ids


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "merged" / "model"


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return AutoModelForCausalLM.from_pretrained(folder).state_dict()


def expected_weights(adapter: Path, base: Path) -> dict[str, torch.Tensor]:
    """W + (alpha / r) B A and the rows in their place, worked out from the files in float64."""
    config = json.loads((adapter / "adapter_config.json").read_text())
    found = load_file(adapter / "adapter_model.safetensors")
    expected = {name: tensor.double() for name, tensor in weights(base).items()}
    for name, tensor in found.items():
        layer, _, part = name.removeprefix("base_model.model.").partition(".lora_")
        if not part:  # PEFT saves the tables of the base too, where an adapter is on them
            continue
        target = expected[f"{layer}.weight"]
        if part == "rows":
            target[-len(tensor) :] = tensor.double()
        elif part == "B.weight":
            delta = tensor.double() @ found[name.replace("lora_B", "lora_A")].double()
            delta = delta.T if layer.startswith("transformer.") else delta  # GPT-2 keeps its weights lying down
            target += config["lora_alpha"] / config["r"] * delta
        elif part == "embedding_B":
            delta = tensor.double() @ found[name.replace("embedding_B", "embedding_A")].double()
            target += config["lora_alpha"] / config["r"] * delta.T
    return expected


def difference(folder: Path, expected: dict[str, torch.Tensor]) -> float:
    found = weights(folder)
    assert found.keys() == expected.keys()
    return max((found[name].double() - tensor).abs().max().item() for name, tensor in expected.items())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "train_rows"),
    [
        *(("qwen3", "none"), ("qwen3", "reasoning"), ("llama", "all"), ("gpt2", "reasoning"), ("gemma3", "all")),
        *(("phi", "reasoning"), ("gpt2_untied", "reasoning")),
    ],
)
def test_merged_weights_are_those_of_the_formula(
    name: str, train_rows: str, expand_shape: Callable[..., Path], make_adapter: Callable[..., Path], out: Path
) -> None:
    base = expand_shape(name, size=100)
    adapter = make_adapter(base, train_rows)
    report = merge_adapter(adapter, out, base)
    expected = expected_weights(adapter, base)
    if train_rows != "none" and not VocabTables(base).tied:
        rows = load_file(adapter / "adapter_model.safetensors")
        assert sum(name.endswith("lora_rows") for name in rows) == 2
    if VocabTables(base).tied:  # the file holds the shared rows once
        expected[VocabTables(base).head] = expected[VocabTables(base).embedding]
    assert difference(out, expected) < 1e-6
    assert difference(out, {n: t.double() for n, t in weights(base).items()}) > 1e-2
    assert VocabTables(out).tied == VocabTables(base).tied
    assert report.merging <= 1e-4


class VocabTables:
    """The names of the two tables of a folder, and whether a stock model has one tensor for both."""

    def __init__(self, folder: Path) -> None:
        model = AutoModelForCausalLM.from_pretrained(folder)
        modules = {module: name for name, module in model.named_modules()}
        tables = (model.get_input_embeddings(), model.get_output_embeddings())
        self.embedding, self.head = (f"{modules[table]}.weight" for table in tables)
        self.tied = tables[0].weight is tables[1].weight


def test_paths_are_texts_too_and_a_type_of_weights_that_is_none_is_refused_before_the_work(
    expand_shape: Callable[..., Path],
    make_adapter: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base = expand_shape("qwen3", size=20)
    make_adapter(base, "reasoning").rename(tmp_path / "adapter")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    merge_adapter("adapter", "merged")
    merge_adapter("~/adapter", "~/again", dtype="bfloat16")
    stored = [load_file(tmp_path / name / "model.safetensors") for name in ("merged", "again")]
    assert [{tensor.dtype for tensor in each.values()} for each in stored] == [{torch.float32}, {torch.bfloat16}]
    monkeypatch.setattr(merge, "load_model", pytest.fail)
    for dtype in ("bf17", torch.int8, None):
        with pytest.raises(UserError, match=r"dtype=.*: must be float32, bfloat16, float16, or auto"):
            merge_adapter("adapter", "other", dtype=dtype)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_merged_folder_has_all_that_a_stock_tool_looks_for(
    expand_shape: Callable[..., Path], make_adapter: Callable[..., Path], out: Path
) -> None:
    base = expand_shape("qwen2", size=None, open_thinking="prefill")
    merge_adapter(make_adapter(base, "reasoning"), out, base)
    assert {path.name for path in base.iterdir()} - {EXPANSION_RECORD} == {path.name for path in out.iterdir()}
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "reasoning_vocab.json"):
        assert (out / name).read_bytes() == (base / name).read_bytes()
    generation = [json.loads((folder / "generation_config.json").read_text()) for folder in (base, out)]
    assert generation[0] == generation[1]
    config = (out / "config.json").read_text()
    assert json.loads(config)["vocab_size"] == VocabLayout.load(base).rows and str(base.parent) not in config


@pytest.mark.slow
def test_narrower_weights_are_rounded_once_and_the_cost_is_told(
    expand_shape: Callable[..., Path], make_adapter: Callable[..., Path], out: Path
) -> None:
    base = expand_shape("llama", size=100)
    adapter = make_adapter(base, "reasoning")
    report = merge_adapter(adapter, out, base, torch.bfloat16)
    exact = expected_weights(adapter, base)
    found = load_file(out / "model.safetensors")
    for name, tensor in found.items():
        assert tensor.dtype == torch.bfloat16
        assert torch.equal(tensor, exact[name].float().bfloat16()) or (tensor - exact[name]).abs().max() < 4e-3
    ids = torch.tensor([probe_ids(base)])
    with torch.no_grad():
        logits = [
            model.double()(input_ids=ids).logits[0]
            for model in (load_model(adapter, base), AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32))
        ]
    assert report.rounding is not None
    assert report.rounding.largest == pytest.approx((logits[0] - logits[1]).abs().max().item(), rel=1e-3)
    p, q = (torch.distributions.Categorical(logits=each) for each in logits)
    kl = torch.distributions.kl_divergence(p, q).mean().item()
    assert report.rounding.mean_kl == pytest.approx(kl, rel=1e-3) and kl > 0
    assert report.training.mean_kl > 100 * kl and not report.blurs


@pytest.mark.slow
def test_rounding_that_takes_back_what_was_trained_is_told(
    expand_shape: Callable[..., Path],
    make_adapter: Callable[..., Path],
    out: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    base = tmp_path / "base"
    shutil.copytree(expand_shape("llama", size=100), base)
    model = AutoModelForCausalLM.from_pretrained(base).bfloat16()
    model.save_pretrained(base)
    adapter = make_adapter(base)
    path = adapter / "adapter_model.safetensors"
    small = {name: tensor * (1e-4 if "lora_B" in name else 1) for name, tensor in load_file(path).items()}
    save_file(small, path, metadata={"format": "pt"})
    report = merge_adapter(str(adapter), str(out), str(base), "auto")
    assert report.dtype == "bfloat16" and report.blurs and report.rounding is not None
    assert "bfloat16 rounds away part of the training" in caplog.text
    assert report.rounding.largest == pytest.approx(report.training.largest, rel=0.2)
    before, after = (AutoModelForCausalLM.from_pretrained(folder).state_dict() for folder in (base, out))
    moved = sum(int((before[name] != after[name]).sum()) for name in before)
    assert moved < 0.01 * sum(tensor.numel() for tensor in before.values())
    caplog.clear()
    kept = merge_adapter(adapter, tmp_path / "kept", base)
    assert not kept.blurs and not caplog.text and difference(tmp_path / "kept", expected_weights(adapter, base)) < 1e-6
