"""ZeRO-3, where DeepSpeed is installed: it is no dependency. It shards on a CPU too (DS_ACCELERATOR=cpu)."""

import json

import pytest
import torch
from safetensors.torch import load_file

from rlvr_vocab.vocab.layout import VocabLayout

pytest.importorskip("deepspeed", reason="deepspeed is not installed")

CASES = (*("tied_dapo", "tied_grpo", "untied_dapo", "reference"), *("low_rank_tied", "low_rank_reference"))


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
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
    layout = VocabLayout.load(folder / "model")
    for key, weight in saved.items():
        assert torch.equal(weight[: len(gathered[key])], gathered[key])
    if layout.reasoning_rank is None:
        return
    for key in ("model.embed_tokens", "lm_head"):
        if f"{key}.weight" in saved:
            expected = gathered[f"{key}.weight"][list(layout.source_ids)]
            A, B = (gathered.get(f"{key}.difference.{part}") for part in ("A", "B"))
            if B is not None:
                assert B.abs().max() > 1e-4
                expected = expected + (B if A is None else B @ A)
            assert (saved[f"{key}.weight"][layout.standard_size :] - expected).abs().max() < 1e-6
