"""What counts as the same answer, form by form, and what is refused on purpose."""

from fractions import Fraction

import pytest

from rlvr_vocab.verify import algebra
from rlvr_vocab.verify.equality import AlgebraNeeded, NoAlgebra, same
from rlvr_vocab.verify.reading import read
from rlvr_vocab.verify.verifier import judge


def right(gold: str, answer: str) -> bool | None:
    return judge(gold, answer, algebra).correct


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("42", "x = 40+2 = 42"),
        ("x = 5", "5"),
        (r"\text{Area} = 12", "Area = 12"),
        ("y = 2x+3", "2x - y + 3 = 0"),
        ("(1,2)", "(x,y)=(1,2)"),
        ("(1,2)", "x=1, y=2"),
        ("x=1, y=2", "y=2, x=1"),
        ("1,2", r"\{2,1\}"),
        ("1,2", r"x=1\text{ or }x=2"),
        (r"\{(1,2),(3,4)\}", "(3,4),(1,2)"),
        ("(5,\\infty)", "x>5"),
        ("[1,2)", r"1\le x<2"),
        (r"x\in(1,2)", "1<x<2"),
        ("(1,2)", r"x\in(1,2)"),
        ("B) 9", "B"),
        ("B", "B) 9"),
        ("B) 0.5", r"(B) \frac12"),
        ("E) None of these", "E"),
        ("red, green, and blue", "red, green and blue"),
        ("red and blue", "red, blue"),
        ("5600", r"5\,600"),
        ("x>5", r"\{x : x>5\}"),
        (r"1<x<3", r"x>1\text{ and }x<3"),
        (r"x+y\le10", r"y+x-10\le0"),
        (r"x\ne2", r"2\ne x"),
        (r"(-\infty,0)\cup(1,2]", r"x\in(1,2]\cup(-\infty,0)"),
        (r"\begin{pmatrix}\frac12\\0\end{pmatrix}", r"\frac12\begin{bmatrix}1\\0\end{bmatrix}"),
        (r"2\sqrt5", r"2\sqrt{5}\approx4.47"),
        ("C", r"\textbf{(C)}\ 12"),
        (r"\textbf{(A)}\ 12", "A"),
        (r"\sum_{n=1}^\infty a_n", r"\sum_{n=1}^{\infty}a_{n}"),
    ],
)
def test_the_same_answer_in_another_form_is_right(gold: str, answer: str) -> None:
    assert right(gold, answer) is True


@pytest.mark.parametrize(
    ("gold", "answer", "why"),
    [
        ("42", "x=41=42", "every side of a chain counts"),
        ("42", "2x=42", "2x names nothing"),
        ("42", "wrong=42", "a name that takes back"),
        ("42", r"\text{minus }x=42", "a name that says more"),
        ("C", "B=C", "two letters"),
        ("C", "C. impossible", "says no"),
        ("C", "(C) maybe d", "says another"),
        ("(1,2)", "1<x<2", "it may be a point"),
        ("5600", r"5\quad 600", "two numbers"),
        ("5600", r"5\quad\quad600", "two numbers"),
        ("5600", r"5\hspace{1cm}600", "two numbers"),
        ("5", r"5\label{6}", "says more than it shows"),
        ("Paris", "Paris and", "goes on"),
        ("red and blue", "red blue", "no list"),
        ("5", r"\ln(x)=5", "a function of the answer is not the answer"),
        ("x=5", "y=5", "another name"),
        ("x=2", r"x=2\%", "a unit in an equation"),
        (r"2x=y", r"2x\%=y", "a unit in an equation"),
        ("(1,2)", "(y,x)=(1,2)", "an unusual order of names"),
        ("(1,2)", "y=1, x=2", "the values of other names"),
        ("(-1,0]", r"x=-1, y=0", "an interval has no coordinates"),
        ("1,2", "1,2,2", "said twice"),
        ("x>5", "y>5", "another name"),
        (r"(5,\infty)", r"\{x\in\mathbb{Z}: x>5\}", "whole numbers only"),
        (r"x+y\le10", r"-x-y\le-10", "the other direction"),
        (r"(1,2)\cup(3,4)", r"(1,2)\cap(3,4)", "another operation"),
        (r"2\sqrt5", r"2\sqrt5\approx5.47", "not its rounding"),
        ("4.47", r"2\sqrt5\approx4.47", "the exact side counts"),
        (r"\infty", r"-\infty", "infinities are compared as written"),
        ("C", "c", "a small letter is a variable"),
        ("C", r"\text{(C) is wrong}", "the letter is taken back"),
        (r"\textbf{(A)}\ 12", r"\textbf{(A)}\ 13", "another content"),
        (r"2\pi", r"2\pi\%", "a unit that changes the value"),
        (r"\frac{\pi}{3}", r"\frac{\pi}{3}^\circ", "a unit that changes the value"),
        (r"\text{Alice and Bob}", r"\text{Alice or Bob}", "another word"),
        ("XY", "xy", "capitals of short words"),
        ("f(x)", "f(y)", "not evaluated, not written alike"),
        (r"\sin^2 x", r"\sin(x)^2", "may be read in two ways"),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1&2\end{pmatrix}", "another shape"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{vmatrix}1&2\\3&4\end{vmatrix}", "a determinant"),
    ],
)
def test_what_is_not_surely_the_same_is_wrong(gold: str, answer: str, why: str) -> None:
    assert right(gold, answer) is False, why


def test_numbers_texts_and_structure_need_no_algebra() -> None:
    for gold, answer in (
        ("1/2", "0.5"),
        ("(1,2)", "(1,3)"),
        ("Friday", "friday"),
        ("x>5", "(5,\\infty)"),
        ("x^2", "x^2"),
    ):
        same(read(gold), read(answer), NoAlgebra())
    with pytest.raises(AlgebraNeeded):
        same(read("x+1"), read("1+x"), NoAlgebra())


def test_algebra_is_asked_only_where_two_formulas_have_to_be_compared() -> None:
    class Recorder:
        def __init__(self) -> None:
            self.asked: list[tuple[str, str]] = []

        def equal(self, one: str, other: str) -> bool:
            self.asked.append((one, other))
            return True

        def proportional(self, one: tuple[str, str], other: tuple[str, str]) -> int:
            raise AssertionError

        def within(self, one: str, other: str, distance: Fraction) -> bool:
            raise AssertionError

    recorder = Recorder()
    assert same(read("(1, x+1, y)"), read("(1, 1+x, y)"), recorder)
    assert recorder.asked == [("x+1", "1+x")]
