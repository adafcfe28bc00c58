"""Rewards for answers that need no mathematics: the same text, the same number, the same choice."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.boxes import boxes_opened
from rlvr_vocab.rewards.choice_letter import letters_concluded, letters_named
from rlvr_vocab.rewards.number_text import Number, last_number, whole_text_number
from rlvr_vocab.rewards.parameters import number, shown, switch
from rlvr_vocab.rewards.reward import Mark, reward
from rlvr_vocab.rewards.turns import THINK_TAGS, after_thinking, last_box, turn_text


@dataclass(frozen=True)
class _Final:
    """What a turn answers: the contents of its last box, or without a box all that stands after the thinking."""

    text: str
    in_box: bool


def _final_answer(turn: str, think_tags: tuple[str, str]) -> _Final | Mark:
    answer = after_thinking(turn, think_tags)
    if answer is None:
        return Mark(0.0, "thinking never closed")
    box = last_box(answer)
    if box is not None:
        return _Final(box, in_box=True)
    # What was cut off in its box would be another answer.
    return Mark(0.0, "the box is not closed") if boxes_opened(answer) else _Final(answer, in_box=False)


def text_mark(
    turn: str,
    gold: str,
    ignore_case: bool = False,
    ignore_punctuation: bool = False,
    think_tags: tuple[str, str] = THINK_TAGS,
) -> Mark:
    """Whether the answer of a turn is the same text as the gold answer."""
    expected = _normal(gold, ignore_case, ignore_punctuation)
    if not expected:
        return Mark(None, "no gold answer")
    final = _final_answer(turn, think_tags)
    if isinstance(final, Mark):
        return final
    given = _normal(final.text, ignore_case, ignore_punctuation)
    return Mark(1.0, "equal") if given == expected else Mark(0.0, "differs from the gold answer")


def number_mark(
    turn: str,
    gold: str,
    absolute_tolerance: Fraction = Fraction(0),
    relative_tolerance: Fraction = Fraction(0),
    think_tags: tuple[str, str] = THINK_TAGS,
) -> Mark:
    """Whether the answer of a turn is the gold number, or near enough."""
    expected = whole_text_number(gold)
    if expected is None:
        return Mark(None, "the gold answer is not a number")
    final = _final_answer(turn, think_tags)
    if isinstance(final, Mark):
        return final
    given = whole_text_number(final.text) if final.in_box else last_number(final.text)
    if given is None:
        return Mark(0.0, "the box is not a number" if final.in_box else "no number in the answer")
    distance = _distance(given, expected)
    if distance <= max(absolute_tolerance, relative_tolerance * abs(expected.value)):
        return Mark(1.0, "within the tolerance" if distance else "equal")
    return Mark(0.0, "another number")


def choice_mark(turn: str, gold: str, letters: str, think_tags: tuple[str, str] = THINK_TAGS) -> Mark:
    """Whether the answer of a turn names the gold letter and no other."""
    expected = letters_named(gold, letters)
    if len(expected) != 1:
        return Mark(None, "the gold answer is not one letter")
    final = _final_answer(turn, think_tags)
    if isinstance(final, Mark):
        return final
    given = letters_named(final.text, letters) if final.in_box else letters_concluded(final.text, letters)
    if len(given) != 1:
        return Mark(0.0, f"{len(given)} different letters" if given else "no letter")
    return Mark(1.0, "the right letter") if given == expected else Mark(0.0, f"{given.pop()} is wrong")


@reward(full_mark=1.0)
def exact_match(
    completions: Sequence[Any],
    solution: Sequence[Any],
    ignore_case: bool = False,
    ignore_punctuation: bool = False,
    think_tags: tuple[str, str] = THINK_TAGS,
    **_columns: Any,
) -> list[Mark]:
    r"""1 where the answer reads like the gold answer, letter by letter; 0 where not.

    The answer is what stands in the last box after the thinking, or all that stands after the thinking where there is
    no box; a box that is not closed is no answer. White space counts as one space, and not at all at the ends.

    Args:
        completions: assistant turns, as strings or lists of messages.
        solution: gold answers, one per completion; of one that holds a box, the contents of the box.
        ignore_case: whether upper and lower case are the same.
        ignore_punctuation: whether punctuation is left out on both sides. Not for numbers: 1.5 becomes 15.
        think_tags: what opens and closes thinking.

    Returns:
        0 or 1 per completion; None where the gold answer is missing or empty.

    Example:
        >>> exact_match(["It is \\boxed{Paris}", "<think>Rome?</think>\nparis", "Paris!"], solution=["Paris"] * 3)
        [1.0, 0.0, 0.0]
        >>> exact_match(["<think>Rome?</think>\nparis."], ["Paris"], ignore_case=True, ignore_punctuation=True)
        [1.0]
    """
    ignore_case = switch("exact_match", "ignore_case", ignore_case)
    ignore_punctuation = switch("exact_match", "ignore_punctuation", ignore_punctuation)
    return [
        text_mark(turn_text(completion), _gold_text(gold), ignore_case, ignore_punctuation, think_tags)
        for completion, gold in zip(completions, solution, strict=True)
    ]


@reward(full_mark=1.0)
def numeric(
    completions: Sequence[Any],
    solution: Sequence[Any],
    absolute_tolerance: float = 0.0,
    relative_tolerance: float = 0.0,
    think_tags: tuple[str, str] = THINK_TAGS,
    **_columns: Any,
) -> list[Mark]:
    r"""1 where the answer is the gold number, within a tolerance; 0 where not.

    The number is what the last box after the thinking consists of; without a box, the last number after the thinking
    (of its last 20,000 characters). A box that is not closed is no answer.
    Read are whole numbers, decimals, `1,234`, `a/b`, `\frac{a}{b}`, `1e6` and `2 \times 10^{3}`, with a currency sign
    before them or a percent sign or unit after them; units are not compared. `50\%` equals 50 and 1/2, and of two
    percentages the numbers are compared. All of it is exact: 0.1 is 1/10.

    Args:
        completions: assistant turns, as strings or lists of messages.
        solution: gold numbers, one per completion, as text or numbers.
        absolute_tolerance: how far off the answer may be.
        relative_tolerance: the same as a share of the gold number; the larger of the two holds.
        think_tags: what opens and closes thinking.

    Returns:
        0 or 1 per completion; None where the gold answer is not a number.

    Example:
        >>> numeric(["\\boxed{\\frac{3}{4}}", "3 of 4, so 0.75.", "\\boxed{3\\sqrt{2}}"], solution=["0.75", "3/4", "3"])
        [1.0, 1.0, 0.0]
        >>> numeric(["\\boxed{3.14}", "\\boxed{3.1}"], solution=["3.14159"] * 2, absolute_tolerance=0.01)
        [1.0, 0.0]
    """
    absolute = Fraction(str(number("numeric", "absolute_tolerance", absolute_tolerance, least=0)))
    relative = Fraction(str(number("numeric", "relative_tolerance", relative_tolerance, least=0)))
    return [
        number_mark(turn_text(completion), _gold_text(gold), absolute, relative, think_tags)
        for completion, gold in zip(completions, solution, strict=True)
    ]


@reward(full_mark=1.0)
def multiple_choice(
    completions: Sequence[Any],
    solution: Sequence[Any],
    letters: str = "ABCDEFGHIJ",
    think_tags: tuple[str, str] = THINK_TAGS,
    **_columns: Any,
) -> list[Mark]:
    r"""1 where the answer names the right choice and no other; 0 where not.

    The choice is read from the last box after the thinking: `C`, `(C)`, `C.`, `\text{C}`, `\textbf{(C)} 42`,
    `Option C`. Without a box it is what the answer says ("The answer is C", else "Option C"), or begins with.
    Two different letters, or a box that is not closed, are no answer.

    Args:
        completions: assistant turns, as strings or lists of messages.
        solution: gold letters, one per completion, in any of these forms.
        letters: the letters that choices have, upper case.
        think_tags: what opens and closes thinking.

    Returns:
        0 or 1 per completion; None where the gold answer names no letter, or several.

    Raises:
        UserError: `letters` is not a row of different upper-case letters.

    Example:
        >>> turns = ["<think>A? B?</think>\\boxed{\\text{(C)}}", "The answer is C.", "\\boxed{B or C}", "\\boxed{A}"]
        >>> multiple_choice(turns, solution=["C"] * 4)
        [1.0, 1.0, 0.0, 0.0]
    """
    usable = isinstance(letters, str) and letters.isascii() and letters.isalpha() and letters.isupper()
    if not usable or len(set(letters)) < len(letters):
        raise UserError(f"multiple_choice: letters={shown(letters)} must be different upper-case letters, like ABCD")
    return [
        choice_mark(turn_text(completion), _gold_text(gold), letters, think_tags)
        for completion, gold in zip(completions, solution, strict=True)
    ]


def _gold_text(gold: Any) -> str:
    """A gold answer as text: of one that holds a box the contents of the box, of a missing one nothing."""
    text = "" if gold is None else str(gold)
    box = last_box(text)
    return text if box is None else box


def _normal(text: str, ignore_case: bool, ignore_punctuation: bool) -> str:
    if ignore_punctuation:
        text = "".join(character for character in text if not unicodedata.category(character).startswith("P"))
    return " ".join((text.casefold() if ignore_case else text).split())


def _distance(given: Number, expected: Number) -> Fraction:
    """How far apart two numbers are, in the units of the expected one.

    A percent sign on one side alone may mean the number or its hundredth.
    """
    readings = [given.value]
    if given.percent and not expected.percent:
        readings.append(given.value / 100)
    if expected.percent and not given.percent:
        readings.append(given.value * 100)
    return min(abs(reading - expected.value) for reading in readings)
