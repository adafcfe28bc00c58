"""Numbers as people and models write them, and what only looks like one."""

from fractions import Fraction

import pytest

from rlvr_vocab.rewards.library.answers import Number, last_number, whole_text_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", 42),
        (" -42 ", -42),
        ("+42", 42),
        ("−42", -42),
        ("007", 7),
        ("42.", 42),
        ("4.20", Fraction(21, 5)),
        (".5", Fraction(1, 2)),
        ("1,234", 1234),
        ("1,234,567.5", Fraction(2469135, 2)),
        (r"1{,}234", 1234),
        (r"1\,234\,567", 1234567),
        (r"1,\!234", 1234),
        ("1\u00a0234", 1234),
        ("2^3", 8),
        (r"0.\overline{3}", Fraction(1, 3)),
        ("3/4", Fraction(3, 4)),
        ("-3 / 4", Fraction(-3, 4)),
        ("0.3/0.4", Fraction(3, 4)),
        (r"\frac{3}{4}", Fraction(3, 4)),
        (r"-\dfrac{3}{4}", Fraction(-3, 4)),
        (r"\tfrac{ -3 }{ 4 }", Fraction(-3, 4)),
        (r"\frac34", Fraction(3, 4)),
        ("1e3", 1000),
        ("2.5E-3", Fraction(1, 400)),
        (r"2 \times 10^{3}", 2000),
        (r"2\cdot10^-3", Fraction(1, 500)),
        ("$5", 5),
        ("$5$", 5),
        (r"\$5.50", Fraction(11, 2)),
        ("-$5", -5),
        ("$-5", -5),
        ("€ 5", 5),
        (r"\(5\)", 5),
        (r"\text{5}", 5),
        (r"\mathbf{5}", 5),
        ("x = 5", 5),
        ("5 km", 5),
        ("5 km/h", 5),
        (r"5\text{ cm}^2", 5),
        (r"5\,\mathrm{cm}^{3}", 5),
        (r"45^\circ", 45),
        (r"45^{\circ}", 45),
        (r"45\degree", 45),
        ("45°", 45),
    ],
)
def test_a_text_that_is_a_number_is_read_exactly(text, value):
    assert whole_text_number(text) == Number(Fraction(value), percent=False)


@pytest.mark.parametrize("text", ["50%", r"50\%", r"50 \%", r"$50\%$"])
def test_a_percent_sign_is_kept_apart(text):
    assert whole_text_number(text) == Number(Fraction(50), percent=True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "-",
        "$",
        "1 2",
        "1,2",
        "1,23,456",
        "(1, 2)",
        "41 = 42",
        "5 or 6",
        "5 or six",
        "5 to six",
        r"5\text{ or six}",
        "5x",
        r"3\sqrt{2}",
        r"2\pi",
        "2+3",
        "1/0",
        r"\frac{1}{0}",
        r"\frac{1}{x}",
        "1e99999",
        "9" * 1_001,
        "1e" + "9" * 300,
        "٣",
        "1" + " " * 2000 + "km",
        "\ud800",
        "inf",
        "nan",
    ],
)
def test_anything_else_is_not_read_as_a_number(text):
    assert whole_text_number(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("It costs $1,234.50.", Fraction(2469, 2)),
        ("3 - 4", 4),
        ("3-4=-1", -1),
        ("from 3 to -4", -4),
        ("50 m^2", 50),
        ("50 m^{2}", 50),
        ("x_1 = 7", 7),
        ("7 apples in box2", 7),
        (r"It is \frac{3}{4} of it", Fraction(3, 4)),
        ("**42**", 42),
        ("#### 1,000", 1000),
        ("1,2345", 2345),
        ("9" * 300_000 + " and 5", 5),
    ],
)
def test_the_last_number_of_a_text_is_found(text, value):
    assert last_number(text) == Number(Fraction(value), percent=False)


def test_a_text_without_numbers_has_no_last_one():
    assert last_number("no number at all") is last_number("") is None
    assert last_number("1/0") is None


@pytest.mark.parametrize("code", ["2024-01-05", "7-11", "5–10%", "3:45", "3/4/2021", "1.234.567", "$5-$10", "10.0.0.1"])
def test_the_last_part_of_a_date_a_range_or_a_code_is_no_number(code):
    assert last_number(f"Of 12 it is {code}.") is None
