"""Cells of answer columns become bare final answers, or a reason."""

from datetime import date
from decimal import Decimal

import pytest

from rlvr_vocab.data.answers import UnusableRow, cell_answer, decimal_comma, gold_text, unread_marker


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        (60, "60"),
        (None, ""),
        (float("nan"), ""),
        (True, "true"),
        (["5"], None),
        (72.0, "72"),
        (1e300, "1e+300"),
        (Decimal("72.00"), "72"),
        (Decimal("1E+2"), "100"),
    ],
)
def test_rewards_that_compare_text_take_numbers_by_their_shortest_text(value, answer):
    assert gold_text(value) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("12,5", "12.5"),
        ("9.000", "9000"),
        ("-1.234,56 €", "-1234.56 €"),
        ("31.12.1999", "31.12.1999"),
        ("(1,5; 2{,}5)", "(1.5; 2.5)"),
    ],
)
def test_numbers_with_decimal_commas_are_read_where_that_is_said(text, answer):
    assert cell_answer(text, "bare", "comma") == answer
    assert cell_answer(f"so #### {text}", "hash", "comma") == answer
    assert cell_answer(text, "bare") == text


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        (["7", "12,5", "3,25"], "12,5"),
        (["850", "9.000"], "9.000"),
        (["1,234", "850"], None),
        (["1.250", "0.5"], None),
        (["1,2,3", "(1,2)", "1, 2"], None),
        (["12.5", "1,5"], None),
    ],
)
def test_a_column_of_decimal_commas_is_noticed(column, shown):
    line = decimal_comma(column)
    assert line is None if shown is None else line and line.startswith(f"answers such as {shown}: ")


@pytest.mark.parametrize("value", [60, 72.0, True, ["5", {"a": None}], {"a": [1]}, r"\frac{1}{2}", "1,000", "007"])
def test_bare_cells_are_answers_as_they_are(value):
    answer = cell_answer(f" {value}\n" if isinstance(value, str) else value, "bare")
    assert (answer, type(answer)) == (value, type(value))


@pytest.mark.parametrize(
    ("answer_format", "text", "answer"),
    [
        ("hash", "#### 1 so #### 2", "2"),
        ("hash", "####-1,234,567.25 ", "-1234567.25"),
        ("hash", "#### 12,3456", "12,3456"),
        ("hash", "#### (1,000, 2)", "(1,000, 2)"),
        ("boxed", r"first \boxed{1} then \boxed{ 2 }.", "2"),
        ("boxed", r"\boxed{\frac{a}{b^{2}}} and {more}", r"\frac{a}{b^{2}}"),
        ("boxed", r"\boxed{\left\{ x \right.} }", r"\left\{ x \right."),
        ("boxed", r"done \boxed{7} cut off \boxed{8", "7"),
    ],
)
def test_the_last_marked_answer_counts_without_thousands_separators(answer_format, text, answer):
    assert cell_answer(text, answer_format) == answer


@pytest.mark.parametrize(
    ("value", "answer_format", "reason"),
    [
        (None, "bare", "missing answer"),
        (" \n", "bare", "missing answer"),
        (r"\boxed{ }", "boxed", "missing answer"),
        (True, "hash", "answer is neither text nor a number"),
        (date(2024, 1, 5), "bare", "answer is neither text nor a number"),
        (Decimal("Infinity"), "bare", "answer is neither text nor a number"),
        ("72", "hash", 'no "####" in the answer'),
        (r"\boxed{72", "boxed", r"no complete \boxed{...} in the answer"),
    ],
)
def test_what_is_no_answer_says_why(value, answer_format, reason):
    with pytest.raises(UnusableRow) as caught:
        cell_answer(value, answer_format)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("answers", "likelier"),
    [
        ([r"so \boxed{3}"] * 9 + ["3"], "boxed"),
        ([r"so \boxed{3}"] * 8 + ["3"] * 2, None),
        (["2 + 1 #### 3"] * 10, "hash"),
    ],
)
def test_bare_answers_that_hold_a_marker_nine_times_in_ten_are_noticed(answers, likelier):
    assert unread_marker(answers) == likelier
