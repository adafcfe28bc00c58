"""How the answers of a problem set are distributed, and the kinds of its problems by columns such as `source`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlvr_vocab.data.answers import cell_text
from rlvr_vocab.data.rows import Problem, short_text
from rlvr_vocab.data.source import Columns
from rlvr_vocab.rewards.library.answers import whole_text_number
from rlvr_vocab.text import pluralize
from rlvr_vocab.verify.golds import read_gold

SHOWN = 5
MOST_KINDS = 20
LEAST_IN_A_KIND = 2  # on average: a column in which hardly two rows agree tells no kinds
MISSING = "(missing)"
_WIDTH = 30


@dataclass(frozen=True)
class Distribution:
    """Of the problems of a set, its held-out ones among them.

    Attributes:
        num_answers: how many problems have one.
        different: how many different ones there are, as they are written.
        most_frequent: the most frequent ones with their number.
        numbers: how many are numbers.
        quartiles: smallest, first quartile, median, third quartile, largest of those; empty where there are none.
        kinds: of each column with few different values, how many problems have each, the most frequent first.
    """

    num_answers: int
    different: int
    most_frequent: tuple[tuple[str, int], ...]
    numbers: int
    quartiles: tuple[float, ...]
    kinds: dict[str, dict[str, int]]


def distribution(problems: Sequence[Problem], columns: Columns) -> Distribution:
    """The distribution of the answers, as text whatever they are, and of the columns that are not mapped."""
    answers = [text.strip() for problem in problems if (text := cell_text(problem.solution)) and text.strip()]
    counts = Counter(answers)
    numbers = [number for text in answers if (number := _as_number(text)) is not None]
    quartiles = np.quantile(numbers, (0, 0.25, 0.5, 0.75, 1)).tolist() if numbers else ()
    names = dict.fromkeys(name for problem in problems for name in problem.row if name not in columns.names)
    found = {name: kinds for name in names if (kinds := _kinds([problem.row.get(name) for problem in problems]))}
    return Distribution(
        len(answers), len(counts), tuple(counts.most_common(SHOWN)), len(numbers), tuple(quartiles), found
    )


def _as_number(text: str) -> float | None:
    """As the verifier and `numeric` read it; None where it is no number, or one that no float holds."""
    number = whole_text_number(text, read_gold)
    try:
        return None if number is None else float(number.value)
    except OverflowError:
        return None


def _kinds(values: Sequence[Any]) -> dict[str, int]:
    """How many there are of each, the most frequent first; none where they tell no kinds."""
    if not all(value is None or isinstance(value, str | int) for value in values):
        return {}
    counts = Counter(MISSING if value is None else str(value) for value in values)
    few = 2 <= len(counts) <= min(MOST_KINDS, len(values) / LEAST_IN_A_KIND)
    return dict(counts.most_common()) if few else {}


def distribution_lines(facts: Distribution) -> Iterator[str]:
    if not facts.num_answers:
        yield "no problem has an answer"
    else:
        frequent = _in_words(dict(facts.most_frequent), facts.num_answers, facts.different)
        yield f"{pluralize(facts.num_answers, 'answer')}, {facts.different:,} different: {frequent}"
        yield f"the same answer to every problem would be right for {facts.most_frequent[0][1] / facts.num_answers:.1%}"
    if facts.numbers > facts.num_answers / 2:
        low, first, median, third, high = (f"{value:,.6g}" for value in facts.quartiles)
        part = f"{facts.numbers / facts.num_answers:.0%} are numbers"
        yield f"{part}: smallest {low}, quartiles {first}, {median} and {third}, largest {high}"
    for name, kinds in facts.kinds.items():
        yield f"{short_text(name, _WIDTH)}: {_in_words(kinds, sum(kinds.values()), len(kinds))}"


def _in_words(counts: dict[str, int], of: int, different: int) -> str:
    shown = [f"{short_text(text, _WIDTH)} ({number:,}, {number / of:.1%})" for text, number in counts.items()]
    return ", ".join(shown[:SHOWN]) + (", …" if different > SHOWN else "")
