"""ZeRO-3, where DeepSpeed is installed: it is no dependency. It shards on a CPU too (DS_ACCELERATOR=cpu)."""

import json

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("deepspeed", reason="deepspeed is not installed")

CASES = ("tied_dapo", "tied_grpo", "untied_dapo", "untied_grpo", "reference")


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")


@pytest.mark.parametrize("name", CASES)
def test_losses_are_those_of_plain_data_parallel(trained, name):
    sharded, whole = (
        [row["loss"] for row in json.loads((trained(kind, name) / "history.json").read_text())[:3]]
        for kind in ("deepspeed_zero3", "adamw")
    )
    assert sharded == pytest.approx(whole, abs=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_what_is_saved_is_what_was_trained(trained, name):
    folder = trained("deepspeed_zero3", name)
    saved, gathered = load_file(folder / "model" / "model.safetensors"), load_file(folder / "gathered.safetensors")
    assert all(torch.equal(gathered[key], weight) for key, weight in saved.items())
