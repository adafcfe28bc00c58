"""Every row becomes a problem or a dropped row with a reason; problems become prompts and columns for rewards."""

from datetime import datetime
from decimal import Decimal

import pytest

from rlvr_vocab.data.rows import Problem, usable_rows
from rlvr_vocab.data.source import Columns, ProblemSource, PromptStyle
from rlvr_vocab.data.table import handed_on_names, problem_table

STYLE = PromptStyle(None)
COLUMNS = Columns("question", "answer")


def column(values):
    """One original column as it is handed on, row by row and all at once."""
    problems = [Problem("p", "1", {"extra": value}, 1) for value in values]
    rows = problem_table(problems, STYLE, COLUMNS)
    handed_on = [row["extra"] for row in rows]
    assert repr(handed_on) == repr(rows["extra"][:]) == repr(rows.select(range(len(values)))[:]["extra"])
    return handed_on


def test_rows_hold_the_prompt_the_answer_twice_and_the_original_columns():
    problem = Problem("1+1=", "2", {"question": "1+1=", "answer": "#### 2", "level": 3, "solution": "one"}, 1)
    style = PromptStyle("Hi.", examples=(("2+2=", "4"),))
    [row] = problem_table([problem], style, Columns("question", "answer", "solution"))
    assert [(message["role"], message["content"]) for message in row.pop("prompt")] == [
        ("system", "Hi."), ("user", "2+2="), ("assistant", "4"), ("user", "1+1=")
    ]  # fmt: skip
    assert row == {
        "problem": "1+1=",
        "reasoning": "one",
        "raw_solution": "one",
        "solution": "2",
        "answer": "2",
        "question": "1+1=",
        "raw_answer": "#### 2",
        "level": 3,
    }


@pytest.mark.parametrize(
    ("names", "reasoning", "handed_on"),
    [
        (["prompt", "tools", "x"], None, ["raw_prompt", "raw_tools", "x"]),
        (["question", "problem", "solution"], None, ["question", "raw_problem", "raw_solution"]),
        (["answer", "raw_answer"], None, ["raw_raw_answer", "raw_answer"]),
        (["question", "steps", "reasoning"], "steps", ["question", "steps", "raw_reasoning"]),
    ],
)
def test_original_columns_keep_their_names_unless_taken(names, reasoning, handed_on):
    assert handed_on_names(names, Columns("question", "answer", reasoning)) == dict(zip(names, handed_on, strict=True))


@pytest.mark.parametrize(
    "values",
    [
        [60, "1/2", None, 72.0, "42", "null"],
        [1, 2.5],
        [2**70, 1],
        [{"a": 1}, {"b": "é"}, {"a": [{"c": None}, {"d": 0.1234}]}, None],
        [float("nan"), 1, "x"],
        [datetime(2024, 1, 5), None],
        [Decimal("1.50"), None],
    ],
)
def test_original_values_are_handed_on_as_they_were_read(values):
    assert repr(column(values)) == repr(values)


@pytest.mark.parametrize(
    ("row", "reason", "shown"),
    [
        ([1, 2], "row is not an object", "[1, 2]"),
        ({"question": " \n", "answer": "1"}, "empty problem", "{'question': ' \\n', 'answer': '1'}"),
        ({"question": float("nan"), "answer": "1"}, "empty problem", "{'question': nan, 'answer': '1'}"),
        ({"question": {"a": 1}, "answer": "1"}, "problem is neither text, a number nor a list of messages", "{'a': 1}"),
        (
            {"question": "a", "answer": "1", "more": [{"\ud83d": "b"}]},
            "text holds half a surrogate pair, which UTF-8 cannot write",
            "{'question': 'a', 'answer': '1', 'more': [{'\\ud83d': 'b'}]}",
        ),
        ({"question": "What is x?", "answer": None}, "missing answer", "What is x?"),
    ],
)
def test_an_unusable_row_is_dropped_with_its_number_reason_and_a_text_that_shows_it(row, reason, shown):
    good = {"question": "q", "answer": "1"}
    found = usable_rows([good, row, good], ProblemSource("p", COLUMNS))
    assert [(drop.row_number, drop.reason, drop.shown) for drop in found.dropped] == [(2, reason, shown)]
    assert [problem.row_number for problem in found.problems] == [1, 3]


def test_a_problem_that_is_a_number_becomes_text():
    [problem] = usable_rows([{"question": 17.0, "answer": 4.0}], ProblemSource("p", COLUMNS)).problems
    assert (problem.text, problem.solution) == ("17", 4.0)
