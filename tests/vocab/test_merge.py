"""Merged folders hold the weights that arithmetic gives, in stock form; a folder that differs never appears."""

import json
import shutil

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab import merge
from rlvr_vocab.vocab.adapter import load_model
from rlvr_vocab.vocab.expand import EXPANSION_RECORD
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.merge import merge_adapter, probe_ids, require_same

ADAPTER_FILE = "adapter_model.safetensors"


@pytest.fixture
def out(tmp_path):
    return tmp_path / "merged" / "model"


def weights(folder):
    return AutoModelForCausalLM.from_pretrained(folder).state_dict()


def edit_tensors(path, change):
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def expected_weights(adapter, base):
    """W + (alpha / r) B A and the rows in their place, worked out from the files in float64."""
    config = json.loads((adapter / "adapter_config.json").read_text())
    found = load_file(adapter / ADAPTER_FILE)
    once = {}  # a tied table has two names
    expected = {name: once.setdefault(tensor.data_ptr(), tensor.double()) for name, tensor in weights(base).items()}
    for name, tensor in found.items():
        layer, _, part = name.removeprefix("base_model.model.").partition(".lora_")
        if part == "rows":
            expected[f"{layer}.weight"][-len(tensor) :] = tensor.double()
        elif part == "B.weight":
            delta = tensor.double() @ found[name.replace("lora_B", "lora_A")].double()
            delta = delta.T if layer.startswith("transformer.") else delta  # GPT-2 keeps its weights lying down
            expected[f"{layer}.weight"] += config["lora_alpha"] / config["r"] * delta
    return expected


def difference(folder, expected):
    found = weights(folder)
    assert found.keys() == expected.keys()
    return max((found[name].double() - tensor).abs().max().item() for name, tensor in expected.items())


MERGES = (
    *(("qwen3", "none"), ("qwen3", "reasoning"), ("llama", "all"), ("gpt2", "reasoning"), ("gemma3", "all")),
    *(("phi", "reasoning"), ("gpt2_untied", "reasoning")),
)


@pytest.mark.parametrize(
    ("name", "train_rows"),
    [each if each == ("qwen3", "reasoning") else pytest.param(*each, marks=pytest.mark.slow) for each in MERGES],
)
def test_merged_weights_are_those_of_the_formula(name, train_rows, expand_shape, make_adapter, out):
    base = expand_shape(name, size=100)
    adapter = make_adapter(base, train_rows)
    report = merge_adapter(adapter, out, base)
    assert difference(out, expected_weights(adapter, base)) < 1e-6
    assert difference(out, {n: t.double() for n, t in weights(base).items()}) > 1e-2
    tied = [len({tensor.data_ptr() for tensor in each.values()}) < len(each) for each in map(weights, (base, out))]
    assert tied[0] == tied[1] and report.difference <= 1e-4
    assert {path.name for path in base.iterdir()} - {EXPANSION_RECORD} == {path.name for path in out.iterdir()}
    for file in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (out / file).read_bytes() == (base / file).read_bytes()
    assert str(base.parent) not in (out / "config.json").read_text()


def test_paths_and_types_are_texts_too(expand_shape, make_adapter, tmp_path, monkeypatch):
    make_adapter(expand_shape("qwen3", size=20), "reasoning").rename(tmp_path / "adapter")
    monkeypatch.setenv("HOME", str(tmp_path))
    merge_adapter("adapter", "merged")
    merge_adapter("~/adapter", "~/again", dtype="bfloat16")
    stored = [load_file(tmp_path / name / "model.safetensors") for name in ("merged", "again")]
    assert [{tensor.dtype for tensor in each.values()} for each in stored] == [{torch.float32}, {torch.bfloat16}]


def shifts_on_the_chat(base, adapter, rounded):
    """Mean KL of the merged model from its base, and of its rounded weights from itself, in nats a token."""
    ids, folders = torch.tensor([probe_ids(base)]), ((base, None), (adapter, base), (rounded, None))
    with torch.no_grad():
        logits = [load_model(*each, dtype=torch.float32)(input_ids=ids).logits[0].double() for each in folders]
    untrained, exact, cut = (torch.distributions.Categorical(logits=each) for each in logits)
    kl = torch.distributions.kl_divergence
    return kl(untrained, exact).mean().item(), kl(exact, cut).mean().item()


def test_rounding_that_takes_back_the_training_is_a_warning(expand_shape, make_adapter, out, tmp_path, caplog):
    base = tmp_path / "base"
    shutil.copytree(expand_shape("llama", size=100), base)
    AutoModelForCausalLM.from_pretrained(base).bfloat16().save_pretrained(base)
    adapter = make_adapter(base)
    small = {True: 1e-4, False: 1.0}
    edit_tensors(
        adapter / ADAPTER_FILE, lambda found: found.update({n: t * small["lora_B" in n] for n, t in found.items()})
    )
    assert merge_adapter(str(adapter), str(out), str(base), "auto").dtype == "bfloat16"
    moved, rounded = shifts_on_the_chat(base, adapter, out)
    assert "bfloat16 rounds away part of the training" in caplog.text
    assert f"by {moved:.1e} nats a token, rounding by {rounded:.1e};" in caplog.text and rounded > 0
    caplog.clear()
    merge_adapter(adapter, tmp_path / "kept", base)
    assert not caplog.text and difference(tmp_path / "kept", expected_weights(adapter, base)) < 1e-6


@pytest.mark.parametrize(
    ("largest", "off", "same"), [(1, 9e-5, True), (1, 1.1e-4, False), (40, 7e-4, True), (40, 9e-4, False)]
)
def test_logits_are_the_same_up_to_the_error_of_float32(largest, off, same):
    expected = torch.tensor([[-largest, 0.5]], dtype=torch.float64)
    if same:
        assert require_same(expected, expected + off) == pytest.approx(off)
    else:
        with pytest.raises(UserError, match="logits differ by"):
            require_same(expected, expected + off)


def refusal(adapter, base, out, dtype=torch.float32):
    with pytest.raises(UserError) as caught:
        merge_adapter(adapter, out, base, dtype)
    assert list(out.parent.iterdir() if out.parent.exists() else []) == [] and "\n" not in str(caught.value)
    return str(caught.value)


def test_a_fault_in_the_written_file_is_refused(expand_shape, make_adapter, out, monkeypatch):
    base = expand_shape("llama", size=None)
    write, row = merge.write_stock_folder, max(probe_ids(base))
    assert row >= VocabLayout.load(base).standard_size

    def faulty(model, base, folder):
        write(model, base, folder)
        path = folder / "model.safetensors"
        edit_tensors(path, lambda tensors: tensors["model.embed_tokens.weight"][row, 3].add_(1e-2))

    monkeypatch.setattr(merge, "write_stock_folder", faulty)
    message = refusal(make_adapter(base, "reasoning"), base, out)
    assert message.startswith("merging changes the model: logits differ by")


@pytest.mark.slow
def test_an_adapter_on_one_side_of_a_tied_table_is_refused_but_for_a_head_that_is_saved_whole(
    expand_shape, make_adapter, out, tmp_path
):
    base = expand_shape("qwen3", size=20)
    message = refusal(make_adapter(base, folder=tmp_path / "one", target_modules=["lm_head"]), base, out)
    assert message.startswith("merging changes the model: logits differ by")
    adapter = make_adapter(base, folder=tmp_path / "two", target_modules=["q_proj"], modules_to_save=["lm_head"])
    merge_adapter(adapter, out, base)
    merged, ids = AutoModelForCausalLM.from_pretrained(out), torch.arange(20)[None]
    on_its_base = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter)
    torch.testing.assert_close(merged(ids).logits, on_its_base(ids).logits, rtol=0, atol=1e-4)
    assert not merged.config.tie_word_embeddings


@pytest.mark.slow
def test_weights_that_half_precision_cannot_hold_are_refused(expand_shape, make_adapter, out):
    base = expand_shape("llama", size=20)
    adapter = make_adapter(base, "reasoning")
    rows = "base_model.model.model.embed_tokens.lora_rows"
    edit_tensors(adapter / ADAPTER_FILE, lambda found: found[rows][-1, :1].fill_(70_000.0))  # float16 ends at 65,504
    assert "cannot hold the merged weights" in refusal(adapter, base, out, torch.float16)
