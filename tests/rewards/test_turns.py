"""Where the answer of a turn stands: after the last thinking, in the last box."""

from typing import Any

import pytest

from rlvr_vocab.rewards.turns import after_thinking, last_box, turn_text


@pytest.mark.parametrize(
    ("turn", "answer"),
    [
        ("plain", "plain"),
        ("", ""),
        ("<think>a</think>b", "b"),
        ("<think>a</think>", ""),
        ("<think>a", None),
        ("<think>a</think>b<think>c", None),
        ("<think>a</think>b<think>c</think>d", "d"),
        ("a</think>b", "b"),  # opened in the prompt
        ("<think></think>\n\nb", "\n\nb"),
        ("<think><think>a</think>b", "b"),
    ],
)
def test_the_answer_is_what_follows_the_last_thinking(turn: str, answer: str | None) -> None:
    assert after_thinking(turn) == answer


def test_tags_may_have_other_names() -> None:
    assert after_thinking("[r]<think>[/r]x", ("[r]", "[/r]")) == "x"


@pytest.mark.parametrize(
    ("text", "box"),
    [
        (r"\boxed{42}", "42"),
        (r"\boxed{41}. No wait, \boxed{42}.", "42"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\boxed{7}}", "7"),
        (r"\boxed{\{1\}}", r"\{1\}"),
        (r"\boxed{1 \\ 2}", r"1 \\ 2"),
        (r"\boxed {42}", "42"),
        (r"\fbox{42}", "42"),
        (r"\boxed{}", ""),
        (r"\boxed 42.", "42"),
        (r"\boxed -3/4", "-3/4"),
        (r"\boxed C", "C"),
        (r"\boxed", None),
        ("42", None),
        (r"\boxedness{42}", None),
        (r"\boxed{1} then \boxed{2", None),  # what was cut off takes the first back
        (r"\boxed{1\}", None),
        (r"\boxed{" * 50, None),
    ],
)
def test_the_last_box_counts_and_only_if_it_is_closed(text: str, box: str | None) -> None:
    assert last_box(text) == box


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ("a", "a"),
        ([{"role": "assistant", "content": "a"}], "a"),
        ([{"content": "a"}], "a"),
        ([{"role": "assistant", "content": "a"}, {"role": "tool", "content": "b"}], "a"),
        ([{"role": "assistant", "content": "a"}, {"role": "user"}, {"role": "assistant", "content": "b"}], "a\nb"),
        ([{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "image"}, "b"]}], "ab"),
        ([{"role": "assistant", "content": None}], ""),
        ([{"role": "assistant"}], ""),
        ([], ""),
        (None, ""),
    ],
)
def test_what_the_assistant_says_is_read(completion: Any, text: str) -> None:
    assert turn_text(completion) == text
