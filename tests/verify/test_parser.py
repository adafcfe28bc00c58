"""Formulas are read as every careful reader reads them, or not at all."""

from fractions import Fraction

import pytest

from rlvr_vocab.verify.reading.cleaning import clean
from rlvr_vocab.verify.reading.parser import Call, Exact, Formula, Symbol, parse, variables
from rlvr_vocab.verify.reading.scanning import TooLarge, Unreadable

X, Y, TWO = Symbol("x"), Symbol("y"), Exact(Fraction(2))


def call(name: str, *arguments: Formula) -> Call:
    return Call(name, arguments)


@pytest.mark.parametrize(
    ("text", "formula"),
    [
        ("2x", call("*", TWO, X)),
        ("-x^2", call("neg", call("^", X, TWO))),
        ("x-y", call("+", X, call("neg", Y))),
        (r"\frac{x}{2}", call("*", X, call("inverse", TWO))),
        (r"\sqrt[3]{x}", call("root", X, Exact(Fraction(3)))),
        (r"\sin 2x\cos y", call("*", call("sin", call("*", TWO, X)), call("cos", Y))),
        (r"\sin^2 x", call("^", call("sin", X), TWO)),
        (r"\tan^{-1} x", call("arctan", X)),
        (r"\ln x^2", call("ln", call("^", X, TWO))),
        (r"\log_2 x", call("log", X, TWO)),
        (r"\exp(x)", call("^", Symbol("e"), X)),
        ("|x||y|", call("*", call("abs", X), call("abs", Y))),
        ("||x|-2|", call("abs", call("+", call("abs", X), call("neg", TWO)))),
        (r"\lfloor x \rfloor!", call("factorial", call("floor", X))),
        ("x_1'", Symbol("x_{1}'")),
        (r"\vec{v}", Symbol(r"\vec v")),
    ],
)
def test_formulas_are_read(text: str, formula: Formula) -> None:
    assert parse(clean(text)) == formula


@pytest.mark.parametrize(
    "text",
    [
        "1/2x",
        "x/2/3",
        "x2",
        r"\sqrt{2}3",
        r"3\frac{1}{2}x",
        r"\sin x(x+1)",
        r"\sin x\cdot 2",
        r"\sin(x)^2",
        r"\sin^{-2} x",
        r"\sin -x",
        "f(x)",
        "f^{(2)}",
        r"\frac{dy}{dx}",
        r"{x+1}^2",
        "x!!",
        "2^3^4",
        "x+",
        "()",
        "|x",
        r"\{x\}",
        "x=1",
        "x,y",
        r"\sum_{n=1}^{9} n",
        r"x\pm1",
        r"\overline{42}",
        r"\text{cm}",
        r"\qwertyuiop",
        "",
    ],
)
def test_what_may_be_read_in_two_ways_is_not_read(text: str) -> None:
    with pytest.raises(Unreadable):
        parse(clean(text))


@pytest.mark.parametrize("text", [r"\sin" * 100 + "x", "(" * 100 + "x" + ")" * 100, "9" * 1_001])
def test_depth_and_length_are_bounded(text: str) -> None:
    with pytest.raises(TooLarge):
        parse(text)


def test_constants_are_no_variables() -> None:
    assert variables(parse(clean(r"e^{i\pi}x_1 + y'"))) == {"x_{1}", "y'"}
