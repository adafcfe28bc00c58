"""From the LaTeX, plain text or Unicode of an answer to what it says.

text ──characters, cleaning──▶ one spelling ──reader──▶ a reading: number, tuple, set, equation, words, formula, …
"""

from rlvr_vocab.verify.reading.gold import as_written, read_gold
from rlvr_vocab.verify.reading.reader import read

__all__ = ["as_written", "read", "read_gold"]
