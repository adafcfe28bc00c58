"""Compares formulas: `equal`, `proportional` for equations, `within` for roundings. For worker processes only."""

from rlvr_vocab.verify.algebra.comparison import equal, proportional, within

__all__ = ["equal", "proportional", "within"]
