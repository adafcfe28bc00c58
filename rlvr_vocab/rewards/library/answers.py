"""Rewards for answers that need no mathematics: the same text, the same number, the same choice."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeVar

from rlvr_vocab.data.answers import gold_text
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.parameters import number, shown, switch
from rlvr_vocab.rewards.reward import Score, reward
from rlvr_vocab.rewards.turns import THINK_TAGS, after_thinking, turn_text
from rlvr_vocab.verify.boxed_answer import boxes_opened, last_box
from rlvr_vocab.verify.limits import TooLarge, Unreadable
from rlvr_vocab.verify.reading.reader import read
from rlvr_vocab.verify.reading.readings import Equality, Number
from rlvr_vocab.verify.reading.units import PERCENT

T = TypeVar("T")
_NOT_TEXT = "the gold answer is a list, an object or a boolean, which cannot be compared as text"


@reward(grades=True, answer_in="box")
def exact_match(
    completions: Sequence[Any],
    solution: Sequence[Any],
    ignore_case: bool = False,
    ignore_punctuation: bool = False,
    think_tags: tuple[str, str] = THINK_TAGS,
    **_columns: Any,
) -> list[Score]:
    r"""1 where the answer reads like the gold answer, letter by letter; 0 where not; None without a gold answer.

    The answer is what stands in the last box after the thinking, or all that stands after the thinking where there is
    no box; a box that is not closed is no answer. White space counts as one space, and not at all at the ends.

    Args:
        solution: gold answers, one per completion; of one that holds a box, the contents of the box.
        ignore_case: whether upper and lower case are the same.
        ignore_punctuation: whether punctuation is left out on both sides. Not for numbers: 1.5 becomes 15.

    Example:
        >>> exact_match(["It is \\boxed{Paris}", "<think>Rome?</think>\nparis", "Paris!"], solution=["Paris"] * 3)
        [1.0, 0.0, 0.0]
        >>> exact_match(["<think>Rome?</think>\nparis."], ["Paris"], ignore_case=True, ignore_punctuation=True)
        [1.0]
    """
    ignore_case = switch("exact_match", "ignore_case", ignore_case)
    ignore_punctuation = switch("exact_match", "ignore_punctuation", ignore_punctuation)

    def normal(text: str) -> str:
        if ignore_punctuation:
            text = "".join(character for character in text if not unicodedata.category(character).startswith("P"))
        return " ".join((text.casefold() if ignore_case else text).split())

    def judge(final: _Final, expected: str) -> Score:
        return Score(1.0, "equal") if normal(final.text) == expected else Score(0.0, "differs from the gold answer")

    return _scores(completions, solution, think_tags, lambda gold: normal(gold) or None, "no gold answer", judge)


@reward(grades=True, answer_in="box")
def numeric(
    completions: Sequence[Any],
    solution: Sequence[Any],
    absolute_tolerance: float = 0.0,
    relative_tolerance: float = 0.0,
    think_tags: tuple[str, str] = THINK_TAGS,
    **_columns: Any,
) -> list[Score]:
    r"""1 where the answer is the gold number, within a tolerance; 0 where not; None where the gold is no number.

    The number is what the last box after the thinking consists of; without a box, the last number after the thinking
    (of its last 20,000 characters). A box that is not closed is no answer.
    Read are whole numbers, decimals, `1,234`, `a/b`, `\frac{a}{b}`, `1e6` and `2 \times 10^{3}`, with a currency sign
    before them or a percent sign or unit after them; units are not compared. `50\%` equals 50 and 1/2, and of two
    percentages the numbers are compared. All of it is exact: 0.1 is 1/10.

    Args:
        solution: gold numbers, one per completion, as text or numbers.
        absolute_tolerance: how far off the answer may be.
        relative_tolerance: the same as a share of the gold number; the larger of the two holds.

    Example:
        >>> numeric(["\\boxed{\\frac{3}{4}}", "3 of 4, so 0.75.", "\\boxed{3\\sqrt{2}}"], solution=["0.75", "3/4", "3"])
        [1.0, 1.0, 0.0]
        >>> numeric(["\\boxed{3.14}", "\\boxed{3.1}"], solution=["3.14159"] * 2, absolute_tolerance=0.01)
        [1.0, 0.0]
    """
    absolute = Fraction(str(number("numeric", "absolute_tolerance", absolute_tolerance, least=0)))
    relative = Fraction(str(number("numeric", "relative_tolerance", relative_tolerance, least=0)))

    def judge(final: _Final, expected: Number) -> Score:
        given = whole_text_number(final.text) if final.in_box else last_number(final.text)
        if given is None:
            return Score(0.0, "the box is not a number" if final.in_box else "no number in the answer")
        distance = _distance(given, expected)
        if distance <= max(absolute, relative * abs(expected.value)):
            return Score(1.0, "within the tolerance" if distance else "equal")
        return Score(0.0, "another number")

    no_gold = "the gold answer is not a number"
    return _scores(completions, solution, think_tags, whole_text_number, no_gold, judge)


@reward(grades=True, answer_in="box")
def multiple_choice(
    completions: Sequence[Any],
    solution: Sequence[Any],
    letters: str = "ABCDEFGHIJ",
    think_tags: tuple[str, str] = THINK_TAGS,
    **_columns: Any,
) -> list[Score]:
    r"""1 where the answer names the right choice and no other; 0 where not; None where the gold names not one letter.

    The choice is read from the last box after the thinking: `C`, `(C)`, `C.`, `\text{C}`, `\textbf{(C)} 42`,
    `Option C`. Without a box it is what the answer says ("The answer is C", else "Option C"), or begins with.
    Two different letters, or a box that is not closed, are no answer.

    Args:
        solution: gold letters, one per completion, in any of these forms.
        letters: the letters that choices have, upper case.

    Example:
        >>> turns = ["<think>A? B?</think>\\boxed{\\text{(C)}}", "The answer is C.", "\\boxed{B or C}", "\\boxed{A}"]
        >>> multiple_choice(turns, solution=["C"] * 4)
        [1.0, 1.0, 0.0, 0.0]
    """
    usable = isinstance(letters, str) and letters.isascii() and letters.isalpha() and letters.isupper()
    if not usable or len(set(letters)) < len(letters):
        raise UserError(f"multiple_choice: letters={shown(letters)} must be different upper-case letters, like ABCD")

    def gold_letter(gold: str) -> set[str] | None:
        named = letters_named(gold, letters)
        return named if len(named) == 1 else None

    def judge(final: _Final, expected: set[str]) -> Score:
        given = letters_named(final.text, letters) if final.in_box else letters_concluded(final.text, letters)
        if len(given) != 1:
            return Score(0.0, f"{len(given)} different letters" if given else "no letter")
        return Score(1.0, "the right letter") if given == expected else Score(0.0, f"{given.pop()} is wrong")

    return _scores(completions, solution, think_tags, gold_letter, "the gold answer is not one letter", judge)


@dataclass(frozen=True)
class _Final:
    """What a turn answers: the contents of its last box, or without a box all that stands after the thinking."""

    text: str
    in_box: bool


def _scores(
    completions: Sequence[Any],
    solution: Sequence[Any],
    think_tags: tuple[str, str],
    read_gold: Callable[[str], T | None],
    no_gold: str,
    judge: Callable[[_Final, T], Score],
) -> list[Score]:
    """Each answer judged against its gold answer as `read_gold` reads it; None, with `no_gold`, where it reads none."""
    scores = []
    for completion, gold in zip(completions, solution, strict=True):
        text, final = gold_text(gold), _final_answer(turn_text(completion), think_tags)
        expected = None if text is None else read_gold(_unboxed(text))
        if expected is None:
            scores.append(Score(None, _NOT_TEXT if text is None else no_gold))
        else:
            scores.append(final if isinstance(final, Score) else judge(final, expected))
    return scores


def _final_answer(turn: str, think_tags: tuple[str, str]) -> _Final | Score:
    answer = after_thinking(turn, think_tags)
    if answer is None:
        return Score(0.0, "thinking never closed")
    box = last_box(answer)
    if box is not None:
        return _Final(box, in_box=True)
    # What was cut off in its box would be another answer.
    return Score(0.0, "the box is not closed") if boxes_opened(answer) else _Final(answer, in_box=False)


def _unboxed(text: str) -> str:
    """Of a gold answer that holds a box the contents of the box."""
    box = last_box(text)
    return text if box is None else box


def _distance(given: Number, expected: Number) -> Fraction:
    """How far apart two numbers are, in the units of the expected one.

    A percent sign on one side alone may mean the number or its hundredth.
    """
    values = [given.value]
    if given.unit == PERCENT != expected.unit:
        values.append(given.value / 100)
    if given.unit != PERCENT == expected.unit:
        values.append(given.value * 100)
    return min(abs(value - expected.value) for value in values)


_WRAPPING = re.compile(r"\\(?:text(?:bf|it|rm|sf)?|math(?:bf|rm|sf|it)|mbox|boxed|fbox|bf|rm)(?![A-Za-z])")
_MARKUP_SIGNS = str.maketrans("", "", "{}$*`\"'")
_WORD = re.compile(r"\b(?!(?:or|and)\b)[A-Za-z]{2}")
_LONGEST_NAMED = 300  # characters of a box, or of an answer that is nothing but a choice and its text
_SEARCHED = 20_000  # characters, from the end, in which a named choice or the last number is looked for


def letters_named(text: str, letters: str) -> set[str]:
    r"""The different letters of `letters` that a box or a short answer names, lower case only where it stands alone.

    A letter with a sign (`(C)`, `C.`, `C:`) goes before one without, so that the text of a choice may follow it.

    >>> sorted(letters_named(r"\textbf{(C)} a dog", "ABCD")), sorted(letters_named("A or B", "ABCD"))
    (['C'], ['A', 'B'])
    """
    if len(text) > _LONGEST_NAMED:
        return set()
    plain, patterns = _without_markup(text), _Patterns(letters)
    alone = patterns.alone.fullmatch(plain)
    if alone:
        return {alone[1].upper()}
    marked = {first or second for first, second in patterns.marked.findall(plain)}
    rest = patterns.marked.sub(" ", plain)
    if marked and _WORD.search(rest):  # the text of the choice, whose letters name nothing
        return marked
    return marked | set(patterns.bare.findall(rest))


def letters_concluded(answer: str, letters: str) -> set[str]:
    """The different letters that the sentences of an answer without a box settle on.

    >>> letters_concluded("Option A is too small, so the answer is C.", "ABCD")
    {'C'}
    """
    plain, patterns = _without_markup(answer[-_SEARCHED:]), _Patterns(letters)
    for sentence in (patterns.concluded, patterns.option):
        named = {letter for match in sentence.finditer(plain) for letter in patterns.bare.findall(match["named"])}
        if named:
            return named
    return letters_named(answer, letters) if patterns.opening.match(plain) else set()


def _without_markup(text: str) -> str:
    return " ".join(_WRAPPING.sub(" ", text).translate(_MARKUP_SIGNS).split())


@lru_cache(maxsize=8)
class _Patterns:
    """The ways to name one of a set of letters."""

    def __init__(self, letters: str) -> None:
        letter = f"([{letters}])(?![A-Za-z])"
        one = rf"\(?\s?[{letters}](?![A-Za-z])\s?\)?"
        several = rf"(?P<named>{one}(?:(?:\s?[,;/&]|\s?(?i:or|and)\b)+\s?{one})*+)"
        word = "(?i:option|choice|answer)"
        self.alone = re.compile(rf"(?i:(?:the\s)?(?:{word}(?:\s?(?:is|:|=))*\s?)?\(?\s?([{letters}])\s?\)?[.:]?)")
        self.marked = re.compile(rf"\(\s?{letter}\s?\)|(?<![A-Za-z(]){letter}\s?[.):]")
        self.bare = re.compile(rf"(?<![A-Za-z\\]){letter}")
        self.concluded = re.compile(rf"\b{word}(?:\s?(?i:is|:|=))+\s?(?:{word}\s?)?{several}")
        self.option = re.compile(rf"\b(?i:option|choice)\s?{several}")
        self.opening = re.compile(rf"\(?\s?(?i:[{letters}])\s?(?:[.):]|$)")


_DIGITS = r"(?:(?:[0-9]{1,3}(?:,[0-9]{3})++(?![0-9])|[0-9]++)(?:\.[0-9]++)?+|\.[0-9]++)"
_CURRENCY = r"(?:\\?[$€£¥₹]\s?)"
_SIGN = r"(?:(?<![\w)\]}])[+-])"
_FRACTION = rf"\\[cdt]?frac\s?(?:\{{\s?[+-]?{_DIGITS}\s?\}}\s?\{{\s?{_DIGITS}\s?\}}|[0-9]{{2}})"
_POWER_OF_TEN = r"(?:[eE][+-]?[0-9]++|\s?(?:\\times|\\cdot|×|\*)\s?10\^(?:\{[+-]?[0-9]++\}|[+-]?[0-9]++))"
_PLAIN = rf"(?<![\w.^\\])(?<![_^]\{{){_DIGITS}(?:\s?/\s?{_DIGITS}|{_POWER_OF_TEN})?"
# With what follows in dates, ranges and codes: `2024-01-05` is no number, and its last digits are none either.
_JOINED = rf"(?:[-–—‐‑:/.]{_CURRENCY}?{_DIGITS})*+"
_ANYWHERE = re.compile(rf"(?:{_SIGN}?{_CURRENCY}?|{_CURRENCY}[+-])(?:{_FRACTION}|{_PLAIN}){_JOINED}(?:\s?\\?%)?")


def whole_text_number(text: str) -> Number | None:
    r"""The number that a text consists of, a variable before it and a unit after it allowed; None for anything else.

    >>> whole_text_number(r"x = \frac{3}{4}\text{ km}")
    Number(value=Fraction(3, 4), unit=Unit(name='km', power=1))
    >>> whole_text_number(r"3\sqrt{2}") is whole_text_number("41 = 42") is None
    True
    """
    try:
        reading = read(text)
    except (TooLarge, Unreadable):
        return None
    if isinstance(reading, Equality) and reading.name is not None and len(reading.values) == 1:
        [reading] = reading.values
    return reading if isinstance(reading, Number) else None


def last_number(text: str) -> Number | None:
    """The last number of a text, digits within words and exponents left out; None without one, or for a code behind it.

    >>> last_number("Of 12 eggs, 2.5 % are 0.3.")
    Number(value=Fraction(3, 10), unit=None)
    >>> last_number("Of 12 eggs, 5 were laid on 2024-01-05.") is None
    True
    """
    last = None
    for match in _ANYWHERE.finditer(" ".join(text[-_SEARCHED:].replace("−", "-").split())):
        last = match
    return whole_text_number(last[0]) if last else None
