"""What is read of a turn: its text, what follows its last thinking, its tokens or words."""

from typing import Any

import pytest

from rlvr_vocab.rewards.turns import after_thinking, parts, turn_text


@pytest.mark.parametrize(
    ("turn", "answer"),
    [
        ("plain", "plain"),
        ("<think>a</think>b", "b"),
        ("<think>a</think>", ""),
        ("<think>a</think>b<think>c", None),
        ("<think>a</think>b<think>c</think>d", "d"),
        ("a</think>b", "b"),  # opened in the prompt
    ],
)
def test_the_answer_is_what_follows_the_last_thinking(turn: str, answer: str | None) -> None:
    assert after_thinking(turn) == answer
    assert after_thinking("[r]<think>[/r]x", ("[r]", "[/r]")) == "x"


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ([{"role": "assistant", "content": "a"}, {"role": "tool", "content": "b"}], "a"),
        ([{"role": "assistant", "content": "a"}, {"role": "user"}, {"role": "assistant", "content": "b"}], "a\nb"),
        ([{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "image"}, "b"]}], "ab"),
        ([{"role": "assistant", "content": None}], ""),
        (None, ""),
    ],
)
def test_what_the_assistant_says_is_read(completion: Any, text: str) -> None:
    assert turn_text(completion) == text


TURNS: list[Any] = ["One  two\nONE", [{"role": "assistant", "content": None}]]


def test_a_completion_comes_apart_into_tokens_words_or_characters() -> None:
    assert parts("length", TURNS, [[5, 6], []], "tokens") == [[5, 6], []]
    assert parts("length", TURNS, [[5, 6], []], "words") == [["one", "two", "one"], []]
    assert [list(text) for text in parts("length", TURNS, None, "characters")] == [list("One  two\nONE"), []]
