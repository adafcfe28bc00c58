"""Scores of length, repetition and sameness, by hand and against TRL's own functions."""

import math
import random

import pytest
from trl.rewards import get_cosine_scaled_reward, get_repetition_penalty_reward, get_soft_overlong_punishment

from rlvr_vocab.rewards.library.style import cosine_length, diversity, length, overlong, repetition


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
    # four tokens, two words, nine characters
    for size, unit in ((4, "tokens"), (2, "words"), (9, "characters")):
        assert length(["Two words"], ids(4), shortest=size, longest=size, unit=unit) == [1.0]


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
    scores = cosine_length(turns, ["7"] * 4, sizes, max_completion_length=100, exceed_penalty=-10.0, grader="numeric")
    # 0.5 + 0.25 * (1 + cos(0.99 pi)), where cos(pi - x) = x² / 2 - 1 but for x⁴ / 24
    assert scores[0] == pytest.approx(0.5 + 0.25 * (math.pi / 100) ** 2 / 2, abs=1e-7)
    assert scores[1:] == [-10.0, -10.0, -10.0]


def test_cosine_length_asks_its_grader_with_the_tags_of_the_run():
    turns, settings = ["[r]x[/r]Paris", "<think>x</think>Paris", "Paris"], {"max_completion_length": 10}
    scores = cosine_length(
        turns, ["Paris", "Paris", None], ids(0, 0, 0), grader="exact_match", think_tags=("[r]", "[/r]"), **settings
    )
    assert scores == [1.0, -1.0, None]


def test_repetition_over_tokens_is_that_of_trl():
    dice = random.Random(0)
    ids = [[dice.randrange(sides) for _ in range(dice.randrange(40))] for sides in (1, 2, 3, 9) for _ in range(25)]
    for size, penalty in ((1, -1.0), (2, -0.5), (3, -1.0), (5, -2.0)):
        theirs = get_repetition_penalty_reward(size, penalty)(ids)
        ours = repetition([""] * 100, ids, ngram_size=size, max_penalty=penalty)
        assert ours == pytest.approx(theirs, abs=1e-12)
        assert len(set(theirs)) > 20


def test_copies_of_a_token_hide_repetition_from_ids_and_not_from_words():
    turn, alternating = "no " * 8, [[1, 2, 1, 1, 2, 2, 2, 1]]
    assert repetition([turn], alternating, ngram_size=3) == [0.0]
    assert repetition([turn], alternating, ngram_size=3, unit="words") == [pytest.approx(-5 / 6)]
    # Of 6 trigrams "a b c" stands twice more.
    assert repetition(["a b c A B C a b", "a b", "", "a b c"], unit="words") == [-0.5, 0.0, 0.0, 0.0]


def test_near_duplicates_are_counted_within_the_group_of_a_prompt():
    texts = ["a b c d", "a b c d", "x y z", "A  b\nc d"]
    assert diversity(texts, prompts=["p"] * 4) == pytest.approx([-2 / 3, -2 / 3, 0.0, -2 / 3])
    assert diversity(texts, prompts=["p", "p", "q", "q"]) == [-1.0, -1.0, 0.0, 0.0]
    assert diversity(texts, prompts=["p", "q", "p", "q"]) == [0.0, 0.0, 0.0, 0.0]  # side by side
    chats = [[{"role": "user", "content": "p"}]] * 2 + [[{"role": "user", "content": "q"}]] * 2
    assert diversity(texts, prompts=chats, penalty=0.5) == [-0.5, -0.5, 0.0, 0.0]
    assert diversity(["7", "7", "", " "], ["p"] * 4) == pytest.approx([-1 / 3] * 4)


def test_texts_are_near_duplicates_from_the_threshold_on():
    # 12 words make 10 shingles; with one word more there are 11, of which 10 are shared: 10 / 11 = 0.909…
    first = " ".join("abcdefghijkl")
    # with the last word exchanged 9 of 11 are shared: 0.818…
    other = first[:-1] + "z"
    assert diversity([first, first + " m"], ["p"] * 2) == [-1.0, -1.0]
    assert diversity([first, first + " m"], ["p"] * 2, threshold=0.91) == [0.0, 0.0]
    assert diversity([first, other], ["p"] * 2) == [0.0, 0.0]
    assert diversity([first, other], ["p"] * 2, threshold=9 / 11) == [-1.0, -1.0]
    assert diversity([first, first], ["p"] * 2, threshold=1) == [-1.0, -1.0]
