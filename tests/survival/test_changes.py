"""A run that goes on with another value of a key, or from an earlier checkpoint, does so."""

import json
import signal

import torch

from tests.survival.conftest import LENGTH

STOPPED_IN_STEP_3 = {"signals_at": [["open metrics.jsonl", 2, signal.SIGTERM]]}
CONSTANT = ("training.lr_scheduler_type=constant", "training.warmup_ratio=null")


def rows_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_another_learning_rate_and_weight_decay_train_the_rest_by_fewer_rewards(forks, tmp_path):
    folder = tmp_path / "run"
    assert forks.run(folder, *CONSTANT, **STOPPED_IN_STEP_3) == 75, forks.said(folder)
    changed = (
        "training.learning_rate=1e-6",
        "training.weight_decay=0.5",
        f"rewards=[{LENGTH}]",
        "allow_changes=[training.learning_rate,training.weight_decay,rewards]",
    )
    assert forks.run(folder, *CONSTANT, *changed) == 0, forks.said(folder)
    assert [row["learning_rate"] for row in rows_of(folder)] == [1e-2] * 3 + [1e-6] * 3
    assert ["rewards/accuracy/mean" in row for row in rows_of(folder)] == [True] * 3 + [False] * 3
    optimizer = torch.load(folder / "checkpoint-6" / "optimizer.pt", weights_only=True)
    assert max(group["weight_decay"] for group in optimizer["param_groups"]) == 0.5


def test_a_finished_run_is_trained_further_and_measured_again(forks, tmp_path):
    folder = tmp_path / "run"
    assert forks.run(folder) == 0
    assert forks.run(folder, "training.max_steps=8", "allow_changes=[training.max_steps]") == 0, forks.said(folder)
    assert [row["step"] for row in rows_of(folder)] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert json.loads((folder / "summary.json").read_text())["steps"] == 8
    assert (folder / "evaluation" / "after_6_steps.jsonl").exists() and (folder / "summary_6_steps.json").exists()
    before, after = (folder / "evaluation" / name for name in ("after_6_steps.jsonl", "after.jsonl"))
    assert before.read_text() != after.read_text()


def test_a_run_goes_back_to_a_named_checkpoint(forks, unfinished, undisturbed, outcome_of):
    assert forks.run(unfinished, f"resume={unfinished}/checkpoint-5") == 0, forks.said(unfinished)
    assert (unfinished / "later-checkpoint-6").is_dir()
    assert outcome_of(unfinished) == outcome_of(undisturbed())


def test_what_was_counted_survives_a_kill_between_training_and_summary(forks, tmp_path):
    folder, reward = tmp_path / "run", tmp_path / "mine.py"
    reward.write_text(
        "def text(completions, **_):\n"
        "    return [0.0 if 'Work it out' in turn[0]['content'] else 'no score' for turn in completions]\n"
    )
    words = f'rewards=[{LENGTH},"{reward}:text"]'
    killed = forks.run(folder, words, signals_at=[["open .summary.json.partial", 1, signal.SIGKILL]])
    assert killed == -signal.SIGKILL, forks.said(folder)
    assert forks.run(folder, words) == 0
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["reward_failures"]["text"] > 0 and summary["grpo_seconds"] > 0.2
