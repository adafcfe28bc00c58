"""The embedded task: sums of two numbers, or remainders of one, made on the spot from a seed."""

import random
from dataclasses import dataclass
from itertools import zip_longest
from typing import Annotated

from rlvr_vocab.bounds import Bounds, Count
from rlvr_vocab.errors import UserError

ARITHMETIC_COLUMNS = ("problem", "answer", "reasoning")


@dataclass(frozen=True)
class ArithmeticTask:
    """Sums a+b, where a and b have up to `digits` digits; or remainders of such an a.

    Args:
        digits: Most digits of a number.
        num_problems: Number of problems; no two have the same numbers, in whatever order.
        modulus: Ask for the remainder of one number by this, in place of a sum.

    Raises:
        UserError: If there are not that many different problems.
    """

    digits: Annotated[int, Bounds(least=1, most=9)] = 2
    num_problems: Count = 5000
    modulus: Count | None = None

    def __post_init__(self) -> None:
        numbers = 10**self.digits
        different = numbers * (numbers + 1) // 2 if self.modulus is None else numbers  # a+b and b+a being the same
        if self.num_problems > different:
            raise UserError(
                f"dataset.generator.num_problems is {self.num_problems}; with digits={self.digits}"
                f" it must be from 1 to {different}"
            )


def arithmetic_problems(task: ArithmeticTask, seed: int) -> list[dict[str, str]]:
    """Rows with the columns `problem`, `answer` and `reasoning`; the same seed gives the same rows."""
    return _sums(task, seed) if task.modulus is None else _remainders(task, task.modulus, seed)


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
