"""Figures of held-out answers that can be counted by hand, and what is refused of measuring them."""

from statistics import stdev

import pytest

from rlvr_vocab.config.checks.run import check_run
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.metrics import HELD_OUT_FIGURES
from rlvr_vocab.record.results import ProblemResult, write_results
from rlvr_vocab.runs.held_out import HeldOutEvaluator, held_out_figures
from tests.settings import load_settings

USUAL = {"sample": 0, "prompt": "p", "solution": "1", "completion": "c", "answer_read": True}
USUAL |= {"score": 0.0, "tokens": 10, "thinking_tokens": 4, "reasoning_tokens": 0, "closed": True, "finished": True}


def result(problem, answer, **more):
    return ProblemResult(problem=problem, answer=answer, **{**USUAL, **more})


ANSWERS = [
    result(0, "1", score=1.0, tokens=6, reasoning_tokens=1),
    result(0, None, thinking_tokens=6, reasoning_tokens=5),
    result(1, None, closed=False, tokens=20, finished=False),
    result(1, "1", tokens=20, finished=False),
    result(2, None, tokens=4),
]


def test_figures_are_those_of_hand_counted_answers():
    assert held_out_figures(ANSWERS) == {
        "accuracy": 1 / 6,  # one of the two answers to the first of three problems
        "reward": pytest.approx(0.5 / 3),
        "reward_std": pytest.approx(stdev([0.5, 0, 0])),
        "format": pytest.approx((1 / 2 + 0 + 0) / 3),
        "mean_length": 12.0,
        "clipped_ratio": 2 / 5,
        "reasoning_share": 6 / 22,
        "problems": 3,
    }
    assert held_out_figures(ANSWERS).keys() == set(HELD_OUT_FIGURES)


def test_the_format_is_what_the_format_reward_says_and_no_stray_tag_makes_one():
    found = [result(0, "1", in_format=False), result(1, "1", in_format=True), result(2, None, in_format=None)]
    assert held_out_figures(found)["format"] == 0.5
    answers = [result(number, "1", thinking_tokens=0, closed=False) for number in range(9)]
    assert "format" not in held_out_figures([*answers, result(9, "1")])


def test_a_figure_that_nothing_could_move_is_left_out():
    nobody_thinks = held_out_figures([result(0, "1", thinking_tokens=0, closed=False)])
    assert not {"reasoning_share", "format"} & nobody_thinks.keys()
    no_right_or_wrong = held_out_figures([result(0, None, score=0.7, threshold=None), result(1, None, score=None)])
    assert no_right_or_wrong["reward"] == 0.7 and "accuracy" not in no_right_or_wrong


def test_recorded_results_of_some_problems_are_not_taken_for_those_of_all(tmp_path):
    path, evaluator = tmp_path / "before.jsonl", HeldOutEvaluator.__new__(HeldOutEvaluator)
    write_results(ANSWERS, path)
    evaluator.problems = [{}] * len(ANSWERS)
    assert evaluator._recorded([tmp_path / "after.jsonl", path]) == ANSWERS
    evaluator.problems.append({})
    with pytest.raises(UserError, match=rf"before\.jsonl holds {len(ANSWERS)} of {len(ANSWERS) + 1} results"):
        evaluator._recorded([path])


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["training.metric_for_best_model=acuracy"], "did you mean accuracy"),
        (["training.metric_for_best_model=accuracy", "rewards=format"], "which calls none right or wrong"),
        (["evaluation.grader={name: accuracy, params: {deadlin: 1}}"], "accuracy has no parameter deadlin"),
    ],
)
def test_what_cannot_be_measured_is_refused(words, part, tmp_path):
    with pytest.raises(UserError) as refused:
        check_run(load_settings("train", ["experiment=quickstart", f"output_dir={tmp_path / 'run'}", *words]))
    assert part in str(refused.value)


def test_the_best_checkpoint_is_the_one_with_the_highest_scores_unless_something_else_is_asked_for(tmp_path):
    words = ["experiment=quickstart", f"output_dir={tmp_path / 'run'}", "training.load_best_model_at_end=true"]
    assert load_settings("train", words).training.grpo["metric_for_best_model"] == "reward"
    words.append("training.metric_for_best_model=format")
    assert load_settings("train", words).training.grpo["metric_for_best_model"] == "format"
