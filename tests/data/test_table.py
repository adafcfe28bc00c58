"""Prompts, and the columns that the trainer and the reward functions receive."""

from datetime import datetime
from decimal import Decimal

import pytest

from rlvr_vocab.data.rows import Problem
from rlvr_vocab.data.source import Columns, PromptStyle
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
