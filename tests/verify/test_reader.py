"""An answer is sorted into the form that it has; in doubt it is text, which must be written alike."""

import pytest

from rlvr_vocab.verify.reading import read
from rlvr_vocab.verify.reading.readings import (
    Approximation,
    BasedNumeral,
    Bracketed,
    Choice,
    Collection,
    Equality,
    Expression,
    Inequality,
    Items,
    Matrix,
    Number,
    Text,
    Union,
    expressions,
)
from rlvr_vocab.verify.reading.scanning import TooLarge, Unreadable


@pytest.mark.parametrize(
    ("text", "form", "shown"),
    [
        ("1,234", Number, "1234"),
        (r"\frac{6}{4}\text{ cm}", Number, "3/2 cm"),
        ("(45/2)^\\circ", Number, "45/2 degree"),
        (r"2\sqrt{3}", Expression, r"2\sqrt{3}"),
        (r"24\pi\text{ cm}^2", Expression, r"24\pi cm^2"),
        ("xy", Expression, "xy"),
        ("Friday.", Text, "'friday'"),
        (r"\text{No solution}", Text, "'no solution'"),
        ("3:4", Text, "'3:4'"),
        ("HHT", Text, "'HHT'"),
        (r"\text{Alice and Bob}", Text, "'alice and bob'"),
        ("C", Choice, "choice C"),
        (r"\text{(C)}", Choice, "choice C"),
        ("Option C", Choice, "choice C"),
        (r"\textbf{(C)}\ 12", Choice, "choice C (12)"),
        (r"\textbf{C}. 12", Choice, "choice C (12)"),
        (r"\text{(C) is wrong}", Text, "'(C) is wrong'"),
        ("1011_2", BasedNumeral, "11 written in base 2"),
        (r"1011_{\text{two}}", BasedNumeral, "11 written in base 2"),
        ("a_{12}", Expression, "a_{12}"),
        ("1, 2", Items, "1, 2"),
        ("81, 256", Items, "81, 256"),
        (r"1\text{ or }2", Items, "1, 2"),
        (r"x=1\text{ or }x=2", Items, "x = 1, x = 2"),
        (r"2\pm\sqrt3", Items, r"2+\sqrt{3}, 2-\sqrt{3}"),
        ("A, C", Items, "choice A, choice C"),
        ("(1,2)", Bracketed, "(1, 2)"),
        (r"[-\infty, 3]", Bracketed, r"(-\infty, 3]"),
        (r"\mathbb{R}", Bracketed, r"(-\infty, \infty)"),
        (r"\{1, \pm2\}", Collection, "{1, 2, -2}"),
        (r"\{\}", Expression, r"\emptyset"),
        (r"(-\infty,-2]\cup[3,\infty)", Union, r"(-\infty, -2] ∪ [3, \infty)"),
        (r"x\leq-2\text{ or }x\geq3", Union, r"(-\infty, -2] ∪ [3, \infty)"),
        (r"x>1\text{ and }x<3", Bracketed, "(1, 3)"),
        ("x = 40+2 = 42", Equality, "x = 40+2 = 42"),
        (r"\angle B = 30^\circ", Equality, r"\angle B = 30 degree"),
        ("{" * 24 + "7" + "}" * 24, Number, "7"),
        (r"x\in(1,2)", Inequality, r"x \in (1, 2)"),
        ("B) 9", Choice, "choice B (9)"),
        (r"\text{B) }9", Choice, "choice B (9)"),
        (r"\{x : x>5\}", Inequality, "5 < x"),
        (r"3>x\ge-2", Inequality, r"-2 \le x < 3"),
        (r"\sqrt2\approx1.41", Approximation, r"\sqrt{2} ≈ 141/100"),
        (r"x\approx3.5", Number, "7/2"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", Matrix, "[1, 2; 3, 4]"),
        (r"2\begin{bmatrix}1\\x\end{bmatrix}", Matrix, "[2; (2)*(x)]"),
        (r"\left|\begin{array}{cc}1&2\\3&4\end{array}\right|", Matrix, "||[1, 2; 3, 4]"),
    ],
)
def test_every_form_is_recognised(text: str, form: type, shown: str) -> None:
    reading = read(text)
    assert (type(reading), str(reading)) == (form, shown)


@pytest.mark.parametrize(
    "text",
    [
        "(1,,2)",
        r"\{1,,2\}",
        "[1,2",
        r"x\in5",
        r"x=1<2",
        r"5\approx",
        r"\begin{pmatrix}1&2\\3\end{pmatrix}",
        r"\begin{pmatrix}1&\\3&4\end{pmatrix}",
        r"[\begin{pmatrix}1&2\end{pmatrix}]",
        r"\text{Monday}, 5",
    ],
)
def test_broken_structure_is_text(text: str) -> None:
    assert isinstance(read(text), Text)


@pytest.mark.parametrize("text", ["", " ", "$$", r"\,", ".", r"\text{ }", r"\boxed{}"])
def test_nothing_is_not_an_answer(text: str) -> None:
    with pytest.raises(Unreadable, match="empty"):
        read(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("7" * 2_001, "2001 characters"),
        ("√" * 400, "2400 characters"),
        ("{" * 25 + "7" + "}" * 25, "nested"),
        (r"\sqrt" * 30 + "7", "nested"),
        ("1," * 300 + "1", "items"),
        ("x=" * 30 + "1", "chain"),
        ("(1," * 9 + "1" + ")" * 9, "tuples within"),
    ],
)
def test_what_is_larger_than_an_answer_is_refused_unread(text: str, why: str) -> None:
    with pytest.raises(TooLarge, match=why):
        read(text)


def test_a_number_too_long_to_be_written_out_can_be_shown() -> None:
    assert str(read("2^{20000}")) == "a number of 20001 bits"


def test_the_formulas_in_a_reading_are_named_and_infinities_left_out() -> None:
    assert list(expressions(read(r"[\sqrt2,\infty)"))) == [r"\sqrt{2}"]
    assert list(expressions(read(r"x=\pi, y=\begin{pmatrix}1\\z\end{pmatrix}"))) == ["x", r"\pi", "y", "z"]
    assert list(expressions(read("Friday"))) == []
