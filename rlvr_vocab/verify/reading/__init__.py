"""From the LaTeX, plain text or Unicode of an answer to a reading: a number, tuple, set, equation, words, a formula."""

from rlvr_vocab.verify.reading.reader import read

__all__ = ["read"]
