"""Our reading of formulas against math-verify's parser and sympy: where both read one, they give it the same value.

The parser of the project is strict where theirs guesses, so that it is ours that judges; theirs is the second opinion.
"""

import cmath
import json
import random
from fractions import Fraction
from pathlib import Path

import pytest
import sympy
from latex2sympy2_extended import latex2sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig

from rlvr_vocab.verify.evaluation import Evaluation, Undefined
from rlvr_vocab.verify.reading.parser import Formula, parse, variables
from rlvr_vocab.verify.reading.reader import read
from rlvr_vocab.verify.reading.readings import expressions
from rlvr_vocab.verify.reading.scanning import TooLarge, Unreadable

DIGITS = 30
AS_WRITTEN = ConversionConfig(interpret_as_mixed_fractions=False, lowercase_symbols=False)

# Where the second opinion is another one: a logarithm without a base has the base 10 for them and no known one for us.
ANOTHER_OPINION = (r"\log",)
# A mixed number for them, a product for us, as it is written.
MIXED_FOR_THEM = r"1(\frac{1}{2})"


def formulas_of(answers: list[str]) -> list[str]:
    found: set[str] = set()
    for answer in answers:
        try:
            found.update(expressions(read(answer)))
        except (TooLarge, Unreadable):
            continue
    return sorted(latex for latex in found if not any(name in latex for name in ANOTHER_OPINION))


def our_value(formula: Formula, point: dict[str, Fraction]) -> complex | None:
    try:
        return complex(Evaluation(formula, point, DIGITS).number)
    except (Undefined, TooLarge, Unreadable, OverflowError):
        return None


def their_value(latex: str, point: dict[str, Fraction]) -> complex | None:
    """None where they do not read it, or read symbols that we do not."""
    bare = {name.replace("{", "").replace("}", ""): value for name, value in point.items()}
    try:
        tree = latex2sympy(latex, normalization_config=None, conversion_config=AS_WRITTEN)
        values = {"i": sympy.I, "e": sympy.E}
        values |= {name: sympy.Rational(value.numerator, value.denominator) for name, value in bare.items()}
        at_point = {symbol: values[symbol.name.replace("{", "").replace("}", "")] for symbol in tree.free_symbols}
        return complex(tree.subs(at_point).evalf(DIGITS))
    except Exception:  # noqa: BLE001  # it raises bare Exceptions; what it cannot read gives no second opinion
        return None


def disagreements(formulas: list[str]) -> tuple[int, dict[str, tuple[complex, complex]]]:
    """How many formulas have both values, and those of which they differ."""
    compared, different = 0, {}
    for latex in formulas:
        try:
            formula = parse(latex)
        except (TooLarge, Unreadable):
            continue
        point = {name: Fraction(random.Random(name).randint(500, 2_000), 997) for name in variables(formula)}
        ours, theirs = our_value(formula, point), their_value(latex, point)
        if ours is None or theirs is None:
            continue
        compared += 1
        if not cmath.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-9):
            different[latex] = ours, theirs
    return compared, different


@pytest.mark.slow
def test_both_read_the_formulas_of_the_pairs_alike():
    lines = (Path(__file__).parent / "pairs.jsonl").read_text(encoding="utf-8").splitlines()
    pairs = [json.loads(line) for line in lines]
    compared, different = disagreements(
        formulas_of([side for pair in pairs for side in (pair["gold"], pair["answer"])])
    )
    assert compared > 200
    assert different.keys() <= {MIXED_FOR_THEM}


@pytest.mark.slow
def test_both_read_the_formulas_of_real_answers_alike(real_data: Path):
    rows = json.loads((real_data / "deepscaler_math.json").read_text(encoding="utf-8"))
    compared, different = disagreements(formulas_of([str(row["answer"]) for row in rows if row["answer"]]))
    assert compared > 400
    assert different == {}
