r"""Whether two formulas are equal: by exact rational numbers where they suffice, else by hundreds of digits.

Simplifying in order to prove equality can take for ever, and comparing few digits accepts what is merely close. So
two formulas are equal here when their values agree: numbers once, formulas with variables at points chosen
beforehand, which for rational functions is proof but for a vanishing chance (Schwartz, Zippel). A formula that cannot
be evaluated is equal to nothing, but for two in a notation that only math-verify's parser reads: see `same_tree`.
For worker processes only.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import mpmath

from rlvr_vocab.verify.evaluation import Evaluation, Point, Undefined, exact_value, rounding
from rlvr_vocab.verify.reading import parser
from rlvr_vocab.verify.reading.parser import Call, Exact, Formula, parts, variables
from rlvr_vocab.verify.reading.scanning import TooLarge, Unreadable

_DIGITS_OF_FIRST_LOOK = 50
_DIGITS_OF_NUMBERS = 1_000
_DIGITS_OF_FORMULAS = 200
_MOST_DIGITS = 6_000
_FEWEST_POINTS = 3


def equal(one: str, other: str) -> bool:
    """Whether two formulas in the spelling of `clean` have the same value.

    Raises:
        Unreadable: one of them is no formula that can be evaluated.
        TooLarge: one of them is bigger than an answer can be.
        Undefined: they are numbers without a value.
    """
    if not _is_read(one) and not _is_read(other):
        return same_tree(one, other)
    left, right = parse(one), parse(other)
    if variables(left) != variables(right):
        return False
    if not variables(left):
        return _equal_at(left, right, {}, _DIGITS_OF_NUMBERS)
    [[left], [right]] = sides = _with_real_roots([left], [right])
    num_agreeing = 0
    for point in points_for(left, right):
        try:
            if not _equal_at(left, right, point, _DIGITS_OF_FORMULAS):
                return False
            num_agreeing += 1
        except Undefined:
            if _has_value(sides[0], point) != _has_value(sides[1], point):
                return False
    return num_agreeing >= _FEWEST_POINTS


def within(one: str, other: str, distance: Fraction) -> bool:
    """Whether two numbers are less than `distance` apart; raises like `equal`."""
    left, right = parse(one), parse(other)
    if variables(left) or variables(right):
        return False
    with mpmath.workdps(_DIGITS_OF_FIRST_LOOK):
        values = [Evaluation(side, {}, _DIGITS_OF_FIRST_LOOK).number for side in (left, right)]
        return bool(abs(values[0] - values[1]) < mpmath.mpf(distance.numerator) / distance.denominator)


def proportional(one: tuple[str, str], other: tuple[str, str]) -> int:
    """The sign of the factor between two equations `one[0] = one[1]`; 0 without one, or without a variable.

    Raises like `equal`.
    """
    first, second = _with_real_roots([*map(parse, one)], [*map(parse, other)])
    sides = [*first, *second]
    names = [variables(side) for side in sides]
    if not names[0] | names[1] or names[0] | names[1] != names[2] | names[3]:
        return 0
    ratios = []
    for point in points_for(*sides):
        try:
            ratios.append(_ratio(sides, point))
        except Undefined:
            if _has_value(first, point) != _has_value(second, point):
                return 0
    if len(ratios) < _FEWEST_POINTS or ratios[0] == 0:
        return 0
    with mpmath.workdps(_DIGITS_OF_FORMULAS):
        factor = mpmath.re(ratios[0])
        close = abs(factor) * mpmath.mpf(10) ** -(_DIGITS_OF_FORMULAS // 2)
        is_constant = all(abs(ratio - factor) < close for ratio in ratios)
        return int(mpmath.sign(factor)) if is_constant else 0


def _ratio(sides: Sequence[Formula], point: Point) -> mpmath.mpc:
    """How often the difference of the last two sides goes into that of the first two; 0 where one of them vanishes."""
    exact = [value for side in sides if (value := exact_value(side, point)) is not None]
    with mpmath.workdps(_DIGITS_OF_FORMULAS):
        if len(exact) == len(sides):
            above, below = exact[0] - exact[1], exact[2] - exact[3]
            return mpmath.mpf((above / below).numerator) / (above / below).denominator if below else mpmath.mpf(0)
        values = [Evaluation(side, point, _DIGITS_OF_FORMULAS) for side in sides]
        above, below = values[0].number - values[1].number, values[2].number - values[3].number
        noise = max(value.largest for value in values) * rounding(_DIGITS_OF_FORMULAS)
        return above / below if min(abs(above), abs(below)) > noise else mpmath.mpf(0)


@lru_cache(maxsize=512)
def parse(latex: str) -> Formula:
    return parser.parse(latex)


def _is_read(latex: str) -> bool:
    try:
        parse(latex)
    except Unreadable:
        return False
    return True


def _has_value(side: Sequence[Formula], point: Point) -> bool:
    try:
        return all(Evaluation(formula, point, _DIGITS_OF_FIRST_LOOK) for formula in side)
    except Undefined:
        return False


def _equal_at(left: Formula, right: Formula, point: Point, digits: int) -> bool:
    exact = exact_value(left, point), exact_value(right, point)
    if None not in exact:
        return exact[0] == exact[1]
    if not _agree(left, right, point, _DIGITS_OF_FIRST_LOOK)[0]:
        return False
    while True:
        agree, spread = _agree(left, right, point, digits)
        needed = 2 * spread + 100
        if needed > _MOST_DIGITS:
            raise TooLarge("numbers too far apart to be compared")
        if not agree or needed <= digits:
            return agree
        digits = needed


def _agree(left: Formula, right: Formula, point: Point, digits: int) -> tuple[bool, int]:
    """Whether two values differ by no more than rounding, and the digits between the largest and the smallest number.

    With fewer digits, the smallest could change unseen.
    """
    one, other = Evaluation(left, point, digits), Evaluation(right, point, digits)
    largest, smallest = max(one.largest, other.largest), min(one.smallest, other.smallest)
    with mpmath.workdps(digits):
        agree = abs(one.number - other.number) <= largest * rounding(digits)
        return bool(agree), int(mpmath.log10(largest / smallest))


def _with_real_roots(*sides: Sequence[Formula]) -> list[list[Formula]]:
    r"""The formulas with `x^{1/3}` as `\sqrt[3]{x}` where both sides have odd roots of variables.

    Where one side alone has, such a power of a negative number has no value, as it may be the principal one.
    """
    are_real = all(any(_is_odd_root(part) for formula in side for part in parts(formula)) for side in sides)
    return [[_real_roots(formula) if are_real else formula for formula in side] for side in sides]


def _is_odd_root(formula: Formula) -> bool:
    if not isinstance(formula, Call) or formula.name not in ("^", "root") or not variables(formula.arguments[0]):
        return False
    number = exact_value(formula.arguments[1], {}) or Fraction(0)
    degree = number.denominator if formula.name == "^" else number.numerator
    return degree % 2 == 1 and degree > 1


def _real_roots(formula: Formula) -> Formula:
    if not isinstance(formula, Call):
        return formula
    arguments = tuple(map(_real_roots, formula.arguments))
    if formula.name != "^" or not _is_odd_root(formula):
        return Call(formula.name, arguments)
    exponent = exact_value(formula.arguments[1], {}) or Fraction(1)
    root = Call("root", (arguments[0], Exact(Fraction(exponent.denominator))))
    return Call("^", (root, Exact(Fraction(exponent.numerator))))


# Primes and indexes of numbers are dropped, numbers side by side added up, `1/2x` is decided, words become products.
_GUESSED_AT = re.compile(
    r"'|[0-9)}]_|(?<![\\A-Za-z])[A-Za-z][0-9]|[0-9] [0-9]|/[0-9]+ ?[A-Za-z\\(]|[%:?~]"
    r"|\\(?:text|dots|pm|mp|equiv|not|to|circ|[bp]?mod)(?![A-Za-z])|\.[0-9]*\."
)


def same_tree(one: str, other: str) -> bool:
    """Whether two formulas in the spelling of `clean` are the same but for the order of terms and factors.

    Raises:
        Unreadable: math-verify's parser does not read one of them either, or would have to guess.
    """
    return bool(_tree(one) == _tree(other))


def _tree(latex: str):  # type: ignore[no-untyped-def]  # sympy, imported where it is needed, has no types
    from latex2sympy2_extended import latex2sympy
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig
    from sympy import Basic, Expr

    if guess := _GUESSED_AT.search(latex):
        raise Unreadable(f"{guess[0]!r} in {latex[:80]!r}")
    as_written = ConversionConfig(interpret_as_mixed_fractions=False, lowercase_symbols=False)

    def in_order(node: Basic) -> Basic:
        return node.func(*map(in_order, node.args)) if node.args else node

    try:
        tree = latex2sympy(latex, normalization_config=None, conversion_config=as_written)
    except Exception as error:  # the parser raises bare Exception, and whatever its visitor met
        raise Unreadable(f"{' '.join(str(error).split())[:80]}, in {latex[:80]!r}") from error
    if not isinstance(tree, Expr):
        raise Unreadable(f"{latex[:80]!r} is not one value")
    return in_order(tree)


_NUM_POSITIVE = 4
_NUM_SIGNED = 8  # for three variables, every combination of signs
_DENOMINATOR = 997
_DIGITS = 20
_FARTHEST = 10**12
_WITH_CORNERS = frozenset(
    ("abs", "floor", "ceil", "root", "ln", "log", "arcsin", "arccos", "arctan", "arccot", "arcsec", "arccsc")
)


def points_for(*formulas: Formula) -> list[Point]:
    """Rational points, the same ones every time.

    Between 1/2 and 2 at first, positive ones and then of all signs. |x - 9| and 9 - x agree on all of these: where a
    formula has such corners, there are points of all signs beyond all of its numbers too.

    Raises:
        TooLarge: its numbers are so large that there is no going beyond them.
        Undefined, Unreadable: one of its numbers has no value.
    """
    names = sorted(frozenset[str]().union(*(variables(formula) for formula in formulas)))
    source = random.Random(0)

    def point(scale: int, signs: int) -> Point:
        """`signs` holds a bit for each of the first three variables, the others have any sign."""
        sizes = [scale * Fraction(source.randint(500, 2_000), _DENOMINATOR) for _ in names]
        bits = [signs >> place & 1 if place < 3 else source.randint(0, 1) for place in range(len(names))]
        return {name: -size if bit else size for name, size, bit in zip(names, sizes, bits, strict=True)}

    positive = [{name: abs(value) for name, value in point(1, 0).items()} for _ in range(_NUM_POSITIVE)]
    # The farthest corner: 0 where the formulas have none.
    reach = max((_distance(part) for formula in formulas for part in parts(formula) if _has_corner(part)), default=0)
    if reach > _FARTHEST:
        raise TooLarge("corners out of reach")
    scales = (1, 3 * reach) if reach else (1,)
    return positive + [point(scale, signs) for scale in scales for signs in range(_NUM_SIGNED)]


def _has_corner(formula: Formula) -> bool:
    if not isinstance(formula, Call) or not variables(formula):
        return False
    if formula.name == "^" and variables(formula.arguments[0]):
        exponent = exact_value(formula.arguments[1], {})
        return exponent is None or exponent.denominator != 1
    return formula.name in _WITH_CORNERS


def _distance(corner: Formula) -> int:
    """How far off a corner may be: |ln x - 5| has its own at e^5."""
    assert isinstance(corner, Call)
    arguments = corner.arguments[:1] if corner.name == "^" else corner.arguments
    size = math.prod(map(_size, arguments))
    inside = [part for argument in arguments for part in parts(argument) if isinstance(part, Call) and variables(part)]
    return math.ceil(math.exp(min(size, 99))) if any(part.name in ("ln", "log") for part in inside) else size


def _size(formula: Formula) -> int:
    """The product of the numbers in a formula and of their denominators; a fixed exponent moves no corner far."""
    if variables(formula):
        arguments = formula.arguments if isinstance(formula, Call) else ()
        is_power = isinstance(formula, Call) and formula.name in ("^", "root") and not variables(formula.arguments[1])
        return math.prod(map(_size, arguments[:1] if is_power else arguments))
    value = exact_value(formula, {})
    if value is None:
        size = abs(Evaluation(formula, {}, _DIGITS).number)
        return int(mpmath.ceil(max(size, 1 / size))) if size else 1
    return max(abs(value.numerator), 1) * value.denominator
