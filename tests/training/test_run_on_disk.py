"""What a run leaves on disk, and that going on from a checkpoint is the uninterrupted run."""

import json
import math
import shutil

import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

from rlvr_vocab.record.metrics import PHASES
from rlvr_vocab.training.checkpoints import newest_checkpoint
from rlvr_vocab.training.stage import MetricsFile, StageContext
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.tokenizer import load_tokenizer

STEPS = 4


@pytest.fixture(scope="module")
def run(expand_shape, make_trainer, tmp_path_factory):
    """A finished run of four steps with a checkpoint at every second one."""
    out = tmp_path_factory.mktemp("run")
    trainer = make_trainer(
        expand_shape("llama", size=None),
        out,
        callbacks=[MetricsFile(out / "metrics.jsonl", StageContext(out))],
        max_steps=STEPS,
        save_strategy="steps",
        save_steps=2,
        learning_rate=1e-2,
    )
    trainer.train()
    return trainer, out


def rows_of(path):
    return [json.loads(line, parse_constant=lambda name: pytest.fail(name)) for line in path.read_text().splitlines()]


def test_completions_of_each_step_have_the_columns_of_the_design(run):
    trainer, out = run
    files = sorted((out / "completions").iterdir())
    assert [file.name for file in files] == [f"step_{step:05d}.parquet" for step in range(1, STEPS + 1)]
    tokenizer = load_tokenizer(trainer.initial_model)
    metrics = rows_of(out / "metrics.jsonl")
    for step, file in enumerate(files, 1):
        table = pd.read_parquet(file)
        scored = {"solution", "advantage", "reward", "reward/accuracy", "reward/spread"}
        texts = {"step", "prompt", "completion", "prompt_ids", "completion_ids"}
        assert set(table.columns) == texts | scored | {"sampling_logps"}
        assert len(table) == 4 and (table["step"] == step).all()
        for row in table.to_dict("records"):
            assert len(row["completion_ids"]) == len(row["sampling_logps"])
            assert all(math.isfinite(logp) and logp <= 0 for logp in row["sampling_logps"])
            assert row["prompt"] == tokenizer.decode(row["prompt_ids"]) and row["prompt"].endswith("<think>\n")
            sampled = tokenizer.decode(row["completion_ids"], skip_special_tokens=True)
            assert row["completion"] == "<think>\n" + sampled
            scored = [value for value in (row["reward/accuracy"], row["reward/spread"]) if not math.isnan(value)]
            assert row["reward"] == pytest.approx(sum(scored))
        assert table["reward/spread"].isna().sum() == 1
        assert table["advantage"].sum() == pytest.approx(0, abs=1e-4) and table["advantage"].abs().max() > 0.1
        assert table["reward"].mean() == pytest.approx(metrics[step - 1]["reward"])
        assert table["completion_ids"].map(len).mean() == metrics[step - 1]["completions/mean_length"]


def test_figures_of_a_step_are_those_of_its_completions(run):
    trainer, out = run
    rows = rows_of(out / "metrics.jsonl")
    assert rows == [row for row in trainer.state.log_history if "loss" in row] and len(rows) == STEPS
    for row in rows:
        lengths = row["thinking/mean_length"] + row["answering/mean_length"]
        assert lengths == pytest.approx(row["completions/mean_length"])
        assert 0.3 < row["thinking/reasoning_share"] < 0.7  # one copy beside each source
        table = pd.read_parquet(out / "completions" / f"step_{row['step']:05d}.parquet")
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


def test_the_logps_on_disk_are_those_of_the_model_before_the_step(run):
    trainer, out = run
    table = pd.read_parquet(out / "completions" / "step_00001.parquet")
    model = AutoModelForCausalLM.from_pretrained(trainer.initial_model).eval()
    policy = RegionPolicy(VocabLayout.load(trainer.initial_model))
    for row in table.to_dict("records"):
        prompt, completion = list(row["prompt_ids"]), list(row["completion_ids"])
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1].double()
        thinking = True  # every prompt ends in an open tag
        for step, token in enumerate(completion):
            log_p = (logits[step] + policy.bias[int(thinking)]).log_softmax(-1)
            assert row["sampling_logps"][step] == pytest.approx(log_p[token].item(), abs=1e-4)
            thinking = token == policy.layout.think_open_id or (thinking and token != policy.layout.think_close_id)


def test_resuming_gives_the_losses_of_the_uninterrupted_run(run, make_trainer, tmp_path):
    trainer, out = run
    shutil.copytree(out / "checkpoint-2", tmp_path / "checkpoint-2")
    shutil.copy(out / "metrics.jsonl", tmp_path / "metrics.jsonl")
    torch.manual_seed(99)
    resumed = make_trainer(
        trainer.initial_model,
        tmp_path,
        callbacks=[MetricsFile(tmp_path / "metrics.jsonl", StageContext(tmp_path))],
        max_steps=STEPS,
        save_strategy="no",
        learning_rate=1e-2,
    )
    resumed.train(resume_from_checkpoint=str(newest_checkpoint(tmp_path)))
    rows = [
        [
            {key: value for key, value in row.items() if not key.startswith(("step_time", "time/", "memory/"))}
            for row in rows_of(folder / "metrics.jsonl")
        ]
        for folder in (out, tmp_path)
    ]
    assert rows[0] == rows[1]
    assert any(row["loss"] for row in rows[0])
    for step in (3, 4):
        names = [folder / "completions" / f"step_{step:05d}.parquet" for folder in (out, tmp_path)]
        assert [list(ids) for ids in pd.read_parquet(names[0])["completion_ids"]] == [
            list(ids) for ids in pd.read_parquet(names[1])["completion_ids"]
        ]
