"""Whole runs in two processes, from problems to the final model: written once, and complete."""

import json

import pandas as pd
import pytest
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

KINDS = pytest.mark.parametrize("kind", ["ddp", "fsdp2"])


@KINDS
def test_a_run_leaves_what_one_process_leaves(started, kind):
    folder = started(kind)
    summary = json.loads((folder / "summary.json").read_text())
    model = AutoModelForCausalLM.from_pretrained(folder / "final_model")
    assert summary["finished"] and summary["steps"] == 2
    assert summary["accuracy_before"] is not None and summary["accuracy_after"] is not None
    assert model.get_input_embeddings().weight.size(0) == 2 * summary["reasoning_vocab_size"]
    assert (folder / "final_adapter").is_dir() == (kind == "fsdp2")
    assert not list(folder.glob(".*"))


@KINDS
def test_one_process_writes_the_metrics(started, kind):
    rows = [json.loads(line) for line in (started(kind) / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2]


@KINDS
def test_completions_of_all_processes_lie_in_one_file_group_by_group(started, kind):
    for path in sorted((started(kind) / "completions").glob("*.parquet")):
        rows = pd.read_parquet(path)
        assert len(rows) == 8  # four from each process
        groups = [rows["prompt"][start : start + 4] for start in (0, 4)]
        assert [group.nunique() for group in groups] == [1, 1]
        assert groups[0].iloc[0] != groups[1].iloc[0]
        for start in (0, 4):
            rewards = rows["reward"][start : start + 4]
            assert rows["advantage"][start : start + 4].sum() == pytest.approx(0, abs=1e-3)
            assert (rows["advantage"][start : start + 4].argmax() == rewards.argmax()) or rewards.nunique() == 1


def test_the_model_before_training_is_the_same_however_many_shard_it(started):
    models = [load_file(started(kind) / "initial_model" / "model.safetensors") for kind in ("ddp", "fsdp2")]
    assert all((models[1][key] == weight).all() for key, weight in models[0].items())
    results = [(started(kind) / "evaluation" / "before.jsonl").read_text() for kind in ("ddp", "fsdp2")]
    assert results[0] == results[1] != ""
