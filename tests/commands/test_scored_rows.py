"""Rows go to reward functions in batches that keep groups whole, and come back with marks, verdicts and totals."""

from typing import Any

from rlvr_vocab.commands.score.rows import ScoredRows, score_rows, total_of
from rlvr_vocab.rewards.build import RewardContext, build_rewards
from rlvr_vocab.rewards.reward import RewardSpec


def rows_of(prompts: list[str] | None, texts: list[str], **columns: list[Any]) -> ScoredRows:
    turns = [[{"role": "assistant", "content": text}] for text in texts]
    return ScoredRows([{"row": number} for number in range(1, len(texts) + 1)], turns, prompts, columns)


def test_batches_hold_64_rows_and_the_rest_of_a_group() -> None:
    texts = ["t"] * 150
    assert list(rows_of(None, texts).batches()) == [(0, 64), (64, 128), (128, 150)]
    prompts = ["a"] * 63 + ["b"] * 10 + [str(number) for number in range(77)]
    assert list(rows_of(prompts, texts).batches()) == [(0, 73), (73, 137), (137, 150)]
    assert list(rows_of(["a"] * 150, texts).batches()) == [(0, 150)]


def test_every_row_has_the_marks_and_verdicts_that_it_has_alone() -> None:
    texts = [f"<think>\\boxed{{{number}}}</think>\\boxed{{{number % 3}}}" for number in range(150)]
    rows = rows_of([f"{number}?" for number in range(150)], texts, solution=["1"] * 150)
    rewards = build_rewards(
        [RewardSpec("accuracy", 2.0), RewardSpec("boxed", 0.5)], RewardContext(("<think>", "</think>"))
    )
    progress: list[tuple[int, int]] = []
    accuracy, boxed = score_rows(rewards, rows, lambda done, total: progress.append((done, total)))
    assert [score.value for score in accuracy.scores] == [float(number % 3 == 1) for number in range(150)]
    assert accuracy.verdicts is not None and len(accuracy.verdicts) == 150
    assert [verdict.answer for verdict in accuracy.verdicts[:4]] == ["0", "1", "2", "0"]
    assert boxed.verdicts is None and {score.reason for score in boxed.scores} == {"2 boxes"}
    assert progress == [(64, 150), (128, 150), (150, 150)]
    assert [accuracy.is_full(row) for row in range(3)] == [False, True, False]
    assert [total_of([accuracy, boxed], row) for row in range(3)] == [0.0, 2.0, 0.0]
    assert accuracy.failed == [] and len(accuracy.scores) == 150 and accuracy.seconds > 0


def test_a_total_leaves_out_rewards_without_a_score_and_is_none_without_any() -> None:
    rows = rows_of(None, ["\\boxed{1}", "none"], solution=["1", None])
    context = RewardContext(("<think>", "</think>"))
    scores = score_rows(build_rewards([RewardSpec("accuracy"), RewardSpec("boxed", 0.5)], context), rows, print)
    assert [total_of(scores, row) for row in (0, 1)] == [1.5, 0.0]
    assert total_of(scores[:1], 1) is None and len(scores[0].values) == 1


def test_functions_get_what_a_trainer_would_pass() -> None:
    arguments = rows_of(["p", "q", "r"], ["a", "b", "c"], solution=["1", "2", "3"]).arguments(1, 3)
    assert arguments["prompts"] == ["q", "r"] and arguments["solution"] == ["2", "3"]
    assert [turn[0]["content"] for turn in arguments["completions"]] == ["b", "c"]
    assert {"trainer_state", "log_extra", "log_metric"} <= arguments.keys()
    assert "prompts" not in rows_of(None, ["a"]).arguments(0, 1)
