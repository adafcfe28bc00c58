"""Generated problem sets: embedded sums and products, and task families of reasoning-gym, with worked solutions."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise, zip_longest
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le

from rlvr_vocab.bounds import Count, Share, Whole
from rlvr_vocab.errors import UserError, require_package
from rlvr_vocab.text import did_you_mean

REASONING_GYM = "reasoning_gym"
GYM_COLUMNS = ("problem", "answer", "reasoning", "task", "difficulty", "entry")
SPLITS = ("train", "held_out", "test")  # from disjoint sets of seeds


@dataclass(frozen=True)
class ArithmeticTask:
    """Sums a+b, where a and b have up to `digits` digits; remainders of such an a; sums of many digits; products.

    The share `right_calls` of the worked solutions of products uses the tool `calculator` rightly, others wrongly.
    """

    digits: Annotated[Whole, Ge(1), Le(9)] = 2
    num_problems: Count = 5000
    modulus: Count | None = None
    terms: Annotated[Whole, Ge(2), Le(18)] | None = None
    partial_sums: Literal["whole", "last_digit"] = "whole"
    right_calls: Share | None = None

    def __post_init__(self) -> None:
        asks = {"modulus": "a remainder", "terms": "a sum", "right_calls": "a product"}
        given = [f"{key} asks for {what}" for key, what in asks.items() if getattr(self, key) is not None]
        if len(given) > 1:
            raise UserError(f"dataset.generator: {' and '.join(given)}; set one of them")
        key, digits = ("digits", self.digits) if self.terms is None else ("terms", self.terms)
        is_pair = self.modulus is None and self.terms is None
        numbers = 10**digits - (0 if self.right_calls is None else 10 ** (digits - 1))
        different = numbers * (numbers + 1) // 2 if is_pair else numbers  # a+b is b+a
        if self.num_problems > different:
            limit = f"with {key}={digits} it must be from 1 to {different}"
            raise UserError(f"dataset.generator.num_problems is {self.num_problems}; {limit}")


def arithmetic_problems(task: ArithmeticTask, seed: int) -> list[dict[str, Any]]:
    """Rows with the columns `problem`, `answer` and `reasoning`; the same seed gives the same rows."""
    if task.right_calls is not None:
        return _products(task, task.right_calls, seed)
    if task.terms is not None:
        return _long_sums(task, task.terms, seed)
    if task.modulus is not None:
        return _remainders(task, task.modulus, seed)
    pairs = _pairs(random.Random(seed), 0, task)
    return [{"problem": f"{a}+{b}=", "answer": str(a + b), "reasoning": worked_sum(a, b)} for a, b in pairs]


def _long_sums(task: ArithmeticTask, terms: int, seed: int) -> list[dict[str, str]]:
    rows = []
    for number in random.Random(seed).sample(range(10**terms), task.num_problems):
        digits = f"{number:0{terms}}"
        sums = [str(each) for each in accumulate(map(int, digits))]
        working = ",".join(sums[1:]) if task.partial_sums == "whole" else "".join(each[-1] for each in sums[1:])
        rows.append({"problem": f"{'+'.join(digits)}=", "answer": sums[-1], "reasoning": working})
    return rows


def _remainders(task: ArithmeticTask, modulus: int, seed: int) -> list[dict[str, str]]:
    rows = []
    for number in random.Random(seed).sample(range(10**task.digits), task.num_problems):
        times, rest = divmod(number, modulus)
        working = f"{number}={times}*{modulus}+{rest}"
        rows.append({"problem": f"{number} mod {modulus} =", "answer": str(rest), "reasoning": working})
    return rows


def _pairs(generator: random.Random, smallest: int, task: ArithmeticTask) -> list[tuple[int, int]]:
    """At most one of (a, b) and (b, a) occurs: the mirror of a held-out problem would give away its answer."""
    pairs: dict[tuple[int, int], tuple[int, int]] = {}
    while len(pairs) < task.num_problems:
        pair = generator.randint(smallest, 10**task.digits - 1), generator.randint(smallest, 10**task.digits - 1)
        pairs.setdefault((min(pair), max(pair)), pair)
    return list(pairs.values())


def _products(task: ArithmeticTask, right_calls: float, seed: int) -> list[dict[str, Any]]:
    """Worked by messages; wrong ones guess without a call, write a multiplication that the tool refuses, or add."""
    generator, rows = random.Random(seed), []
    for a, b in _pairs(generator, 10 ** (task.digits - 1), task):
        right, mistake = generator.random() < right_calls, generator.choice(("", "x", "+"))
        sign = "*" if right else mistake
        expression, rounded = f"{a}{sign}{b}", round(a, 1 - task.digits) * round(b, 1 - task.digits)
        answer = {"*": a * b, "+": a + b}.get(sign, rounded)
        result = f"{{'error': 'no arithmetic expression: {expression}'}}" if sign == "x" else str(answer)
        call = {"type": "function", "function": {"name": "calculator", "arguments": {"expression": expression}}}
        called = [
            {"role": "assistant", "reasoning_content": expression, "content": "", "tool_calls": [call]},
            {"role": "tool", "name": "calculator", "content": result},
        ]
        thought = str(answer) if sign in ("*", "+") else f"{a}*{b}"
        last = {"role": "assistant", "reasoning_content": thought, "content": f"\\boxed{{{answer}}}"}
        worked = [*called, last] if sign else [last]
        rows.append({"problem": f"{a}*{b}=", "answer": str(a * b), "reasoning": worked})
    return rows


def worked_sum(a: int, b: int) -> str:
    """The sum digit by digit from the right; a carry is a final `+1`.

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
    """The difference digit by digit from the right; after a borrow the next digit has a final `-1`.

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


@dataclass(frozen=True)
class GymTask:
    """A task family: its name, its share of the problems, and fields of its configuration (the difficulty)."""

    name: str
    weight: Annotated[float, Gt(0)] = 1.0
    params: dict[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class GymProblems:
    """The task families of a problem set; `num_held_out` of its `num_problems` are held out, and `test` has as many."""

    tasks: tuple[GymTask, ...]
    num_problems: int
    num_held_out: int

    def shares(self, split: str) -> list[int]:
        """Number of problems of each task in a split, by the weights.

        >>> GymProblems((GymTask("lcm", 2.0), GymTask("gcd")), num_problems=100, num_held_out=10).shares("train")
        [60, 30]
        """
        size = self.num_problems - self.num_held_out if split == "train" else self.num_held_out
        weights = [task.weight for task in self.tasks]
        ends = [round(size * so_far / sum(weights)) for so_far in accumulate(weights, initial=0.0)]
        return [end - start for start, end in pairwise(ends)]


def check_tasks(problems: GymProblems) -> None:
    """Raises UserError for tasks with unknown names or refused parameters."""
    require_package(REASONING_GYM, f"dataset={REASONING_GYM}")
    if not problems.tasks:
        raise UserError("dataset.tasks is empty: name at least one, as in dataset.tasks=[chain_sum]")
    from reasoning_gym.factory import DATASETS, create_dataset

    families = sorted(DATASETS.keys() - {"composite"})  # a family of families, as `tasks` is
    for task in problems.tasks:
        if task.name not in families:
            hint = did_you_mean(task.name, families) or f"; there are {', '.join(families)}"
            raise UserError(f"dataset.tasks: reasoning-gym has no task {task.name}{hint}")
        try:
            create_dataset(task.name, **task.params, seed=0, size=1)
        except Exception as error:  # each task refuses in its own way: with assertions, ValueError, TypeError
            given = ", ".join(f"{name}={value}" for name, value in task.params.items())
            raise UserError(f"dataset.tasks: {task.name} refuses {given}: {' '.join(str(error).split())}") from error


_TERM = re.compile(r"([+-]?) ?(-?\d+)")


def worked_chain(metadata: Mapping[str, Any]) -> str:
    """A chain of sums and differences, each digit by digit from the right; `-:` in front of a negative result.

    >>> worked_chain({"expression": "52 - 34 + 7"})
    '12-4=8,5-3-1=1;18+7:8+7=15,1+0+1=2'
    >>> worked_chain({"expression": "34 - 52"})
    '-:12-4=8,5-3-1=1'
    """
    signed = [(match[1], int(match[2])) for match in _TERM.finditer(metadata["expression"])]
    total, *terms = [-number if sign == "-" else number for sign, number in signed]
    steps: list[str] = []
    for term in terms:
        larger, smaller = max(abs(total), abs(term)), min(abs(total), abs(term))
        same_sign = (total < 0) == (term < 0)
        digits = worked_sum(abs(total), abs(term)) if same_sign else worked_difference(larger, smaller)
        name = f"{total}{term:+}:" if steps else ""
        total += term
        steps.append(f"{name}{'-:' if total < 0 else ''}{digits}")
    return ";".join(steps)


def worked_spelling(metadata: Mapping[str, Any]) -> str:
    """The letters of a word, then the same letters in reverse order.

    >>> worked_spelling({"word": "sun"})
    's,u,n;n,u,s'
    """
    letters = metadata["word"]
    return f"{','.join(letters)};{','.join(reversed(letters))}"


def worked_bits(metadata: Mapping[str, Any]) -> str:
    """A number halved until 1 is left, with odd numbers marked; the marks are the bits.

    >>> worked_bits({"number": 11})
    '11*,5*,2,1*:3'
    """
    halves = [metadata["number"]]
    while halves[-1] > 1:
        halves.append(halves[-1] // 2)
    marked = ",".join(f"{number}{'*' * (number % 2)}" for number in halves)
    return f"{marked}:{sum(number % 2 for number in halves)}"


# Worked solutions by task family, from the metadata of a problem.
WORKED: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "chain_sum": worked_chain,
    "spell_backward": worked_spelling,
    "count_bits": worked_bits,
}


def without_worked_solutions(tasks: Sequence[GymTask]) -> list[str]:
    return [task.name for task in tasks if task.name not in WORKED]
