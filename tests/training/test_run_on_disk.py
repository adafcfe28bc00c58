"""The files of a training, and that going on from a checkpoint is the uninterrupted training."""

import math
import shutil

import pandas as pd
import pytest
import torch

from rlvr_vocab.record.metrics import PHASES
from rlvr_vocab.training.checkpoint_folders import newest_checkpoint
from rlvr_vocab.vocab.tokenizer import load_tokenizer

STEPS = 4
RUN = {"max_steps": STEPS, "save_strategy": "steps", "save_steps": 2, "learning_rate": 1e-2}


@pytest.fixture(scope="module")
def run(expand_shape, make_trainer, tmp_path_factory):
    """A finished run of four steps with a checkpoint at every second one."""
    trainer = make_trainer(expand_shape("llama", size=None), tmp_path_factory.mktemp("run"), **RUN)
    trainer.train()
    return trainer


def rows_of(trainer):
    return [row for row in trainer.state.log_history if "loss" in row]


def tables_of(trainer):
    return [pd.read_parquet(file) for file in sorted((trainer.checkpoints.output_dir / "completions").iterdir())]


def test_completions_of_each_step_have_the_columns_of_the_design(run):
    tokenizer, tables = load_tokenizer(run.initial_model), tables_of(run)
    assert [table["step"].unique().tolist() for table in tables] == [[step] for step in range(1, STEPS + 1)]
    for table, metrics in zip(tables, rows_of(run), strict=True):
        scored = {"solution", "advantage", "reward", "reward/accuracy", "reward/spread"}
        texts = {"step", "prompt", "completion", "prompt_ids", "completion_ids"}
        assert set(table.columns) == texts | scored | {"sampling_logps"} and len(table) == 4
        for row in table.to_dict("records"):
            assert len(row["completion_ids"]) == len(row["sampling_logps"])
            assert row["prompt"] == tokenizer.decode(row["prompt_ids"]) and row["prompt"].endswith("<think>\n")
            sampled = tokenizer.decode(row["completion_ids"], skip_special_tokens=True)
            assert row["completion"] == "<think>\n" + sampled
            scores = [value for value in (row["reward/accuracy"], row["reward/spread"]) if not math.isnan(value)]
            assert row["reward"] == pytest.approx(sum(scores))
        assert table["reward/spread"].isna().sum() == 1
        assert table["advantage"].sum() == pytest.approx(0, abs=1e-4) and table["advantage"].abs().max() > 0.1
        assert table["reward"].mean() == pytest.approx(metrics["reward"])
        assert table["completion_ids"].map(len).mean() == metrics["completions/mean_length"]


def test_figures_of_a_step_are_those_of_its_completions(run):
    for row, table in zip(rows_of(run), tables_of(run), strict=True):
        lengths = row["thinking/mean_length"] + row["answering/mean_length"]
        assert lengths == pytest.approx(row["completions/mean_length"])
        assert 0.3 < row["thinking/reasoning_share"] < 0.7  # one copy beside each source
        groups = [group for _, group in table.groupby("prompt")]
        assert row["groups/reward_std"] == pytest.approx(sum(group["reward"].std() for group in groups) / len(groups))
        repeated = sum(group["completion"].duplicated().sum() for group in groups)
        assert row["completions/duplicates"] == repeated / len(table)
        assert row["completions/shared"] == 0  # one group a step
        assert row["rewards/spread/unscored"] == table["reward/spread"].isna().mean() == 0.25
        assert "rewards/accuracy/unscored" not in row
        assert row["sampling/logp_gap"] < 1e-4 and 0 < row["weights/moved"] <= 1
        assert 0 < row["time/rewards"] < row["time/generation"] < row["step_time"]
        assert sum(row.get(name, 0) for name in PHASES) == pytest.approx(row["step_time"])


def test_a_resumed_run_has_the_rows_and_completions_of_the_uninterrupted_one(run, make_trainer, tmp_path):
    shutil.copytree(run.checkpoints.output_dir / "checkpoint-2", tmp_path / "checkpoint-2")
    torch.manual_seed(99)
    resumed = make_trainer(run.initial_model, tmp_path, **RUN)
    resumed.train(resume_from_checkpoint=str(newest_checkpoint(tmp_path)))
    whole, rows = (
        [{key: row[key] for key in row if not key.startswith(("step_time", "time/", "memory/"))} for row in rows_of(of)]
        for of in (run, resumed)
    )
    assert rows == whole and any(row["loss"] for row in rows)
    for table, expected in zip(tables_of(resumed), tables_of(run)[2:], strict=True):
        assert [list(ids) for ids in table["completion_ids"]] == [list(ids) for ids in expected["completion_ids"]]
    assert all(map(torch.equal, resumed.model.parameters(), run.model.parameters()))


def test_prompts_that_are_strings_are_trained_on_and_answered_in_strings(expand_shape, make_trainer, tmp_path):
    seen = []

    def reward(completions, **_):
        seen.extend(completions)
        return [float(number % 2) for number in range(4)]

    problems = [{"prompt": f"{n} + 4 =", "solution": "7", "task": f"sum {n}", "difficulty": n} for n in range(8)]
    trainer = make_trainer(expand_shape("qwen3", size=None), tmp_path, max_steps=1, reward=reward, rows=problems)
    trainer.train()
    rows = tables_of(trainer)[0].to_dict("records")
    decoded = [trainer.processing_class.decode(row["completion_ids"], skip_special_tokens=True) for row in rows]
    assert seen == decoded == [row["completion"] for row in rows]  # and nothing of the prompt, which opens no turn
    assert all(row["prompt"].endswith("+ 4 =") for row in rows)
    assert all(row["task"] == f"sum {row['difficulty']}" and row["difficulty"] in row["prompt"] for row in rows)
