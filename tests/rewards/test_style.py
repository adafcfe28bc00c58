"""Penalties for repetition, sameness and forbidden text."""

import itertools
import random

import pytest
from trl.rewards import get_repetition_penalty_reward

from rlvr_vocab.rewards.library import style
from rlvr_vocab.rewards.library.style import debug, diversity, forbidden_text, repetition


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
    assert diversity(["7", "7", "8", ""], ["p"] * 4) == pytest.approx([-1 / 3, -1 / 3, 0.0, 0.0])
    assert diversity(["", " "], ["p"] * 2) == [-1.0, -1.0]


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


@pytest.fixture(autouse=True)
def _first_call(monkeypatch):
    monkeypatch.setattr(style, "_calls", itertools.count())


def test_the_first_completions_are_shown_with_their_columns(capsys):
    columns = {"solution": ["7", "8"], "trainer_state": object(), "completion_ids": [[1, 2], [3]]}
    columns["tools"] = ["search"]  # not one per completion
    turn = [{"role": "assistant", "content": "\x1b[2J\r\u202e\ud800é\x00\n"}]
    assert debug([turn, "two"], prompts=["3 + 4?", "4 + 4?"], **columns) == [1.0, 1.0]
    escaped = "completion: ␛[2J <U+202E><U+D800>é␀"
    shown = f"debug 1 of 2\n  prompt: 3 + 4?\n  {escaped}\n  solution: '7'\n  completion_ids: [1, 2]\n"
    assert capsys.readouterr() == ("", shown)


def test_samples_and_calls_are_chosen(capsys):
    shown = []
    for call in range(5):
        debug([f"{call}a", f"{call}b", f"{call}c"], samples=2, every=3)
        shown += [line.strip() for line in capsys.readouterr().err.splitlines() if "completion:" in line]
    assert shown == ["completion: 0a", "completion: 0b", "completion: 3a", "completion: 3b"]
