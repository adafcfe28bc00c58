"""Formulas that only math-verify's parser reads are equal when sympy holds their trees to be the same."""

import pytest

from rlvr_vocab.verify.algebra import equal
from rlvr_vocab.verify.algebra.comparison import same_tree
from rlvr_vocab.verify.limits import Unreadable


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("f(x)+1", "1+f(x)", True),
        ("f(x)", "f(y)", False),
        ("f(x)", "g(x)", False),
        (r"\max(a,b)", r"\max(b,a)", True),
        (r"\max(a,b)", r"\min(a,b)", False),
        (r"2\sum_{k=1}^{n}k", r"2\sum_{k=1}^{n}k", True),
        (r"\sum_{k=1}^{n}k", r"\sum_{k=1}^{n}k^{2}", False),
        (r"\sum_{k=1}^{n}k", r"\sum_{k=1}^{n+1}k", False),
        (r"\int_{0}^{1}x^{2}dx", r"\int_{0}^{1}x^{3}dx", False),
    ],
)
def test_trees_are_compared_and_nothing_is_computed(one, other, same):
    assert same_tree(one, other) is same
    assert equal(one, other) is same


@pytest.mark.parametrize(
    "latex", ["f'(x)", "f(2 3)", "f(1/2x)", r"f(x)\dots", "x2", "f(37_{8})", r"\foo", "12.5.0", r"7\mod 3"]
)
def test_where_their_parser_would_guess_it_is_not_asked(latex):
    with pytest.raises(Unreadable):
        same_tree(latex, latex)


def test_a_number_is_never_compared_with_a_sum_that_nobody_computes():
    with pytest.raises(Unreadable):
        equal("3", r"\sum_{k=1}^{2}k")
