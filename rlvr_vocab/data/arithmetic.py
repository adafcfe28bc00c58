"""The embedded task: sums of two numbers or of many digits, or remainders, made on the spot from a seed."""

import random
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from typing import Annotated, Literal

from annotated_types import Ge, Le

from rlvr_vocab.bounds import Count, Whole
from rlvr_vocab.errors import UserError

ARITHMETIC_COLUMNS = ("problem", "answer", "reasoning")


@dataclass(frozen=True)
class ArithmeticTask:
    """Sums a+b, where a and b have up to `digits` digits; remainders of such an a; or sums of many digits.

    Args:
        modulus: Ask for the remainder of one number by this, in place of a sum.
        terms: Ask for the sum of so many digits, in place of two numbers.
        partial_sums: How the worked solution of such a sum writes each partial sum.
    """

    digits: Annotated[Whole, Ge(1), Le(9)] = 2
    num_problems: Count = 5000
    modulus: Count | None = None
    terms: Annotated[Whole, Ge(2), Le(18)] | None = None
    partial_sums: Literal["whole", "last_digit"] = "whole"

    def __post_init__(self) -> None:
        if self.modulus is not None and self.terms is not None:
            raise UserError("dataset.generator: modulus asks for a remainder and terms for a sum; set one of them")
        numbers = 10**self.digits
        different = numbers * (numbers + 1) // 2  # a+b and b+a being the same
        if self.modulus is not None:
            different = numbers
        if self.terms is not None:
            different = 10**self.terms
        if self.num_problems > different:
            raise UserError(
                f"dataset.generator.num_problems is {self.num_problems}; with "
                f"{f'digits={self.digits}' if self.terms is None else f'terms={self.terms}'}"
                f" it must be from 1 to {different}"
            )


def arithmetic_problems(task: ArithmeticTask, seed: int) -> list[dict[str, str]]:
    """Rows with the columns `problem`, `answer` and `reasoning`; the same seed gives the same rows."""
    if task.terms is not None:
        return _long_sums(task, task.terms, seed)
    return _sums(task, seed) if task.modulus is None else _remainders(task, task.modulus, seed)


def _long_sums(task: ArithmeticTask, terms: int, seed: int) -> list[dict[str, str]]:
    """
    Example:
        >>> _long_sums(ArithmeticTask(num_problems=1, partial_sums="last_digit"), terms=4, seed=0)
        [{'problem': '6+3+1+1=', 'answer': '11', 'reasoning': '901'}]
    """
    rows = []
    for number in random.Random(seed).sample(range(10**terms), task.num_problems):
        digits = f"{number:0{terms}}"
        sums = [str(each) for each in accumulate(map(int, digits))]
        working = ",".join(sums[1:]) if task.partial_sums == "whole" else "".join(each[-1] for each in sums[1:])
        rows.append({"problem": f"{'+'.join(digits)}=", "answer": sums[-1], "reasoning": working})
    return rows


def _remainders(task: ArithmeticTask, modulus: int, seed: int) -> list[dict[str, str]]:
    numbers = random.Random(seed).sample(range(10**task.digits), task.num_problems)
    return [
        {
            "problem": f"{number} mod {modulus} =",
            "answer": str(number % modulus),
            "reasoning": f"{number}={number // modulus}*{modulus}+{number % modulus}",
        }
        for number in numbers
    ]


def _sums(task: ArithmeticTask, seed: int) -> list[dict[str, str]]:
    """Of a+b and b+a at most one occurs: the mirror of a held-out sum would tell its answer.

    Example:
        >>> _sums(ArithmeticTask(digits=1, num_problems=1), seed=0)
        [{'problem': '4+9=', 'answer': '13', 'reasoning': '4+9=13'}]
    """
    generator = random.Random(seed)
    largest = 10**task.digits - 1
    pairs: dict[tuple[int, int], tuple[int, int]] = {}
    while len(pairs) < task.num_problems:
        pair = generator.randint(0, largest), generator.randint(0, largest)
        pairs.setdefault((min(pair), max(pair)), pair)
    return [{"problem": f"{a}+{b}=", "answer": str(a + b), "reasoning": worked_sum(a, b)} for a, b in pairs.values()]


def worked_sum(a: int, b: int) -> str:
    """The sum digit by digit from the right, a carry written as a last `+1`.

    Example:
        >>> worked_sum(47, 38)
        '7+8=15,4+3+1=8'
    """
    steps, carry = [], 0
    for digit_a, digit_b in zip_longest(reversed(str(a)), reversed(str(b)), fillvalue="0"):
        column_sum = int(digit_a) + int(digit_b) + carry
        steps.append(f"{digit_a}+{digit_b}{'+1' if carry else ''}={column_sum}")
        carry = column_sum // 10
    return ",".join(steps)


def worked_difference(larger: int, smaller: int) -> str:
    """The difference digit by digit from the right; where one is borrowed the next digit has a last `-1`.

    Example:
        >>> worked_difference(52, 34)
        '12-4=8,5-3-1=1'
    """
    steps, borrowed = [], 0
    for digit, taken in zip_longest(reversed(str(larger)), reversed(str(smaller)), fillvalue="0"):
        left = int(digit) - int(taken) - borrowed
        borrows = left < 0
        steps.append(f"{'1' if borrows else ''}{digit}-{taken}{'-1' if borrowed else ''}={left % 10}")
        borrowed = int(borrows)
    return ",".join(steps)
