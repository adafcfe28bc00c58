"""Choices in all forms that files give them are shown with letters, and an answer becomes a letter or is refused."""

import pytest

from rlvr_vocab.data.rows import usable_rows
from rlvr_vocab.data.source import Columns, ProblemSource
from rlvr_vocab.errors import UserError

TEXTS = ["oxygen", "helium", "neon"]
SHOWN = "Which?\nA. oxygen\nB. helium\nC. neon"


def read(rows, choices="choices", **more):
    return usable_rows(rows, ProblemSource("p.jsonl", Columns("question", "answer", choices=choices), **more))


def asked(choices, answer):
    return {"question": "Which?", "choices": choices, "answer": answer}


@pytest.mark.parametrize(
    ("choices", "answer"),
    [
        (TEXTS, "B"),
        (TEXTS, "(b)"),
        (TEXTS, "helium"),
        (["A)oxygen", "B)helium", "C)neon"], "B"),
        (["(A) oxygen", "(B) helium", "(C) neon"], "helium"),
        ("a ) oxygen , b ) helium , c ) neon", "b"),
        ("A) oxygen B) helium C) neon", "B"),
        (str(TEXTS), "B"),
        ('["oxygen", "helium", "neon"]', "helium"),
        ({"A": "oxygen", "B": "helium", "C": "neon"}, "B"),
        ({"text": TEXTS, "label": ["A", "B", "C"]}, "B"),
        ({"text": TEXTS, "label": ["1", "2", "3"]}, 2),
        ([{"label": label, "text": text} for label, text in zip("ABC", TEXTS, strict=True)], "B"),
    ],
)
def test_a_question_shows_its_choices_and_an_answer_is_the_letter_of_one(choices, answer):
    [problem] = read([asked(choices, answer)]).problems
    assert (problem.text, problem.solution) == (SHOWN, "B")


def test_columns_with_a_choice_each_may_end_early_and_follow_a_conversation():
    messages = [{"role": "system", "content": "Brief."}, {"role": "user", "content": "Which?"}]
    row = {"question": messages, "a": "oxygen", "b": "helium", "c": "neon", "d": "", "answer": "C"}
    found = read([row, {**row, "b": None}], ("a", "b", "c", "d"))
    assert [(each.messages[-1]["content"], each.solution) for each in found.problems if each.messages] == [(SHOWN, "C")]
    assert [each.reason for each in found.dropped] == ["choices are no list of 2 to 26 texts"]


@pytest.mark.parametrize(
    ("answers", "letters"),
    [([0, 1], "AB"), ([3, 1], "CA"), ([1.0, 0.0], "BA"), (["0", "2"], "AC"), (["neon", "oxygen"], "CA")],
)
def test_the_answers_of_all_rows_tell_where_indices_begin(answers, letters):
    found = read([asked(TEXTS, answer) for answer in answers])
    assert "".join(each.solution for each in found.problems) == letters


@pytest.mark.parametrize(
    ("answers", "choices", "said"),
    [
        (
            [1, 2],
            TEXTS,
            r"may be index_from_0 or index_from_1: set dataset\.answer_format=index_from_0 or dataset\.answer",
        ),
        (["1", "2"], ["2", "1", "3"], r"may be text or index_from_0 or index_from_1: set"),
        (["A", "helium"], TEXTS, r'such as "A" for .*, are of several kinds, or of none'),
        ([0, 3], TEXTS, r"are of several kinds, or of none: set dataset\.answer_format=letter or"),
    ],
)
def test_answers_that_can_be_read_in_two_ways_are_never_guessed(answers, choices, said):
    with pytest.raises(UserError, match=said):
        read([asked(choices, answer) for answer in answers])


def test_a_format_that_is_given_leaves_other_rows_out_with_their_numbers():
    found = read([asked(TEXTS, answer) for answer in (1, 3, 0)], answer_format="index_from_1")
    assert [each.solution for each in found.problems] == ["A", "C"]
    assert [(each.row_number, each.reason) for each in found.dropped] == [(3, "answer names none of the choices")]
    with pytest.raises(UserError, match="index_from_1 is for answers to choices"):
        read([], None, answer_format="index_from_1")


def test_a_right_choice_that_stands_twice_leaves_its_row_out_and_a_wrong_one_does_not():
    found = read([asked(["4", "5", "4"], letter) for letter in "AB"])
    assert [each.solution for each in found.problems] == ["B"]
    assert [(each.row_number, each.reason) for each in found.dropped] == [(1, "the right choice stands twice")]


def test_a_right_choice_in_a_column_of_its_own_stands_in_an_order_that_its_row_decides():
    rows = [{"question": f"{n}?", "right": "x", "wrong": ["w", f"{n}", "v"], "answer": "no"} for n in range(400)]
    source = ProblemSource("p.jsonl", Columns("question", "right", choices=("right", "wrong")))
    found = usable_rows(rows, source).problems
    again = usable_rows(rows[::-1], ProblemSource("p.jsonl", Columns("question", "right", choices=("wrong", "right"))))
    assert [each.text for each in found] == [each.text for each in again.problems][::-1]
    assert all(f"\n{each.solution}. x" in each.text for each in found)
    letters = [each.solution for each in found]
    assert all(75 < letters.count(letter) < 125 for letter in "ABCD")
