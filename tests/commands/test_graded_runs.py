"""Runs whose rewards are the user's own: what they train is what they measure, from the screen to the comparison."""

import json
from statistics import mean

import numpy as np
import pytest
from scipy import stats

from rlvr_vocab.cli import main
from rlvr_vocab.record.results import ProblemResult, read_lines

OWN = """
from rlvr_vocab.rewards import reward

@reward(grades=True)
def correctness_reward(prompts, completions, answer, **kwargs):
    return [2.0 if "7" in turn[0]["content"] else 0.0 for turn in completions]

@reward(is_format=True, full_mark=0.5)
def short_format(completions, **kwargs):
    return [0.5 if len(turn[0]["content"]) < 40 else 0.0 for turn in completions]

def named(completions, solution, **kwargs):
    texts = [turn[0]["content"] for turn in completions]
    return [sum(bird in text for bird in golds) / len(golds) for text, golds in zip(texts, solution)]

def variety(completions, **kwargs):
    return [len(set(turn[0]["content"])) / 20 for turn in completions]
"""
AFTER = "evaluation/after.jsonl"
SMALL = (
    *("model=tiny", "dataset=arithmetic", "logging=disabled", "training.bf16=false"),
    *("training.max_steps=2", "training.per_device_train_batch_size=16", "training.num_generations=4"),
    *("training.gradient_accumulation_steps=1", "training.max_completion_length=24", "training.eval_steps=1"),
    *("training.learning_rate=1e-2", "dataset.max_eval_samples=20", "training.gradient_checkpointing=false"),
    "dataset.generator.num_problems=300",
)


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    """Trains a run of two steps with rewards from the user's file."""
    folder = tmp_path_factory.mktemp("graded")
    (folder / "own.py").write_text(OWN)

    def trained(name, rewards, *words):
        rewards = rewards.replace("own.py", str(folder / "own.py"))
        assert main(["train", *SMALL, f"rewards={rewards}", f"output_dir={folder / name}", *words]) == 0
        return folder / name

    return trained


STYLE, NAME = "[{name: 'own.py:variety', weight: 2.0}, own.py:short_format]", "2 × variety + short_format"


@pytest.fixture(scope="module")
def style(train):
    return train("style_1", STYLE, "seed=1")


def summary_of(run):
    return json.loads((run / "summary.json").read_text())


def test_where_nothing_is_right_or_wrong_a_run_measures_its_reward(style, capsys):
    capsys.readouterr()
    assert main(["train", f"config={style / 'config.yaml'}", f"output_dir={style}", "trust_code=true"]) == 0
    shown, summary = capsys.readouterr().out, summary_of(style)
    before, after = (read_lines(style / "evaluation" / f"{when}.jsonl", ProblemResult) for when in ("before", "after"))
    for results, key in ((before, "reward_before"), (after, "reward_after")):
        by_hand = [2 * len(set(each.completion)) / 20 + 0.5 * (len(each.completion) < 40) for each in results]
        assert [each.score for each in results] == pytest.approx(by_hand)
        assert [each.right for each in results] == [None] * 20
        assert summary[key] == pytest.approx(mean(by_hand))
    assert summary["accuracy_before"] is summary["accuracy_after"] is None
    figures = f"{summary['reward_before']:.3f} before GRPO, {summary['reward_after']:.3f} after"
    assert f"held-out reward on 20 problems by {NAME}: {figures}" in " ".join(shown.split())
    rows = [json.loads(line) for line in (style / "metrics.jsonl").read_text().splitlines()]
    measured = [row for row in rows if "eval/problems" in row]
    assert measured and not any("eval/accuracy" in row for row in measured)
    assert measured[-1]["eval/reward"] == pytest.approx(summary["reward_after"])
    told = [each.in_format for each in after]
    assert measured[-1]["eval/format"] == mean(told) and told == [len(each.completion) < 40 for each in after]
    card, page = (style / "final_model" / "README.md").read_text(), (style / "report.html").read_text()
    assert f"held-out reward by {NAME} before GRPO" in card
    assert f"Held-out reward by {NAME}" in page and "Held-out accuracy" not in page


def test_evaluate_grades_as_the_run_or_as_it_is_told(style, tmp_path, capsys):
    words = ["evaluate", f"checkpoint={style / 'final_model'}", "samples=2", "max_samples=6", "trust_code=true"]
    assert main([*words, f"out={tmp_path / 'run'}"]) == 0
    shown, summary = capsys.readouterr().out, summary_of(tmp_path / "run")
    results = read_lines(tmp_path / "run" / "results.jsonl", ProblemResult)
    assert f"reward {mean(each.score for each in results):.3f} by {NAME} on 6 problems" in shown
    expected = mean(each.rewards["variety"] for each in results)
    assert summary["figures"]["rewards/variety"]["estimate"] == pytest.approx(expected)
    assert not any(name.startswith(("avg", "pass", "maj")) for name in summary["figures"])
    assert main([*words, "grader=accuracy", f"out={tmp_path / 'told'}"]) == 0
    assert "accuracy 0.0% on 6 problems" in capsys.readouterr().out
    assert main([*words, "rewards=[think_format]", "threshold=1", f"out={tmp_path / 'right'}"]) == 0
    assert "accuracy 0.0% by think_format on 6 problems" in capsys.readouterr().out
    assert main([*words, "grader=accuracy", f"out={tmp_path / 'run'}"]) == 2
    assert "other grader" in capsys.readouterr().err


@pytest.mark.slow
def test_compare_takes_the_mean_rewards_and_refuses_runs_that_were_graded_otherwise(train, style, tmp_path, capsys):
    arms = {"1e-2": [style], "2e-2": []}
    for rate, seed in (("1e-2", 2), ("2e-2", 1), ("2e-2", 2)):
        arms[rate].append(train(f"{rate}_{seed}", STYLE, f"seed={seed}", f"training.learning_rate={rate}"))
    runs = ",".join(str(run) for arm in arms.values() for run in arm)
    capsys.readouterr()  # of the trainings
    assert main(["compare", f"runs=[{runs}]", f"out={tmp_path / 'out'}", "baseline=0.01"]) == 0
    shown = capsys.readouterr().out
    assert f"reward by {NAME} (measured by each run at its end)" in shown and "points" not in shown
    scores = {
        rate: np.array([[each.score for each in read_lines(run / AFTER, ProblemResult)] for run in arm])
        for rate, arm in arms.items()
    }
    [compared] = json.loads((tmp_path / "out" / "comparison.json").read_text())["comparisons"]
    differences = scores["2e-2"] - scores["1e-2"]
    assert compared["difference"] == pytest.approx(differences.mean())
    assert sum(compared["baseline_scores"]) / len(compared["baseline_scores"]) == pytest.approx(scores["1e-2"].mean())
    least = stats.sem(differences.mean(axis=0)) * stats.t.ppf(0.975, 19)  # of the problems alone
    assert compared["high"] - compared["difference"] >= 0.99 * least
    other = train("other", "[own.py:correctness_reward]", "seed=1", "training.learning_rate=2e-2")
    after = read_lines(other / AFTER, ProblemResult)
    assert summary_of(other)["accuracy_after"] == mean(each.right for each in after)
    assert [each.right for each in after] == ["7" in each.completion for each in after]
    assert main(["compare", f"runs=[{style},{other}]", "key=training.learning_rate", f"out={tmp_path / 'none'}"]) == 2
    line = capsys.readouterr().err
    assert f"were graded by {NAME}" in line and "by correctness_reward" in line and line.count("\n") == 1
