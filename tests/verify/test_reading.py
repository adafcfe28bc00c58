"""From text to a reading: one spelling, exact numbers, units taken off, clear formulas, and else a text."""

from fractions import Fraction

import pytest

from rlvr_vocab.verify import readings as forms
from rlvr_vocab.verify import verify
from rlvr_vocab.verify.cleaning import ascii_latex, clean
from rlvr_vocab.verify.parser import parse
from rlvr_vocab.verify.quantities import Unit, power_of, read_number
from rlvr_vocab.verify.reader import read
from rlvr_vocab.verify.scanning import TooLarge, Unreadable

# --- spelling ---


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
def test_one_thing_has_one_spelling(texts, spelling):
    assert {text: clean(text) for text in texts} == dict.fromkeys(texts, spelling)


APART = (
    ("11/2", "1 1/2"), ("12", r"1\left.2"), ("81,256", "81, 256"), ("3{,}14", "314"), ("x^2y", "x^{2y}"),
    (r"\frac{1}{x}+1", r"\frac{1}{x+1}"), (r"\mathbf{x+1}y", "x+1y"), (r"\text{m}", "m"), (r"\|x\|", "|x|"),
    (r"\overline{42}", "42"), (r"\frac{1}{2", r"\frac{1}{2}"), (r"\text{A^", r"\text{A}"), (r"\{1\}", "{1}"),
)  # fmt: skip


@pytest.mark.parametrize(("one", "other"), APART)
def test_what_differs_stays_apart(one, other):
    assert clean(one) != clean(other)


UNICODE = {
    "½": r"\frac{1}{2}", "x²³": "x^{23}", "x₁₂": "x_{12}", "√3": r"\sqrt 3", "−∞": r"-\infty ", "４２": "42",
    "𝟒𝟐": "42", "a\u00a0b\u2009c\nd": "a b c d",
    # Characters that say more than their letters stay.
    **{text: text for text in ("②", "4\u20dd", "ⅳ", "㎡", "\u202e24", "4\u200b2", "\ufdfa", "\ud800")},
}  # fmt: skip


@pytest.mark.parametrize(("text", "latex"), UNICODE.items())
def test_unicode_becomes_latex(text, latex):
    assert ascii_latex(text) == latex


# --- numbers ---


NO_NUMBERS = (
    "", "x", "1 2", "1.2.3", "1,23", "1/2/3", r"\frac{1}{0}", r"1\frac{3}{2}", r"\frac{1}{2}x", r"3.14\ldots",
    r"\overline{0.3}", r"0.\overline{3}1", "0^{0}", "2^x", "5!!", "nan", "\u0664\u0661",
)  # fmt: skip


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_everything_else_is_no_number(text):
    assert read_number(clean(text)) is None


def test_powers_up_to_the_limit_are_computed_and_others_are_not():
    assert [read_number(text) for text in ("10^{999999999}", "1e-999999999", "7^{" + "7" * 500 + "}")] == [None] * 3
    assert power_of(Fraction(2), 20_000) == 1 << 20_000
    assert power_of(Fraction(2), 60_000) is None
    assert power_of(Fraction(-1), 999_999_999) == -1
    assert power_of(Fraction(0), 0) is None


# --- units ---


CHANGING = """
    quadrillion tens ppm twice lakhs crores myriads googols quadrillions nonillions grosses grand mil tera hecto deca
    trios pairs squares ish fold tenfold zetta duos sixes fives thirteenths thousandths twenties milliards bn reams
""".split()  # noqa: SIM905 - a table


@pytest.mark.parametrize("words", [*CHANGING, "percentage points", "too many", "per mille", "per thousand", "is wrong"])
@pytest.mark.parametrize("form", [r"5\text{ %s}", "5 %s", "5 (%s)"])
def test_a_word_that_changes_the_number_is_no_unit_of_it(words, form):
    [verdict] = verify(["5"], [form % words])
    assert not verdict.correct


@pytest.mark.parametrize("words", ["km", "pies", "miles per gallon", "boxes", "ordered pairs", "test scores", "logs"])
def test_a_word_that_a_number_may_count_is_a_unit_of_it(words):
    assert [
        verdict.correct for verdict in verify(["5"] * 3, [rf"5\text{{ {words}}}", f"5 {words}", f"5 ({words})"])
    ] == [True] * 3


# --- formulas ---


UNCLEAR = (
    "1/2x", "x/2/3", "x2", r"\sqrt{2}3", r"3\frac{1}{2}x", r"\sin x(x+1)", r"\sin x\cdot 2", r"\sin(x)^2",
    r"\sin^{-2} x", r"\sin -x", "f(x)", "f^{(2)}", r"\frac{dy}{dx}", r"{x+1}^2", "x!!", "2^3^4", "x+", "()", "|x",
    r"\{x\}", "x=1", "x,y", r"\sum_{n=1}^{9} n", r"x\pm1", r"\overline{42}", r"\text{cm}", r"\qwertyuiop", "",
)  # fmt: skip


@pytest.mark.parametrize("text", UNCLEAR)
def test_what_may_be_read_in_two_ways_is_not_read(text):
    with pytest.raises(Unreadable):
        parse(clean(text))


DEEP = (r"\sin" * 100 + "x", "(" * 100 + "x" + ")" * 100, "9" * 1_001)
LONG = ("9" * 1_001, "0." + "1" * 1_001, r"0.\overline{" + "12" * 501 + "}")


@pytest.mark.parametrize(("reads", "texts"), [(parse, DEEP), (read_number, LONG)])
def test_depth_and_length_are_bounded(reads, texts):
    for text in texts:
        with pytest.raises(TooLarge):
            reads(text)


# --- forms ---


ONE, TWO, THREE = (forms.Number(Fraction(number)) for number in (1, 2, 3))
X, ROOT = forms.Expression("x"), forms.Expression(r"\sqrt{2}")
FORMS = {
    "1,234": forms.Number(Fraction(1234)),
    "2^{20000}": forms.Number(Fraction(2**20_000)),
    r"\frac{6}{4}\text{ cm}": forms.Number(Fraction(3, 2), Unit("cm")),
    r"2\sqrt{3}": forms.Expression(r"2\sqrt{3}"),
    "Friday.": forms.Text("friday"),
    r"\text{Alice and Bob}": forms.Text("alice and bob"),
    "C": forms.Choice("C"),
    r"\text{(C)}": forms.Choice("C"),
    r"\textbf{(C)}\ 2": forms.Choice("C", TWO),
    "1011_2": forms.BasedNumeral(11, 2),
    "1, 2": forms.Items((ONE, TWO)),
    r"2\pm\sqrt3": forms.Items((forms.Expression(r"2+\sqrt{3}"), forms.Expression(r"2-\sqrt{3}"))),
    "(1,2)": forms.Bracketed("(", (ONE, TWO), ")"),
    r"[-\infty, 3]": forms.Bracketed("(", (forms.MINUS_INFINITY, THREE), "]"),
    r"\mathbb{R}": forms.Bracketed("(", (forms.MINUS_INFINITY, forms.INFINITY), ")"),
    r"\{1, \pm2\}": forms.Collection((ONE, TWO, forms.Number(Fraction(-2)))),
    r"[1,2]\cup[3,\infty)": forms.Union(
        (forms.Bracketed("[", (ONE, TWO), "]"), forms.Bracketed("[", (THREE, forms.INFINITY), ")"))
    ),
    r"x>1\text{ and }x<3": forms.Bracketed("(", (ONE, THREE), ")"),
    "x = 1+2 = 3": forms.Equality((X, forms.Expression("1+2"), THREE), ("x", None, None)),
    "{" * 24 + "2" + "}" * 24: TWO,
    r"\{x : x>3\}": forms.Inequality((THREE, X), ("<",), "x", forms.Bracketed("(", (THREE, forms.INFINITY), ")")),
    r"3>x\ge2": forms.Inequality((TWO, X, THREE), (r"\le", "<"), "x", forms.Bracketed("[", (TWO, THREE), ")")),
    r"\sqrt2\approx1.41": forms.Approximation(ROOT, forms.Number(Fraction(141, 100)), Fraction(1, 100)),
    r"\begin{pmatrix}1&2\\3&x\end{pmatrix}": forms.Matrix(((ONE, TWO), (THREE, X))),
    r"2\begin{bmatrix}1\\x\end{bmatrix}": forms.Matrix(((TWO,), (forms.Expression("(2)*(x)"),))),
    r"\left|\begin{array}{cc}1&2\\3&x\end{array}\right|": forms.Matrix(((ONE, TWO), (THREE, X)), "||"),
}


@pytest.mark.parametrize(("text", "reading"), FORMS.items())
def test_every_form_is_recognised(text, reading):
    assert read(text) == reading


BROKEN = (
    "(1,,2)", r"\{1,,2\}", "[1,2", r"x\in5", r"x=1<2", r"5\approx", r"\begin{pmatrix}1&2\\3\end{pmatrix}",
    r"\begin{pmatrix}1&\\3&4\end{pmatrix}", r"[\begin{pmatrix}1&2\end{pmatrix}]", r"\text{Monday}, 5",
)  # fmt: skip


@pytest.mark.parametrize("text", BROKEN)
def test_broken_structure_is_text(text):
    assert isinstance(read(text), forms.Text)


@pytest.mark.parametrize("text", ["", " ", "$$", r"\,", ".", r"\text{ }", r"\boxed{}"])
def test_nothing_is_not_an_answer(text):
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
    ],
)
def test_what_is_larger_than_an_answer_is_refused_unread(text, why):
    with pytest.raises(TooLarge, match=why):
        read(text)


def test_the_formulas_in_a_reading_are_named_and_infinities_left_out():
    text = r"x=\pi, y=\begin{pmatrix}1\\z\end{pmatrix}, [\sqrt2,\infty)"
    assert list(forms.expressions(read(text))) == ["x", r"\pi", "y", "z", r"\sqrt{2}"]
