"""Scores of lengths, by hand and against TRL's own functions."""

import math

import pytest
from trl.rewards import get_cosine_scaled_reward, get_soft_overlong_punishment

from rlvr_vocab.rewards.library.answers import numeric
from rlvr_vocab.rewards.library.lengths import cosine_length, length, overlong, reasoning_share


def ids(*sizes):
    return [[1] * size for size in sizes]


def test_a_length_in_the_range_is_perfect_and_falls_off_outside():
    sizes = (0, 50, 99, 100, 150, 200, 201, 250, 299, 300, 10_000)
    scores = length([""] * len(sizes), ids(*sizes), shortest=100, longest=200)
    assert scores == pytest.approx([0.0, 0.5, 0.99, 1.0, 1.0, 1.0, 0.99, 0.5, 0.01, 0.0, 0.0], abs=1e-12)
    assert length([""] * 3, ids(90, 205, 211), shortest=100, longest=200, falloff=10) == [0.0, 0.5, 0.0]
    assert length([""] * 3, ids(0, 5, 500), shortest=10) == [0.0, 0.5, 1.0]  # no upper limit
    assert length([""] * 3, ids(0, 10, 15), longest=10) == [1.0, 1.0, 0.5]
    assert length([""] * 3, ids(6, 7, 8), shortest=7, longest=7) == [0.0, 1.0, 0.0]


def test_a_length_is_counted_in_the_unit_that_was_asked_for():
    turn, tokens = "Two words", ids(4)
    assert length([turn], tokens, shortest=4, longest=4) == [1.0]
    assert length([turn], tokens, shortest=2, longest=2, unit="words") == [1.0]
    assert length([turn], shortest=9, longest=9, unit="characters") == [1.0]


@pytest.mark.parametrize("cache", [20, 1, 0, 100])
def test_overlong_is_that_of_trl(cache):
    theirs = get_soft_overlong_punishment(100, cache)(ids(*range(140)))
    assert overlong([""] * 140, ids(*range(140)), max_completion_length=100, cache=cache) == theirs
    # By default a fifth of the limit, as in DAPO: 4,096 of 20,480.
    assert overlong([""] * 3, ids(16_384, 18_432, 20_480), max_completion_length=20_480) == [0.0, -0.5, -1.0]


def test_cosine_length_is_that_of_trl():
    sizes = [0, 1, 33, 50, 99, 100, 101, 5000] * 2
    turns = [r"\boxed{7}"] * 8 + [r"\boxed{8}"] * 8
    completions = [[{"role": "assistant", "content": turn}] for turn in turns]
    other = {"min_value_correct": 0.2, "max_value_correct": 0.9, "min_value_wrong": -0.8, "max_value_wrong": -0.1}
    for values in ({}, other):
        theirs = get_cosine_scaled_reward(max_len=100, **values)(completions, ["$7$"] * 16, ids(*sizes))
        ours = cosine_length(
            completions, ["7"] * 16, ids(*sizes), max_completion_length=100, grader="numeric", **values
        )
        assert ours == pytest.approx(theirs, abs=1e-12)


def test_cosine_length_follows_the_paper_at_the_limit():
    turns, sizes = ["7", "7", "8", "8"], ids(99, 100, 100, 300)
    scores = cosine_length(turns, ["7"] * 4, sizes, max_completion_length=100, exceed_penalty=-10.0, grader=numeric)
    # 0.5 + 0.25 * (1 + cos(0.99 pi)), where cos(pi - x) = x² / 2 - 1 but for x⁴ / 24
    assert scores[0] == pytest.approx(0.5 + 0.25 * (math.pi / 100) ** 2 / 2, abs=1e-7)
    assert scores[1:] == [-10.0, -10.0, -10.0]


def test_cosine_length_asks_its_grader_with_columns_tags_and_nothing_to_log_with():
    seen = {}

    def grader(completions, **columns):
        seen.update(columns)
        return [1.0, 0.0, None]

    passed_on = {"level": ["a", "b", "c"], "think_tags": ("[r]", "[/r]")}
    settings = {"max_completion_length": 10, "grader": grader, "log_extra": print, "log_metric": print}
    assert cosine_length([""] * 3, ["7"] * 3, ids(0, 0, 0), **settings, **passed_on) == [1.0, -1.0, None]
    assert seen == {"solution": ["7"] * 3, **passed_on}


OPEN, CLOSE, STANDARD = 90, 91, 100
IDS = {"standard_size": STANDARD, "think_open_id": OPEN, "think_close_id": CLOSE}


@pytest.mark.parametrize(
    ("text", "ids", "reasoning_tokens", "tokens"),
    [
        ("<think>abc</think>d", [OPEN, 101, 2, 103, CLOSE, 4], 2, 4),  # the closing tag was chosen while thinking
        ("<think>abc", [OPEN, 101, 2, 103], 2, 3),
        ("<think>abc</think>d", [101, 2, 103, CLOSE, 4], 2, 4),  # the template wrote the opening tag
        ("<think>a</think>b<think>c</think>", [OPEN, 101, CLOSE, 2, OPEN, 103, CLOSE], 2, 4),
        ("<think>a<think>b", [OPEN, 101, OPEN, 102], 2, 3),  # an opening tag within was chosen while thinking
        ("a<think>b", [101, OPEN, 102], 1, 1),  # a reasoning id outside is no matter
        ("<think>", [OPEN, STANDARD - 1, STANDARD], 1, 2),  # the first id after the standard ones
        ("a</think>b", [1, CLOSE, 2], None, 0),
    ],
)
def test_reasoning_tokens_are_counted_among_those_sampled_while_thinking(text, ids, reasoning_tokens, tokens):
    assert reasoning_share([text], [ids], **IDS) == [reasoning_tokens / tokens if tokens else None]


def test_a_target_is_approached_from_both_sides():
    ids = [[OPEN] + [101] * count + [1] * (4 - count) for count in range(5)]
    turns = ["<think>"] * 5
    assert reasoning_share(turns, ids, target=0.5, **IDS) == [0.0, 0.5, 1.0, 0.5, 0.0]
    assert reasoning_share(turns, ids, target=0, **IDS) == [1.0, 0.75, 0.5, 0.25, 0.0]
    assert reasoning_share(["[r]a"], [[101]], think_tags=("[r]", "[/r]"), **IDS) == [1.0]
    assert reasoning_share(turns, ids, target=0.75, **IDS) == pytest.approx([0.0, 1 / 3, 2 / 3, 1.0, 2 / 3])
