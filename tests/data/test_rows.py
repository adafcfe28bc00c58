"""Every row becomes a problem or a dropped row with a reason."""

from typing import Any

import pytest

from rlvr_vocab.data.rows import Problem, require_columns, short_text, usable_rows
from rlvr_vocab.data.source import Columns
from rlvr_vocab.errors import UserError

COLUMNS = Columns("question", "answer")


@pytest.mark.parametrize(
    ("row", "reason", "shown"),
    [
        ([1, 2], "row is not an object", "[1, 2]"),
        (None, "row is not an object", "None"),
        ({"answer": "1"}, "empty problem", "{'answer': '1'}"),
        ({"question": " \n", "answer": "1"}, "empty problem", "{'question': ' \\n', 'answer': '1'}"),
        ({"question": float("nan"), "answer": "1"}, "empty problem", "{'question': nan, 'answer': '1'}"),
        ({"question": ["a"], "answer": "1"}, "problem is neither text nor a number", "['a']"),
        ({"question": "What is x?", "answer": None}, "missing answer", "What is x?"),
        ({"question": "What is x?", "answer": float("nan")}, "missing answer", "What is x?"),
        ({"question": "What is x?"}, "missing answer", "What is x?"),
        (
            {"question": "What is x?", "answer": {"a": 1}},
            "answer is an object (a), not text: map a column that holds the answer alone",
            "{'a': 1}",
        ),
        (
            {"question": [{"role": "user", "content": "x?"}], "answer": "1"},
            "problem is a list of messages, not text: map a column that holds the problem alone",
            "[{'role': 'user', 'content': 'x?'}]",
        ),
    ],
)
def test_an_unusable_row_is_dropped_with_its_number_reason_and_a_text_that_shows_it(
    row: Any, reason: str, shown: str
) -> None:
    good = {"question": "q", "answer": "1"}
    found = usable_rows([good, row, good], COLUMNS, "bare")
    assert [(drop.row_number, drop.reason, drop.shown) for drop in found.dropped] == [(2, reason, shown)]
    assert [problem.row_number for problem in found.problems] == [1, 3]


def test_a_problem_that_is_a_number_becomes_text() -> None:
    [problem] = usable_rows([{"question": 17.0, "answer": 4}], COLUMNS, "bare").problems
    assert (problem.text, problem.solution) == ("17", "4")


def test_half_a_surrogate_pair_is_replaced_everywhere_and_counted_once_per_row() -> None:
    broken = {"question": "a\ud800", "answer": "\udc00b", "more": [{"\ud83d": "\ud83d"}], "n": 1}
    whole = {"question": "😀", "answer": "1"}
    found = usable_rows([broken, whole], COLUMNS, "bare")
    assert found.repaired == 1
    assert found.problems[0] == Problem(
        "a\ufffd",
        "\ufffdb",
        {"question": "a\ufffd", "answer": "\ufffdb", "more": [{"\ufffd": "\ufffd"}], "n": 1},
        1,
    )
    assert found.problems[1].text == "😀"


def test_problems_in_another_writing_are_the_same_one() -> None:
    assert Problem("What  is\n$x$ ", "1", {}, 1).key == Problem("3. what is x?", "2", {}, 2).key
    assert Problem("What is x?", "1", {}, 1).key != Problem("What is y?", "1", {}, 2).key


def test_a_missing_column_names_the_columns_and_the_nearest_unmapped_one() -> None:
    with pytest.raises(UserError) as caught:
        require_columns(Columns("problem", "answer"), ["problem_text", "answer"], "p.csv")
    assert str(caught.value) == (
        'p.csv has no column "problem"; its columns are problem_text, answer; nearest to it is "problem_text"; '
        "name the column of its problems with dataset.columns.problem=…"
    )


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (Columns("problem", "expert_answer"), "the column of its problems with dataset.columns.problem=…"),
        (Columns("question", "gold"), "the column of its answers with dataset.columns.answer=…"),
        (
            Columns("question", "expert_answer", "q"),
            "the column of its worked solutions with dataset.columns.reasoning=…",
        ),
    ],
)
def test_no_column_is_guessed_where_none_has_a_similar_name_and_the_key_is_named(columns: Columns, said: str) -> None:
    with pytest.raises(UserError) as caught:
        require_columns(columns, ["question", "expert_answer"], "p.csv")
    assert str(caught.value).endswith(f"; its columns are question, expert_answer; name {said}")


def test_the_nearest_column_is_found_whatever_its_case() -> None:
    with pytest.raises(UserError, match='nearest to it is "ANSWER"'):
        require_columns(COLUMNS, ["question", "source", "ANSWER"], "p.csv")


def test_a_mapped_reasoning_column_must_be_there_too() -> None:
    with pytest.raises(UserError, match='no column "steps"'):
        require_columns(Columns("question", "answer", "steps"), ["question", "answer"], "p.csv")


def test_the_columns_of_all_rows_are_named_in_the_order_of_their_first_occurrence() -> None:
    rows = [{"question": "q", "answer": "1"}, 5, {"level": 3, "answer": "2"}]
    assert usable_rows(rows, COLUMNS, "bare").columns == ("question", "answer", "level")


def test_a_short_text_holds_nothing_that_a_terminal_would_obey() -> None:
    assert short_text("red \x1b[31m\u202edna") == "red ␛[31m<U+202E>dna"


def test_a_short_text_is_one_line_of_limited_length() -> None:
    assert short_text("a\n b" + "c" * 100, limit=10) == "a bcccccc…"
    assert short_text("abcdefghij", limit=10) == "abcdefghij"
