"""A whole run in two processes that shard an adapted model, from problems to the final model, is written once."""

import json
from pathlib import Path

import pandas as pd
import pytest
from transformers import AutoModelForCausalLM


@pytest.fixture(scope="module")
def folder(launched, here, small, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("started")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLVR_VOCAB_CACHE", str(root / "cache"))
        words = ("model.lora.enabled=true", "model.lora.r=4", f"output_dir={root / 'run'}")
        done = launched("fsdp2", here / "fsdp_on_cpu.py", *small, *words)
    assert done.returncode == 0, done.stderr[-6000:]
    return root / "run"


def test_it_leaves_what_one_process_leaves(folder):
    summary = json.loads((folder / "summary.json").read_text())
    model = AutoModelForCausalLM.from_pretrained(folder / "final_model")
    assert summary["finished"] and summary["steps"] == 2
    assert summary["accuracy_before"] is not None and summary["accuracy_after"] is not None
    assert model.get_input_embeddings().weight.size(0) == 2 * summary["reasoning_vocab_size"]
    assert (folder / "final_adapter").is_dir() and not list(folder.glob(".*"))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2]


def test_completions_of_all_processes_lie_in_one_file_group_by_group(folder):
    for path in sorted((folder / "completions").glob("*.parquet")):
        rows = pd.read_parquet(path)
        assert len(rows) == 8  # four from each process
        groups = [rows["prompt"][start : start + 4] for start in (0, 4)]
        assert [group.nunique() for group in groups] == [1, 1]
        assert groups[0].iloc[0] != groups[1].iloc[0]
        for start in (0, 4):
            rewards = rows["reward"][start : start + 4]
            assert rows["advantage"][start : start + 4].sum() == pytest.approx(0, abs=1e-3)
            assert (rows["advantage"][start : start + 4].argmax() == rewards.argmax()) or rewards.nunique() == 1
