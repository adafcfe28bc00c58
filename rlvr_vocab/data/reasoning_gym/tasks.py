"""Task families of reasoning-gym that a problem set is made of, and worked solutions of three of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from itertools import pairwise
from typing import Annotated, Any

from annotated_types import Gt

from rlvr_vocab.data.arithmetic import worked_difference, worked_sum
from rlvr_vocab.data.files import one_line
from rlvr_vocab.errors import UserError
from rlvr_vocab.text import did_you_mean

REASONING_GYM = "reasoning_gym"
SPLITS = ("train", "held_out", "test")  # from seeds that have none in common
INSTALL = "pip install -e '.[gym]' (it builds a small extension, which wants a C compiler)"

# Fields of every family's configuration that are no parameters here, and the keys that decide them.
_OF_THE_RUN = {"seed": "seed", "size": "dataset.num_problems"}
_MIXTURE = "composite"  # a family of families, which `tasks` is already
_TERM = re.compile(r"([+-]?) ?(-?\d+)")


@dataclass(frozen=True)
class GymTask:
    """A task family by its name, its share of the problems, and fields of its configuration (the difficulty)."""

    name: str
    weight: Annotated[float, Gt(0)] = 1.0
    params: dict[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class GymProblems:
    """The task families of a problem set.

    Args:
        num_problems: Problems to train on and to hold out, together.
        num_held_out: Held-out problems among these; the split `test` has as many.
    """

    tasks: tuple[GymTask, ...]
    num_problems: int
    num_held_out: int

    def shares(self, split: str) -> list[int]:
        """Problems of each task in a split, by the weights.

        Example:
            >>> GymProblems((GymTask("lcm", 2.0), GymTask("gcd")), num_problems=100, num_held_out=10).shares("train")
            [60, 30]
        """
        size = self.num_problems - self.num_held_out if split == "train" else self.num_held_out
        weights = sum(task.weight for task in self.tasks)
        ends, sofar = [0], 0.0
        for task in self.tasks:
            sofar += task.weight
            ends.append(round(size * sofar / weights))
        return [end - start for start, end in pairwise(ends)]


def require_reasoning_gym(who: str) -> None:
    """Raises UserError where the package is not installed."""
    if find_spec(REASONING_GYM) is None:
        raise UserError(f"{who} needs the package reasoning-gym: {INSTALL}")


def check_tasks(problems: GymProblems) -> None:
    """Raises UserError for tasks that cannot be made: unknown names, refused values, too few problems."""
    require_reasoning_gym(f"dataset={REASONING_GYM}")
    if not problems.tasks:
        raise UserError("dataset.tasks is empty: name at least one, as in dataset.tasks=[chain_sum]")
    for task in problems.tasks:
        _check_task(task)
    for split in SPLITS[:2] if problems.num_held_out else SPLITS[:1]:
        left_out = [task for task, share in zip(problems.tasks, problems.shares(split), strict=True) if not share]
        if left_out:
            raise UserError(
                f"dataset.num_problems={problems.num_problems}: {left_out[0].name} would have none of the {split} "
                "problems: raise it, its weight, or dataset.eval_fraction"
            )


def _check_task(task: GymTask) -> None:
    from reasoning_gym.factory import DATASETS, create_dataset

    families = sorted(DATASETS.keys() - {_MIXTURE})
    if task.name not in families:
        hint = did_you_mean(task.name, families) or f"; there are {', '.join(families)}"
        raise UserError(f"dataset.tasks: reasoning-gym has no task {task.name}{hint}")
    known = [each.name for each in fields(DATASETS[task.name][1]) if each.name not in _OF_THE_RUN]
    for name in task.params:
        if name in _OF_THE_RUN:
            raise UserError(f"dataset.tasks: {task.name}: {name} is decided by {_OF_THE_RUN[name]}=…")
        if name not in known:
            hint = did_you_mean(name, known) or f"; there are {', '.join(known)}"
            raise UserError(f"dataset.tasks: {task.name} has no parameter {name}{hint}")
    try:
        create_dataset(task.name, **task.params, seed=0, size=1)
    except Exception as error:  # each task refuses in its own way: with assertions, ValueError, TypeError
        given = ", ".join(f"{name}={value}" for name, value in task.params.items())
        raise UserError(f"dataset.tasks: {task.name} refuses {given}: {one_line(error)}") from error


def worked_chain(metadata: Mapping[str, Any]) -> str:
    """A chain of sums and differences, one after the other, each digit by digit from the right.

    A `-:` in front means that the result is negative.

    Example:
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
    """The letters of a word, and the same from the last to the first.

    Example:
        >>> worked_spelling({"word": "sun"})
        's,u,n;n,u,s'
    """
    letters = metadata["word"]
    return f"{','.join(letters)};{','.join(reversed(letters))}"


def worked_bits(metadata: Mapping[str, Any]) -> str:
    """A number halved until 1 is left, an odd one marked; the marks are the bits.

    Example:
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
