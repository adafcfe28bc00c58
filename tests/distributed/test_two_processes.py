"""Two processes sample, save and go on: completions of their own, stock checkpoints, and a whole run."""

import json

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import scored_regions

KINDS = pytest.mark.parametrize("kind", ["ddp", "fsdp2"])


def seen_by_both(folder):
    return [json.loads((folder / f"rank_{rank}.json").read_text()) for rank in (0, 1)]


@KINDS
def test_processes_draw_completions_of_their_own_under_the_policy_that_scores_them(trained, expand_shape, kind):
    first, second = both = seen_by_both(trained(kind, "sampled"))
    assert not [ids for ids in first["completion_ids"] if ids in second["completion_ids"]]
    layout = VocabLayout.load(expand_shape("qwen3", size=100))
    bias = RegionPolicy(layout).bias_on(torch.device("cpu"))
    for seen in both:
        assert len(seen["completion_ids"]) == 6  # two in each of three steps
        assert len(seen["farthest_from_its_score"]) == 3 and max(seen["farthest_from_its_score"]) < 1e-5
        for prompt, completion in zip(seen["prompt_ids"], seen["completion_ids"], strict=True):
            ids = torch.tensor([prompt + completion])
            regions = scored_regions(ids, layout)[0, len(prompt) :]
            assert torch.isfinite(bias[regions, ids[0, len(prompt) :]]).all()


@KINDS
def test_a_process_whose_completions_end_at_once_waits_for_the_other(trained, kind):
    first, second = seen_by_both(trained(kind, "one_ends_early"))
    assert {len(ids) for ids in first["completion_ids"]} == {1}
    assert max(len(ids) for ids in second["completion_ids"]) == 12
    assert max(second["farthest_from_its_score"]) < 1e-5


@KINDS
def test_a_process_without_calls_waits_for_the_turns_of_the_other(trained, kind):
    first, second = seen_by_both(trained(kind, "tools"))
    assert set(first["turns"]) == {1} and max(second["turns"]) == 3
    assert max(first["farthest_from_its_score"] + second["farthest_from_its_score"]) < 1e-5


@KINDS
def test_a_resumed_training_ends_with_the_same_weights(trained, kind):
    whole, resumed = (load_file(trained(kind, name) / "model" / "model.safetensors") for name in ("whole", "resumed"))
    assert [key for key, weight in whole.items() if not torch.equal(resumed[key], weight)] == []


@KINDS
def test_where_one_process_is_told_to_stop_both_save_after_the_same_step(trained, kind):
    [checkpoint] = (trained(kind, "told_to_stop") / "run").glob("checkpoint-*")
    assert checkpoint.name == "checkpoint-1"  # of four, between two updates on the same completions
    listed = json.loads((checkpoint / "manifest.json").read_text())["files"]
    of_each = {name.format(rank) for name in ("pending_{}.pt", "rng_state_{}.pth") for rank in (0, 1)}
    assert {*of_each, "model.safetensors", "reasoning_vocab.json"} <= set(listed)


def test_a_whole_run_that_shards_an_adapted_model_leaves_what_one_process_leaves(started, tmp_path):
    folder = tmp_path / "run"
    done = started("fsdp2", "fsdp_on_cpu.py", "model.lora.enabled=true", "model.lora.r=4", f"output_dir={folder}")
    assert done.returncode == 0, done.stderr[-6000:]
    summary = json.loads((folder / "summary.json").read_text())
    model = AutoModelForCausalLM.from_pretrained(folder / "final_model")
    assert summary["finished"] and summary["steps"] == 2
    assert summary["accuracy_before"] is not None and summary["accuracy_after"] is not None
    assert model.get_input_embeddings().weight.size(0) == 2 * summary["reasoning_vocab_size"]
    assert (folder / "final_adapter").is_dir() and not list(folder.glob(".*"))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2]
    for path in sorted((folder / "completions").glob("*.parquet")):
        first, second = (group for _, group in pd.read_parquet(path).groupby("prompt", sort=False))
        for start, group in ((0, first), (4, second)):  # four of one problem from each process
            assert group.index.tolist() == list(range(start, start + 4))
            assert group["advantage"].sum() == pytest.approx(0, abs=1e-3)
            assert group["advantage"].argmax() == group["reward"].argmax() or group["reward"].nunique() == 1
