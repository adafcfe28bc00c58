"""Where the answer of a turn stands: after the last thinking, in the last box."""

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
def test_the_answer_is_what_follows_the_last_thinking(turn, answer):
    assert after_thinking(turn) == answer


def test_tags_may_have_other_names():
    assert after_thinking("[r]<think>[/r]x", ("[r]", "[/r]")) == "x"


@pytest.mark.parametrize(
    ("text", "box"),
    [
        (r"\boxed{42}", "42"),
        (r"\boxed{41}. No wait, \boxed{42}.", "42"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\boxed{7}}", "7"),
        (r"\boxed{1} then \boxed{2", "1"),
        (r"\boxed{}", ""),
        ("42", None),
        (r"\boxed 42", None),
        (r"\boxed{" * 50, None),
    ],
)
def test_the_last_complete_box_counts(text, box):
    assert last_box(text) == box


def test_completions_are_read_as_text_messages_or_nothing():
    assert turn_text("a") == "a"
    assert turn_text([{"role": "assistant", "content": "a"}, {"role": "tool", "content": "b"}]) == "ab"
    assert turn_text([{"role": "assistant", "content": None}]) == ""
    assert turn_text([{"role": "assistant"}]) == turn_text([]) == ""
