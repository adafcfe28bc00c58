"""Scores of answers as models give them to problems as GSM8K states them."""

import time

import pytest

from rlvr_vocab.rewards.accuracy import accuracy

CASES = [
    ("<think>6 * 7</think>\\boxed{42}", "42", 1.0),
    ("<think>6 * 7</think>\\boxed{41}", "42", 0.0),
    ("<think>\\boxed{42}", "42", 0.0),  # thinking that was never closed
    ("<think>\n6 * 7 = 42. \\boxed{42}", "42", 0.0),
    ("<think>\\boxed{42}</think>I do not know.", "42", 0.0),  # a box in the thinking alone
    ("<think>x</think>\\boxed{41}. No wait, \\boxed{42}", "42", 1.0),
    ("<think>x</think>\\boxed{42}. No wait, \\boxed{41}", "42", 0.0),
    ("<think>x</think>", "42", 0.0),
    ("", "42", 0.0),
    ("\\boxed{042}", "42", 1.0),
    ("\\boxed{-3}", "-3", 1.0),
    ("\\boxed{3}", "-3", 0.0),
    ("\\boxed{ 1000 }", "1000", 1.0),
    ("\\boxed{1,000}", "1000", 1.0),
    ("\\boxed{\\frac{1}{2}}", "0.5", 1.0),
    ("\\boxed{\\frac{1}{2}}", "\\frac12", 1.0),
    ("\\boxed{2\\pi}", "2", 0.0),
    ("\\boxed{2\\pi}", "2\\pi", 1.0),
    ("The answer is $42$.", "42", 1.0),
]


@pytest.mark.parametrize(("turn", "gold", "score"), CASES)
def test_answers_are_scored(turn, gold, score):
    assert accuracy([turn], solution=[gold]) == [score]
    assert accuracy([[{"role": "assistant", "content": turn}]], solution=[gold], prompts=[[]]) == [score]


def test_scores_keep_the_order_of_a_batch():
    turns, golds, scores = zip(*CASES, strict=True)
    assert accuracy(turns, solution=golds) == list(scores)


def test_content_may_be_none():
    assert accuracy([[{"role": "assistant", "content": None}], []], solution=["1", "1"]) == [0.0, 0.0]


@pytest.mark.parametrize(
    "hostile",
    [
        "\\boxed{5" + "!" * 198 + "}",
        "\\boxed{" + "{" * 300 + "5" + "}" * 300 + "}",
        "\\boxed{" * 2000,
        "{" * 5000,
        "\ud800\\boxed{5\udfff}",
        "\x00\\boxed{5\x00}",
        "\u202e\\boxed{6}",
        "\\boxed{" + "9" * 5000 + "}",
        "<think>" * 3000,
        "</think>" * 3000 + "<think>",
    ],
    ids=["factorials", "braces", "open boxes", "open braces", "surrogates", "null", "marks", "digits", "opens", "tags"],
)
def test_hostile_answers_are_wrong_and_stop_nothing(hostile):
    started = time.process_time()
    assert accuracy([hostile, "\\boxed{7}"], solution=["7", "7"]) == [0.0, 1.0]
    assert time.process_time() - started < 8


def test_a_gold_answer_that_nothing_can_read_has_no_score():
    assert accuracy(["\\boxed{x is even}"], solution=[""]) == [None]
