"""Spellings that say the same become one; spellings that do not stay apart."""

import pytest

from rlvr_vocab.verify.reading.cleaning import ascii_latex, clean


@pytest.mark.parametrize(
    ("texts", "spelling"),
    [
        ([r"\frac12", r"\dfrac{1}{2}", r"\tfrac1{2}", r"{1 \over 2}", r"1\over2", r"$\frac 1 2$"], r"\frac{1}{2}"),
        ([r"\frac{\sqrt3}2", r"\dfrac{\sqrt{3}}{2}", r"\frac{sqrt(3)}{2}"], r"\frac{\sqrt{3}}{2}"),
        ([r"{n \choose 2}", r"\dbinom n2", r"\binom{n}{2}"], r"\binom{n}{2}"),
        (["x^2", "x^{2}", "x^(2)", "x**2", "{x}^2"], "x^{2}"),
        ([r"\log_28", r"\log_2 8", r"\log_{2}8"], r"\log_{2}8"),
        (["1{,}234", r"1,\!234", r"1\,234", r"$1{,}234$", "1{,}234."], "1234"),
        (["1{,}234,567", r"1\,234\,567", "1{,}234{,}567"], "1234567"),
        ([r"\left( -\infty, 3 \right]", r"(-\infty,\,3]", r"\big(-\infty,3\big]"], r"(-\infty,3]"),
        ([r"x \leq 3", r"x\leqslant3", "x <= 3", r"x \le 3"], r"x\le3"),
        ([r"45^\circ", r"45^{\circ}", r"45\degree", r"45^{\degree}"], r"45\degree"),
        ([r"50\%", "50%", r"50 \%", r"50\,\%", r"\text{50\%}"], "50%"),
        ([r"\text{cm}", r"\mathrm{cm}", r"\operatorname{cm}", r"\mbox{cm}", r"\textbf{cm}"], r"\text{cm}"),
        ([r"9\text{ m}^2", r"9\,\mathrm{m}^2", r"9\,\mathrm{m^2}", r"9\text{ m^2}"], r"9\text{m}^{2}"),
        ([r"6\,\frac{\text{km}}{\text{h}}", r"6 \text{ km}/\text{h}", r"6\text{ km/h}"], r"6\text{km/h}"),
        ([r"\sin x", "sin x", r"\mathrm{sin}\,x", r"\operatorname{sin} x"], r"\sin x"),
        (
            [r"\mathbf{42}", r"\text{42}", "**42**", r"\boxed{42}", r"\(42\)", r"\large 42", r"\underline{42}", "= 42"],
            "42",
        ),
        ([r"\varnothing", r"\emptyset", r"\O"], r"\emptyset"),
        ([r"y'", r"y^\prime", r"y^{\prime}"], "y'"),
        ([r"\pm{3}", r"\pm 3"], r"\pm3"),
        ([r"\color{red}{7}", r"\textcolor{red}{7}", r"\phantom{1}7"], "7"),
    ],
)
def test_one_thing_has_one_spelling(texts: list[str], spelling: str) -> None:
    assert {text: clean(text) for text in texts} == dict.fromkeys(texts, spelling)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("11/2", "1 1/2"),
        ("12", r"1\left.2"),
        ("81,256", "81, 256"),
        ("3{,}14", "314"),
        ("x^2y", "x^{2y}"),
        (r"\frac{1}{x}+1", r"\frac{1}{x+1}"),
        (r"\mathbf{x+1}y", "x+1y"),
        (r"\text{m}", "m"),
        (r"\|x\|", "|x|"),
        (r"\overline{42}", "42"),
        (r"\frac{1}{2", r"\frac{1}{2}"),
        (r"\text{A^", r"\text{A}"),
        (r"\{1\}", "{1}"),
    ],
)
def test_what_differs_stays_apart(one: str, other: str) -> None:
    assert clean(one) != clean(other)


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("½", r"\frac{1}{2}"),
        ("x²³", "x^{23}"),
        ("x₁₂", "x_{12}"),
        ("√3", r"\sqrt 3"),
        ("−∞", r"-\infty "),
        ("４２", "42"),
        ("𝟒𝟐", "42"),
        ("a\u00a0b\u2009c\nd", "a b c d"),
    ],
)
def test_unicode_becomes_latex(text: str, latex: str) -> None:
    assert ascii_latex(text) == latex


@pytest.mark.parametrize("text", ["②", "4\u20dd", "ⅳ", "㎡", "\u202e24", "4\u200b2", "\ufdfa", "\ud800"])
def test_characters_that_say_more_than_their_letters_stay(text: str) -> None:
    assert ascii_latex(text) == text
