"""Numbers are read exactly; what only looks like one, or is beyond all size, is not read as one."""

from fractions import Fraction

import pytest

from rlvr_vocab.verify.reading.cleaning import clean
from rlvr_vocab.verify.reading.numbers import power_of, read_number
from rlvr_vocab.verify.reading.scanning import TooLarge, Unreadable


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", 42),
        ("-42", -42),
        ("042", 42),
        ("42.", 42),
        (".5", Fraction(1, 2)),
        ("3.140", Fraction(157, 50)),
        ("1 234 567", 1_234_567),
        ("1,234.5", Fraction(2469, 2)),
        (r"\frac{-3}{4}", Fraction(-3, 4)),
        (r"-\frac{3}{-4}", Fraction(3, 4)),
        (r"-2\frac{1}{3}", Fraction(-7, 3)),
        ("1 1/2", Fraction(3, 2)),
        ("11/2", Fraction(11, 2)),
        ("(3)/(4)", Fraction(3, 4)),
        (r"3.2\times10^{-3}", Fraction(4, 1250)),
        ("3.2 x 10^3", 3200),
        ("1.5e-3", Fraction(3, 2000)),
        ("2e-05", Fraction(1, 50_000)),
        ("2^{10}", 1024),
        ("-2^2", -4),
        ("(-2)^2", 4),
        ("2^{-2}", Fraction(1, 4)),
        ("5!", 120),
        ("0.333...", Fraction(1, 3)),
        (r"0.\overline{3}", Fraction(1, 3)),
        (r"0.1\overline{6}", Fraction(1, 6)),
        ("0.(142857)", Fraction(1, 7)),
        (r"0.\dot{1}4\dot{2}", Fraction(142, 999)),
        (r"2.4545\ldots", Fraction(27, 11)),
    ],
)
def test_numbers_have_exact_values(text: str, value: Fraction | int) -> None:
    assert read_number(clean(text)) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1 2",
        "1.2.3",
        "1,23",
        "1/2/3",
        r"\frac{1}{0}",
        r"1\frac{3}{2}",
        r"\frac{1}{2}x",
        r"3.14\ldots",
        r"\overline{0.3}",
        r"0.\overline{3}1",
        "0^{0}",
        "2^x",
        "5!!",
        "nan",
        "\u0664\u0661",
    ],
)
def test_everything_else_is_no_number(text: str) -> None:
    assert read_number(clean(text)) is None


def test_a_zero_with_a_sign_is_refused() -> None:
    with pytest.raises(Unreadable):
        read_number("-0")


@pytest.mark.parametrize("text", ["9" * 1_001, "0." + "1" * 1_001, r"0.\overline{" + "12" * 501 + "}"])
def test_more_than_a_thousand_digits_are_too_many(text: str) -> None:
    with pytest.raises(TooLarge):
        read_number(text)


@pytest.mark.parametrize("text", ["10^{999999999}", "1e-999999999", "9^{99999}", "7^{" + "7" * 500 + "}"])
def test_powers_beyond_all_size_are_not_computed(text: str) -> None:
    assert read_number(text) is None


def test_powers_up_to_the_limit_are_computed() -> None:
    assert power_of(Fraction(2), 20_000) == 1 << 20_000
    assert power_of(Fraction(2), 60_000) is None
    assert power_of(Fraction(-1), 999_999_999) == -1
    assert power_of(Fraction(0), 0) is None
