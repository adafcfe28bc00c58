"""Every row becomes a problem or a dropped row with a reason."""

import pytest

from rlvr_vocab.data.rows import usable_rows
from rlvr_vocab.data.source import Columns, ProblemSource

COLUMNS = Columns("question", "answer")


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
