"""Scores of length, repetition, sameness and forbidden text, by hand and against TRL's own functions."""

import itertools
import math
import random

import pytest
from trl.rewards import get_cosine_scaled_reward, get_repetition_penalty_reward, get_soft_overlong_punishment

from rlvr_vocab.rewards.library import style
from rlvr_vocab.rewards.library.answers import numeric
from rlvr_vocab.rewards.library.style import (
    cosine_length,
    debug,
    diversity,
    forbidden_text,
    length,
    overlong,
    reasoning_share,
    repetition,
)


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


def test_forbidden_text_costs_each_time_it_occurs_up_to_a_bound():
    patterns = {"(?i)sure": 0.25, "As an AI": 0.5}
    turns = ["Sure, sure, SURE", "As an AI", "sure. As an AI", "42"]
    assert forbidden_text(turns, patterns=patterns) == [-0.25, -0.5, -0.75, 0.0]
    assert forbidden_text(turns, patterns=patterns, at_most=2) == [-0.5, -0.5, -0.75, 0.0]
    assert forbidden_text(turns, patterns=patterns, at_most=9) == [-0.75, -0.5, -0.75, 0.0]


def test_forbidden_text_is_looked_for_where_that_was_asked():
    turns = ["<think>no</think>yes", "<think>yes</think>no", "no", "<think>no", "</think>no"]
    found = {
        where: [bool(score) for score in forbidden_text(turns, patterns={"no": 1.0}, where=where)]
        for where in ("answer", "thinking", "all")
    }
    assert found == {
        "answer": [False, True, True, False, True],
        "thinking": [True, False, False, True, False],
        "all": [True] * 5,
    }
    assert forbidden_text(["[r]no[/r]yes"], patterns={"no": 1.0}, where="answer", think_tags=("[r]", "[/r]")) == [0.0]


def test_the_first_completions_of_every_batch_that_was_asked_for_are_shown_with_their_columns(capsys, monkeypatch):
    monkeypatch.setattr(style, "_calls", itertools.count())
    columns = {"solution": ["7", "8"], "trainer_state": object(), "completion_ids": [[1, 2], [3]]}
    columns["tools"] = ["search"]  # not one per completion
    turn = [{"role": "assistant", "content": "\x1b[2J\r\u202e\ud800é\x00\n"}]
    assert debug([turn, "two"], prompts=["3 + 4?", "4 + 4?"], **columns) == [1.0, 1.0]
    escaped = "completion: ␛[2J <U+202E><U+D800>é␀"
    shown = f"debug 1 of 2\n  prompt: 3 + 4?\n  {escaped}\n  solution: '7'\n  completion_ids: [1, 2]\n"
    assert capsys.readouterr() == ("", shown)
    shown = []
    for call in range(1, 6):
        debug([f"{call}a", f"{call}b", f"{call}c"], samples=2, every=3)
        shown += [line.strip() for line in capsys.readouterr().err.splitlines() if "completion:" in line]
    assert shown == ["completion: 3a", "completion: 3b"]
