"""The share of reasoning tokens in the thinking, from ids."""

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.library.lengths import reasoning_share

OPEN, CLOSE, STANDARD = 90, 91, 100
IDS = {"standard_size": STANDARD, "think_open_id": OPEN, "think_close_id": CLOSE}


@pytest.mark.parametrize(
    ("text", "ids", "reasoning_tokens", "tokens"),
    [
        ("<think>abc</think>d", [OPEN, 101, 2, 103, CLOSE, 4], 2, 4),  # the closing tag was chosen while thinking
        ("<think>a</think>bc", [OPEN, 101, CLOSE, 2, 3], 1, 2),
        ("<think>abc", [OPEN, 101, 2, 103], 2, 3),
        ("<think>abc</think>d", [101, 2, 103, CLOSE, 4], 2, 4),  # the template wrote the opening tag
        ("<think></think>d", [CLOSE, 4], 0, 1),
        ("<think>a</think>b<think>c</think>", [OPEN, 101, CLOSE, 2, OPEN, 103, CLOSE], 2, 4),
        ("<think>a</think>b<think>c</think>", [101, CLOSE, 2, OPEN, 103, CLOSE], 2, 4),
        ("<think>a<think>b", [OPEN, 101, OPEN, 102], 2, 3),  # an opening tag within was chosen while thinking
        ("a<think>b", [101, OPEN, 102], 1, 1),  # a reasoning id outside is no matter
        ("<think>", [OPEN], None, 0),
        ("<think>", [], None, 0),
        ("a", [1], None, 0),
        ("a</think>b", [1, CLOSE, 2], None, 0),
        ("", [], None, 0),
    ],
)
def test_reasoning_tokens_are_counted_among_those_sampled_while_thinking(text, ids, reasoning_tokens, tokens):
    [score] = reasoning_share.explain([text], [ids], **IDS)
    assert score.value == (reasoning_tokens / tokens if tokens else None)
    assert score.reason == (f"{reasoning_tokens} of {tokens} thinking tokens" if tokens else "no thinking")


def test_the_first_id_after_the_standard_ones_is_a_reasoning_token():
    assert reasoning_share(["<think>"] * 2, [[OPEN, STANDARD - 1], [OPEN, STANDARD]], **IDS) == [0.0, 1.0]


def test_a_target_is_approached_from_both_sides():
    ids = [[OPEN] + [101] * count + [1] * (4 - count) for count in range(5)]
    turns = ["<think>"] * 5
    assert reasoning_share(turns, ids, target=0.5, **IDS) == [0.0, 0.5, 1.0, 0.5, 0.0]
    assert reasoning_share(turns, ids, target=0, **IDS) == [1.0, 0.75, 0.5, 0.25, 0.0]
    assert reasoning_share(turns, ids, target=0.75, **IDS) == pytest.approx([0.0, 1 / 3, 2 / 3, 1.0, 2 / 3])


def test_thinking_that_the_template_opened_is_told_by_the_tags_of_the_run():
    assert reasoning_share(["[r]a"], [[101]], think_tags=("[r]", "[/r]"), **IDS) == [1.0]
    assert reasoning_share(["[r]a"], [[101]], **IDS) == [None]


@pytest.mark.parametrize("missing", ["standard_size", "think_open_id", "think_close_id", "completion_ids"])
def test_what_is_missing_is_named(missing):
    given = {**IDS, "completion_ids": []}
    del given[missing]
    with pytest.raises(UserError, match=f"^reasoning_share: {missing} is missing"):
        reasoning_share([], **given)


@pytest.mark.parametrize("wrong", [{"target": 1.5}, {"target": ["a"]}, {"think_open_id": "<think>"}])
def test_what_cannot_be_is_refused(wrong):
    [name] = wrong
    with pytest.raises(UserError, match=f"^reasoning_share: {name}="):
        reasoning_share([], [], **{**IDS, **wrong})
