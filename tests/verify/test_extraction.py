"""Where a turn states its answer: in its last box, or where the caller allows it to stand."""

import pytest

from rlvr_vocab.verify import final_answer


@pytest.mark.parametrize(
    ("source", "text", "answer"),
    [
        ("box", r"\boxed{41}, no: \boxed{42}.", "42"),
        ("box", r"\boxed{42} and \boxed{4", None),
        ("box", "42", None),
        ("answer_tag", "<answer> 42 </answer>", "42"),
        ("answer_tag", r"<answer>So \boxed{42}.</answer>", "42"),
        ("answer_tag", "<answer>41</answer><answer>42</answer>", "42"),
        ("answer_tag", "<answer>41</answer><answer>42", None),
        ("answer_tag", "42</answer>", None),
        ("hash", "6 * 7 = 42\n#### 42\nBye.", "42"),
        ("hash", "#### 41\n#### 42", "42"),
        ("hash", "42", None),
        ("phrase", "The answer is 42. Bye.", "42"),
        ("phrase", "So the final answer is: $3.5$.", "$3.5$"),
        ("phrase", "**Answer:** 42", "42"),
        ("phrase", "The answer is 41. No: the answer to the problem is\n42", "42"),
        ("phrase", "I answered 42", None),
    ],
)
def test_each_source_holds_the_last_answer(source: str, text: str, answer: str | None) -> None:
    assert final_answer(text, [source]) == answer


def test_the_first_source_that_holds_an_answer_decides() -> None:
    text = r"\boxed{41} #### 42"
    assert final_answer(text, ["box", "hash"]) == "41"
    assert final_answer(text, ["hash", "box"]) == "42"
    assert final_answer("The answer is 43.", ["box", "hash", "phrase"]) == "43"
    assert final_answer("43", ["box", "hash", "phrase"]) is None
