"""The words of a problem, so that two writings of it can be told to be the same."""

import re
import unicodedata

# Typesetting that no reader hears: spaces and sizes of LaTeX, and the delimiters of its formulas.
LATEX_LAYOUT = re.compile(r"\\(?:[,;:!> ]|[()\[\]]|(?:quad|qquad|left|right|displaystyle)(?![a-zA-Z]))|\\?\$|~")
LATEX_FRACTION = re.compile(r"\\[dtc]frac(?![a-zA-Z])")
CJK = "\u3040-\u30ff\u3400-\u9fff"  # written without spaces: each character is taken for a word
WORD = re.compile(
    rf"[{CJK}]"
    r"|\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?"
    r"|\d+(?:\.\d+)?"
    rf"|\\?[^\W\d_{CJK}]+"
    r"|[^\w\s]|_"
)
PUNCTUATION = frozenset('.,;:?"…')
SAME_CHARACTERS = str.maketrans("‘’“”−–—‐‑", "''\"\"-----")


def words_of(text: str) -> tuple[str, ...]:
    r"""Words, numbers and symbols in lower case, without punctuation and without the typesetting of LaTeX.

    What has a meaning in mathematics stays: signs, primes, factorials, braces, decimal points.

    Example:
        >>> words_of(r"Find $\dfrac{1,000}{x'}$.")
        ('find', '\\frac', '{', '1000', '}', '{', 'x', "'", '}')
        >>> words_of("find \\(\\frac{1000}{x'}\\)") == words_of(r"Find $\dfrac{1,000}{x'}$.")
        True
    """
    plain = unicodedata.normalize("NFC", text).translate(SAME_CHARACTERS).replace("{,}", ",")
    found = WORD.findall(LATEX_LAYOUT.sub(" ", LATEX_FRACTION.sub(r"\\frac", plain)).casefold())
    words = tuple(word.replace(",", "") if word[0].isdigit() else word for word in found if word not in PUNCTUATION)
    return words or tuple(text.split())


def numbers_in(words: tuple[str, ...]) -> list[str]:
    """The numbers among the words, in their order."""
    return [word for word in words if word[0].isdigit()]
