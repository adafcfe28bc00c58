"""Our reading of formulas against math-verify's parser and sympy: where both read one, they give it the same value."""

import cmath
import contextlib
import json
import random
from fractions import Fraction
from pathlib import Path

import pytest
import sympy
from latex2sympy2_extended import latex2sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig

from rlvr_vocab.verify.algebra import Evaluation, Undefined
from rlvr_vocab.verify.parser import parse, variables
from rlvr_vocab.verify.reader import read
from rlvr_vocab.verify.readings import expressions
from rlvr_vocab.verify.scanning import TooLarge, Unreadable

DIGITS = 30
AS_WRITTEN = ConversionConfig(interpret_as_mixed_fractions=False, lowercase_symbols=False)


def second_opinions(answers):
    """Each formula in the answers that both read, with our value and theirs at some point."""
    readings = []
    for answer in dict.fromkeys(answers):
        with contextlib.suppress(TooLarge, Unreadable):
            readings.append(read(answer))
    for latex in sorted({latex for reading in readings for latex in expressions(reading)}):
        # A logarithm without a base has the base 10 for them and no known one for us.
        with contextlib.suppress(Undefined, TooLarge, Unreadable, OverflowError, SecondOpinionMissing):
            if r"\log" not in latex:
                names = variables(formula := parse(latex))
                point = {name: Fraction(random.Random(name).randint(500, 2_000), 997) for name in names}
                yield latex, complex(Evaluation(formula, point, DIGITS).number), their_value(latex, point)


class SecondOpinionMissing(Exception):
    """Their parser does not read it, or reads symbols that ours does not."""


def their_value(latex, point):
    values = {"i": sympy.I, "e": sympy.E}
    values |= {name.replace("{", "").replace("}", ""): sympy.Rational(str(value)) for name, value in point.items()}
    try:
        tree = latex2sympy(latex, normalization_config=None, conversion_config=AS_WRITTEN)
        at_point = {symbol: values[symbol.name.replace("{", "").replace("}", "")] for symbol in tree.free_symbols}
        return complex(tree.subs(at_point).evalf(DIGITS))
    except Exception as error:  # it raises bare Exceptions
        raise SecondOpinionMissing from error


@pytest.mark.slow
def test_both_read_formulas_alike(real_data):
    pairs = map(json.loads, Path(__file__).with_name("pairs.jsonl").read_text(encoding="utf-8").splitlines())
    answers = [side for row in pairs for side in (row["gold"], row["answer"])]
    golds = json.loads((real_data / "deepscaler_math.json").read_text(encoding="utf-8"))
    found = list(second_opinions([*answers, *(str(row["answer"]) for row in golds)]))
    assert len(found) > 600
    different = {latex for latex, ours, theirs in found if not cmath.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-9)}
    # A mixed number for them and a product for us; the principal root for them and the real one for us.
    assert different <= {r"1(\frac{1}{2})", r"\sqrt[3]{-8}"}
