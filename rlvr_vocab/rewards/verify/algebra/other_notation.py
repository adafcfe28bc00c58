r"""Formulas in a notation that the strict parser does not know: sums, integrals, `\max`, `f(x)`.

They go to math-verify's parser, and are equal when sympy holds their trees to be the same: nothing is computed, so that
`f(x)+1` is `1+f(x)`, and a sum is not its value. That parser guesses where a text may be read in two ways, and drops
what it does not know; texts that give it a reason to are not asked about.
"""

from __future__ import annotations

import re

from rlvr_vocab.rewards.verify.limits import Unreadable

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
