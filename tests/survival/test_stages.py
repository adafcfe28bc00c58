"""Runs of two stages: one after the other, ended early, each with rewards and checkpoints of its own."""

import itertools
import json

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from tests.survival.conftest import LENGTH

STEPS = 3
STAGES = (
    f"stages=[{{name:form,rewards:[think_format,{LENGTH}],training:{{max_steps:{STEPS}}}}},"
    f"{{name:answers,rewards:[{{name:accuracy,adaptive:{{window:1}}}},{LENGTH}],training:{{max_steps:{STEPS}}}}}]"
)


def test_steps_count_through_the_stages_and_each_row_has_the_rewards_of_its_stage(undisturbed):
    run = undisturbed(STAGES, "training.save_total_limit=null")
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, 2 * STEPS + 1))
    assert [row["stage"] for row in rows] == ["form"] * STEPS + ["answers"] * STEPS
    assert [row["stage_step"] for row in rows] == [*range(1, STEPS + 1)] * 2
    for metric, stage in (("rewards/think_format/mean", "form"), ("rewards/accuracy/mean", "answers")):
        assert {row["stage"] for row in rows if metric in row} == {stage}
    state = torch.load(run / f"stages/2_answers/checkpoint-{STEPS}/pending_0.pt")["adaptive_weights"]
    weights = [row["rewards/accuracy/weight"] for row in rows[STEPS:]] + [state["accuracy"]["value"]]
    changes = [now / before for before, now in itertools.pairwise(weights)]
    rates = [row["rewards/accuracy/mean"] for row in rows[STEPS:]]
    assert changes == pytest.approx([1.2 if rate < 0.3 else 0.9 if rate > 0.8 else 1.0 for rate in rates])
    tables = [pd.read_parquet(path) for path in sorted((run / "completions").glob("*.parquet"))]
    assert [set(table["step"]) for table in tables] == [{step} for step in range(1, 2 * STEPS + 1)]
    records = [json.loads(path.read_text()) for path in sorted(run.glob("stages/*/stage.json"))]
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["stages"], summary["steps"]) == (records, 2 * STEPS) and not list(run.glob("checkpoint-*"))


def weights_of(folder):
    return {key: each for path in folder.rglob("*.safetensors") for key, each in load_file(path).items()}


@pytest.mark.parametrize("rank", ["null", 16])
def test_the_second_stage_starts_from_the_weights_of_the_first(rank, undisturbed):
    words = [] if rank == "null" else [f"model.reasoning_rank={rank}", "dataset.open_thinking=prefill"]
    run = undisturbed(STAGES, "training.save_total_limit=null", *words)
    folders = (f"stages/1_form/checkpoint-{STEPS}", "initial_model", "stages/2_answers/checkpoint-1")
    first, initial, after_one = (weights_of(run / folder) for folder in folders)
    assert rank == "null" or first["input.B"].any()
    apart = {name: (first[name] - initial[name]).abs().max().item() for name in first}
    step = {name: (after_one[name] - first[name]).abs().max().item() for name in first}
    # One step of AdamW moves a weight by about the learning rate; from the initial model it would be several.
    assert max(step.values()) < 1.5 * 1e-2 < max(apart.values())


def test_a_stage_ends_early_when_it_has_reached_its_goal(forks, tmp_path):
    goal = "until:{metric:rewards/length/mean,above:-1000,window:2}"
    first = f"{{name:a,rewards:[{LENGTH}],training:{{max_steps:9}},{goal}}}"
    folder = tmp_path / "run"
    assert forks.run(folder, f"stages=[{first},{{name:b,training:{{max_steps:1}}}}]") == 0, forks.said(folder)
    first, second = json.loads((folder / "summary.json").read_text())["stages"]
    assert (first["steps"], first["ended_by"]) == (2, "until rewards/length/mean above -1000.0 over 2 steps")
    assert (second["steps"], second["ended_by"]) == (1, "steps")
