r"""Reads gold answers: as mathematics, or as written where a gold answer may as well be something else.

`7-11` is a difference, a score or a shop. Read as mathematics it would take `-4` for a right answer; compared as it is
written it takes only `7-11`. To mean the difference, write `$7-11$`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from rlvr_vocab.verify.reading.cleaning import (
    NUMBER_WITH_UNIT,
    PLAIN_NAMES,
    WORDS_OF_TWO_LETTERS,
    ascii_latex,
    plain_words,
    without_typesetting,
)
from rlvr_vocab.verify.reading.numbers import read_number
from rlvr_vocab.verify.reading.parser import parse
from rlvr_vocab.verify.reading.reader import cleaned_answer, label_of, read
from rlvr_vocab.verify.reading.readings import Choice, Number, Reading, Text, Written, expressions
from rlvr_vocab.verify.reading.scanning import TooLarge, Unreadable
from rlvr_vocab.verify.reading.units import UNITS_OF_TWO_LETTERS, Unit

# Shown behind the number of ambiguous gold answers.
COMPARED_AS_TEXT = "compared as text, for want of a sign of mathematics: write what is mathematics as $…$"

# Dollars as in Pandoc: what closes mathematics stands behind a character and before no digit, unlike in `$5-$10`.
_IN_DOLLARS = re.compile(r"\A\s*\$[^$]+\$\s*\Z|(?<![\\\w])\$(?=[^\s$])[^$]*(?<=[^\s\\$])\$(?![0-9])")
_CURRENCY = re.compile(r"(?<!\\)\$(?=[0-9.])")
_SAYS_MATHEMATICS = re.compile(
    r"\\(?!(?:text[a-z]*|mbox|hbox|q?quad|l?dots)(?![A-Za-z]))[A-Za-z({\[]"
    r"|[\^_=<>|÷]|(?<!\*)\*(?!\*)|[\w)\]}]!|[A-Za-z]['(]"
    r"|[\w)\]}]\s*\+\s*[\w(.]"
)
# These are typeset in dimensions, coordinates and chemistry too.
_NOT_MATHEMATICS_ALONE = str.maketrans(dict.fromkeys("×°º₀₁₂₃₄₅₆₇₈₉", " "))

_COMMAND_OR_INDEX = re.compile(r"\\[a-z]+|[_{}]")
# What no formula in variables looks like: `e4`, `0xFF`, `F-16`, `221B`, `10-km`, `9am`, `at -5`, `iv`.
_CODE = re.compile(
    r"[A-Za-z][ .]{0,2}[0-9]|(?<![0-9.])0[0-9A-Za-z]|[a-z]{3,}"
    r"|[A-Z][ -]?[A-Za-z0-9]|[A-Za-z][ -]?[A-Z]|[0-9](?:-|(?<=[0-9.][0-9]) ?)[A-Z]"
    r"|[0-9] ?(?:st|nd|rd|th|am|pm)(?![a-z])|\A[ivx]{2}\Z"
    rf"|(?:\A|[0-9]-)(?:{'|'.join(UNITS_OF_TWO_LETTERS)})(?![a-z])"
    rf"|(?<![a-z])(?:{'|'.join(WORDS_OF_TWO_LETTERS)})(?![a-z])"
)
# Zeros in front, as in a month or a postal code. The AIME pads its answers to three digits, which are numbers, and
# Python the exponent of `2e-05`.
_PADDED = re.compile(r"(?<![0-9.,])(?<![0-9] )(?<![0-9.][eE])(?<![0-9.][eE][-+])0[0-9](?!(?<=\A0[0-9])[0-9]\Z)")
# Numbers grouped as in German and in Indian English, which read as lists here.
_GROUPED_ELSEWHERE = re.compile(r"[+-]?(?:[0-9]{1,3}(?:[. ][0-9]{3})+,[0-9]+|[0-9]{1,2}(?:,[0-9]{2})+,[0-9]{3})")


@lru_cache(maxsize=1_024)
def read_gold(text: str | None) -> Reading:
    """Read a gold answer, None for one that is no text; `Written` where it does not say whether it is mathematics.

    Raises:
        TooLarge: it is longer, deeper or bigger than an answer can be.
        Unreadable: there is nothing in it, or it is no text.
    """
    if text is None:
        raise Unreadable("a list, an object or a boolean, which cannot be compared as text")
    reading = read(text)
    if isinstance(reading, Text) and (given := NUMBER_WITH_UNIT.fullmatch(text.strip())):  # `14 (times)` is 14
        value = read_number(cleaned_answer(given["number"]))
        return reading if value is None else Number(value, Unit(plain_words(given["unit"])))
    if isinstance(reading, Text) and (letter := label_of(cleaned_answer(text))):  # `E) none of these`
        return Choice(letter, reading)
    if isinstance(reading, Text) or _says_mathematics(text):
        return reading
    cleaned = cleaned_answer(text)
    may_be_a_code = _PADDED.search(cleaned) or _GROUPED_ELSEWHERE.fullmatch(cleaned)
    return as_written(text) if may_be_a_code or any(map(_looks_like_a_code, expressions(reading))) else reading


def as_written(text: str) -> Written:
    """An answer as it is compared with a gold answer that may be no mathematics; raises like `read_gold`."""
    if not _IN_DOLLARS.search(text):
        text = _CURRENCY.sub(r"\\$", text)
    return Written(without_typesetting(cleaned_answer(text)))


def _says_mathematics(text: str) -> bool:
    """Whether it has a sign, a macro or a function that nothing else has, or stands between dollars."""
    signs = ascii_latex(text.translate(_NOT_MATHEMATICS_ALONE))
    return bool(_IN_DOLLARS.search(text) or _SAYS_MATHEMATICS.search(signs) or PLAIN_NAMES.search(signs))


def _looks_like_a_code(latex: str) -> bool:
    """Whether a formula is digits joined by `-`, `/` and the like, or has letters that are hardly variables."""
    plain = _COMMAND_OR_INDEX.sub("", latex)
    return re.search("[A-Za-z]", plain) is None or _CODE.search(plain) is not None


@dataclass(frozen=True)
class GoldReport:
    """What is wrong with gold answers, by their index.

    Attributes:
        unusable: nothing can be compared with them: empty, no text, or larger than an answer can be.
        by_text_only: formulas that algebra cannot evaluate; an answer is right only when it is written alike.
        ambiguous: what does not say whether it is mathematics, a date or a code; compared as text.
    """

    unusable: dict[int, str] = field(default_factory=dict)
    by_text_only: dict[int, str] = field(default_factory=dict)
    ambiguous: dict[int, str] = field(default_factory=dict)


def check_golds(golds: Sequence[str | None], on_progress: Callable[[int, int], object] | None = None) -> GoldReport:
    """Read every gold answer as training will; None stands for one that is no text.

    >>> findings = check_golds(["42", "", r"\\sum_{n=1}^{9} n", "2024-01-05"])
    >>> findings.unusable, list(findings.by_text_only), list(findings.ambiguous)
    ({1: 'empty'}, [2], [3])
    """
    findings = GoldReport()
    for index, gold in enumerate(golds):
        found = findings.unusable
        try:
            reading = read_gold(gold)
            if isinstance(reading, Written):
                findings.ambiguous[index] = "a date, a range or a code?"
            found = findings.by_text_only
            for expression in expressions(reading):
                parse(expression)
        except (TooLarge, Unreadable) as error:
            found[index] = str(error)
        if on_progress:
            on_progress(index + 1, len(golds))
    return findings
