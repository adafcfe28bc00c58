"""Scores of turns as models give them, and what `accuracy` asks of its caller."""

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.library.answers import accuracy, verdicts

CASES = [
    (r"<think>6 * 7</think>\boxed{42}", "42", 1.0),
    (r"<think>6 * 7</think>\boxed{41}", "42", 0.0),
    (r"<think>\boxed{42}", "42", 0.0),  # thinking that was never closed
    ("<think>\n6 * 7 = 42. \\boxed{42}", "42", 0.0),
    (r"<think>\boxed{42}</think>I do not know.", "42", 0.0),  # a box in the thinking alone
    (r"<think>x</think>\boxed{41}. No wait, \boxed{42}", "42", 1.0),
    (r"<think>x</think>\boxed{42}. No wait, \boxed{41}", "42", 0.0),
    (r"<think>x</think>\boxed{42}. No wait, \boxed{4", "42", 0.0),  # cut off
    ("<think>x</think>", "42", 0.0),
    ("", "42", 0.0),
    ("The answer is $42$.", "42", 0.0),  # no box
    (r"\boxed{}", "42", 0.0),
    (r"\boxed 42", "42", 1.0),
    (r"\fbox{42}", "42", 1.0),
    (r"\boxed{042}", "42", 1.0),
    (r"\boxed{-3}", "-3", 1.0),
    (r"\boxed{3}", "-3", 0.0),
    (r"\boxed{ 1000 }", "1000", 1.0),
    (r"\boxed{1,000}", "1000", 1.0),
    (r"\boxed{\frac{1}{2}}", "0.5", 1.0),
    (r"\boxed{\frac{1}{2}}", r"$\frac12$", 1.0),
    (r"\boxed{\frac{1}{2}}", r"\boxed{\frac12}", 1.0),
    (r"\boxed{2\pi}", "2", 0.0),
    (r"\boxed{2\pi}", r"2\pi", 1.0),
    (r"\boxed{x+1}", "1+x", 1.0),
    (r"\boxed{72}", 72.0, 1.0),
    (r"\boxed{72.0}", 72, 1.0),
    (r"\boxed{1/2}", 0.5, 1.0),
    (r"\boxed{[1, 2]}", [1, 2], None),
    (r"\boxed{True}", True, None),
    (r"\boxed{1}", {"a": 1}, None),
]


@pytest.mark.parametrize(("turn", "gold", "score"), CASES)
def test_turns_are_scored(turn: str, gold: object, score: float | None) -> None:
    assert accuracy([turn], solution=[gold]) == [score]
    assert accuracy([[{"role": "assistant", "content": turn}]], solution=[gold], prompts=[[]]) == [score]


def test_scores_keep_the_order_of_a_batch() -> None:
    turns, golds, scores = zip(*CASES, strict=True)
    assert accuracy(turns, solution=golds) == list(scores)


def test_gold_answers_may_be_numbers_or_missing() -> None:
    assert accuracy([r"\boxed{42}"] * 5, solution=[42, 42.0, "", None, "$$"]) == [1.0, 1.0, None, None, None]


def test_scores_and_verdicts_say_why() -> None:
    turns, golds = [r"\boxed{\frac24}", r"\boxed{0.6}", "none", r"\boxed{1}"], ["1/2", "1/2", "1/2", ""]
    scores = accuracy.explain(turns, solution=golds)
    assert [score.reason for score in scores] == [
        "equal",
        "different: 3/5 is not 1/2",
        "no answer",
        "unusable gold answer: empty",
    ]
    found = verdicts(turns, golds)
    assert [verdict.answer for verdict in found] == ["1/2", "3/5", None, None]
    assert [score.value for score in scores] == [verdict.score for verdict in found] == [1.0, 0.0, 0.0, None]


def test_tags_may_have_other_names() -> None:
    turn = r"[r]\boxed{41}[/r]\boxed{42}"
    assert accuracy([turn, r"[r]\boxed{42}"], solution=["42", "42"], think_tags=("[r]", "[/r]")) == [1.0, 0.0]


@pytest.mark.parametrize(
    ("sources", "score"),
    [
        ("box", 0.0),
        (("box", "hash"), 0.0),
        (("hash", "box"), 1.0),
        ("hash", 1.0),
        (["answer_tag", "phrase", "hash"], 1.0),
    ],
)
def test_the_answer_is_taken_from_where_the_caller_says(sources: object, score: float) -> None:
    assert accuracy([r"\boxed{41} #### 42"], solution=["42"], answer_from=sources) == [score]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"answer_from": ("box", "boxes")}, "accuracy: answer_from=boxes: no such source; did you mean box?"),
        ({"answer_from": ()}, "accuracy: answer_from is empty"),
        ({"answer_from": 5}, "accuracy: answer_from=5 must be one or more of box, answer_tag, hash, phrase"),
        ({"answer_from": [["box"]]}, "accuracy: answer_from=['box']: no such source"),
        ({"deadline": 0}, "accuracy: deadline=0 must be a number, at least 0.01"),
        ({"deadline": "2"}, "accuracy: deadline='2' must be a number"),
    ],
)
def test_bad_parameters_are_refused_before_anything_is_scored(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(UserError) as raised:
        accuracy([], solution=[], **parameters)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize("mark", ["\ud800", "\x00", "\u202e", "\u200b", "\ufeff"])
def test_strange_characters_are_neither_an_error_nor_overlooked(mark: str) -> None:
    turns = [rf"{mark}\boxed{{42}}{mark}", rf"\boxed{{4{mark}2}}"]
    assert accuracy(turns, solution=["42"] * 2) == [1.0, 0.0]
