"""A run with LoRA ends in a merged model beside its adapter, and `merge` makes the same of any adapter."""

import json
import re
import shutil
from types import SimpleNamespace

import pytest
import torch
from peft import PeftModel
from rich.console import Console
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from rlvr_vocab.cli import main
from rlvr_vocab.runs import final_model
from rlvr_vocab.runs.folder import Run
from rlvr_vocab.vocab.adapter import load_model
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.merge import probe_ids
from rlvr_vocab.vocab.weights import record_base

pytestmark = pytest.mark.slow

SMALL = (
    *("warmup.max_steps=2", "warmup.until_accuracy=null", "training.max_steps=2"),
    *("training.per_device_train_batch_size=16", "training.num_generations=4", "training.max_completion_length=8"),
    "training.learning_rate=1e-2",
    "training.entropy_coef=0.1",  # a gradient even where no completion is right
    *("training.save_strategy=steps", "training.save_steps=1", "dataset.max_eval_samples=6"),
    "dataset.generator.num_problems=300",
)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """A finished run of two steps that trained an adapter and the reasoning rows."""
    run = tmp_path_factory.mktemp("runs") / "lora"
    assert main(["quickstart", "model.lora.enabled=true", f"output_dir={run}", *SMALL]) == 0
    return run


def logits_of(model, folder):
    with torch.no_grad():
        return model.double()(input_ids=torch.tensor([probe_ids(folder)])).logits


def test_the_final_model_is_stock_and_computes_what_the_final_adapter_does_on_its_base(run_folder):
    final, adapter = run_folder / "final_model", run_folder / "final_adapter"
    assert not (final / "adapter_config.json").exists() and not list(run_folder.glob("final_*/*.bin"))
    unmerged = load_model(adapter)
    assert isinstance(unmerged, PeftModel)
    expected, initial = logits_of(unmerged, final), load_model(run_folder / "initial_model")
    merged = AutoModelForCausalLM.from_pretrained(final)
    assert (logits_of(merged, final) - expected).abs().max() < 1e-4
    assert (logits_of(initial, final) - expected).abs().max() > 1e-2
    assert VocabLayout.load(final) == VocabLayout.load(adapter) == VocabLayout.load(run_folder / "initial_model")


def test_merging_the_final_adapter_again_gives_the_final_model(run_folder, tmp_path):
    out = tmp_path / "production_model"
    assert main(["merge", f"checkpoint={run_folder / 'final_adapter'}", f"out={out}"]) == 0
    one, other = (load_file(folder / "model.safetensors") for folder in (out, run_folder / "final_model"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_checkpoint_of_a_run_that_was_moved_merges_in_another_type(run_folder, tmp_path):
    moved = tmp_path / "moved"
    moved.symlink_to(run_folder)
    out = tmp_path / "half"
    assert main(["merge", f"checkpoint={moved / 'checkpoint-1'}", f"out={out}", "dtype=bf16"]) == 0
    assert {tensor.dtype for tensor in load_file(out / "model.safetensors").values()} == {torch.bfloat16}
    card = (out / "README.md").read_text()
    assert "| GRPO steps | 1 |" in card and "| held-out accuracy at the end of training | not measured |" in card


def test_a_run_whose_merge_is_refused_keeps_its_adapter_and_says_why_in_one_line(
    run_folder, tmp_path, monkeypatch, error_of
):
    from rlvr_vocab.vocab import merge

    write, again = merge.write_stock_folder, tmp_path / "again"

    def faulty(model, base, folder):
        write(model, base, folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 0.5}))

    monkeypatch.setattr(merge, "write_stock_folder", faulty)
    words = ["train", f"config={run_folder}", f"output_dir={again}"]
    assert "logits differ by" in error_of(*words)
    assert (again / "final_adapter" / "adapter_model.safetensors").is_file()
    assert not (again / "final_model").exists() and not (again / "summary.json").exists()
    monkeypatch.setattr(merge, "write_stock_folder", write)
    assert main(words) == 0 and (again / "final_model" / "README.md").is_file()


def test_a_final_model_is_float32_whatever_its_base_is_and_replaces_that_of_an_interrupted_end(run_folder, tmp_path):
    base, out, adapter = (tmp_path / name for name in ("initial_model", "final_model", "adapter"))
    settings = SimpleNamespace(output_dir=tmp_path)
    run = Run(settings, VocabLayout.load(run_folder / "initial_model"), Console(quiet=True))
    shutil.copytree(run_folder / "initial_model", base)
    shutil.copytree(run_folder / "final_adapter", adapter)
    AutoModelForCausalLM.from_pretrained(base).bfloat16().save_pretrained(base)
    record_base(adapter, base)
    out.mkdir()
    (out / "stale").touch()
    final_model._merge(run, adapter, base, {"name": "a", "adapter": True})
    assert not (out / "stale").exists()
    assert {tensor.dtype for tensor in load_file(out / "model.safetensors").values()} == {torch.float32}


def test_a_checkpoint_that_is_not_what_was_written_is_refused_by_every_command(run_folder, tmp_path, error_of):
    checkpoint, out = tmp_path / "run" / "checkpoint-1", tmp_path / "out"
    shutil.copytree(run_folder / "checkpoint-1", checkpoint)
    weights = checkpoint / "adapter_model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    given = f"checkpoint={checkpoint}"
    for words in (["merge", given, f"out={out}"], ["generate", given, "prompt=1+1="], ["evaluate", given]):
        assert f"{given}: not what was written, by its manifest.json" in error_of(*words)
    assert not out.exists()


def test_the_python_of_a_card_runs(run_folder, capsys):
    folder = run_folder / "final_model"
    [code] = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    exec(code.replace("path/to/this/folder", str(folder)).replace("max_new_tokens=512", "max_new_tokens=4"), {})
    assert "'role': 'assistant'" in capsys.readouterr().out


def test_what_cannot_be_merged_is_one_line_each(expand_shape, make_adapter, tmp_path, error_of):
    base, other = expand_shape("llama", size=20), expand_shape("llama", size=30)
    adapter, out = make_adapter(base, "reasoning"), tmp_path / "out"
    given = [f"checkpoint={adapter}", f"out={out}"]
    assert "holds no adapter" in error_of("merge", f"checkpoint={base}", f"out={out}")
    assert f"did you mean {adapter}?" in error_of("merge", f"checkpoint={adapter.parent}", f"out={out}")
    assert "it is not the base of this adapter" in error_of("merge", *given, f"base={other}")
    assert "not empty; choose another folder" in error_of("merge", given[0], f"out={base}")
    weights = adapter / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    assert "its adapter_model.safetensors cannot be read" in error_of("merge", *given)
    assert not out.exists()
