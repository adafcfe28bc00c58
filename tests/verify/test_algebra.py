"""Formulas are equal when their values are, never when they are merely close, and nothing astronomical is computed."""

import time
from fractions import Fraction

import pytest

from rlvr_vocab.verify import algebra
from rlvr_vocab.verify.algebra import Undefined, exact_value
from rlvr_vocab.verify.cleaning import clean
from rlvr_vocab.verify.parser import parse
from rlvr_vocab.verify.scanning import TooLarge, Unreadable

REFUSED = {
    TooLarge: (
        "9^{9^{9^9}}", "x+10^{999999999}", "(10^9)!", r"\binom{1000000000}{500000000}", r"\sin(10^{40})", "2^{2^{20}}",
        r"\pi^{\pi^{\pi^\pi}}", "|x-10^{15}|", r"\sqrt{2}+10^{-9000}",
    ),
    Unreadable: (r"\sqrt[x]{2}", r"\frac{3}{4}!+\pi"),
    Undefined: (
        r"\frac{1}{\sqrt{2}-\sqrt{2}}", r"\frac{1}{\sqrt{6}-\sqrt{2}\sqrt{3}}", r"\ln(1-1)", "1/(1-1)",
        "(1-1)^0", r"(\pi-\pi)^0", "(-8)^{1/3}",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "error"), [(text, error) for error, texts in REFUSED.items() for text in texts])
def test_what_cannot_be_evaluated_is_refused_before_it_costs_anything(text, error):
    started = time.process_time()
    with pytest.raises(error):
        algebra.equal(clean(text), clean(text + "+0"))
    assert time.process_time() - started < 0.5


def test_a_rounding_is_less_than_a_unit_of_its_last_digit_away():
    assert algebra.within(r"\sqrt{2}", "1.41", Fraction(1, 100))
    assert not algebra.within(r"\sqrt{2}", "1.43", Fraction(1, 100))
    assert not algebra.within("12", "13", Fraction(1))
    assert not algebra.within("x", "1", Fraction(1))


def test_rational_functions_are_computed_exactly():
    point = {"x": Fraction(2, 3)}
    assert exact_value(parse(clean(r"\frac{x^2-1}{x+1}-5")), point) == Fraction(-16, 3)
    assert exact_value(parse(clean(r"\sqrt{x}+|x|")), point) is None
    assert exact_value(parse("y"), point) is None


@pytest.mark.parametrize(
    "latex", ["f'(x)", "f(2 3)", "f(1/2x)", r"f(x)\dots", "x2", "f(37_{8})", r"\foo", "12.5.0", r"7\mod 3"]
)
def test_where_their_parser_would_guess_it_is_not_asked(latex):
    with pytest.raises(Unreadable):
        algebra.same_tree(latex, latex)


def test_a_number_is_never_compared_with_a_sum_that_nobody_computes():
    with pytest.raises(Unreadable):
        algebra.equal("3", r"\sum_{k=1}^{2}k")
