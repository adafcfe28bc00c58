"""Which task families of reasoning-gym a problem set is made of, what they take, and how many problems of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from itertools import pairwise
from typing import Annotated, Any

from annotated_types import Gt

from rlvr_vocab.data.files import one_line
from rlvr_vocab.data.reasoning_gym.worked_solutions import WORKED
from rlvr_vocab.errors import UserError
from rlvr_vocab.text import did_you_mean

REASONING_GYM = "reasoning_gym"
# From seeds that have none in common.
SPLITS = ("train", "held_out", "test")
INSTALL = "pip install -e '.[gym]' (it builds a small extension, which wants a C compiler)"

# Fields of every family's configuration that are no parameters here, and the keys that decide them.
_OF_THE_RUN = {"seed": "seed", "size": "dataset.num_problems"}
_MIXTURE = "composite"  # a family of families, which `tasks` is already


@dataclass(frozen=True)
class GymTask:
    """A task family.

    Args:
        name: What reasoning-gym calls it.
        weight: Its share of the problems, relative to the weights of the others.
        params: Fields of its configuration, which decide how difficult it is; the others have their defaults.
    """

    name: str
    weight: Annotated[float, Gt(0)] = 1.0
    params: dict[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class GymProblems:
    """What a problem set is made of.

    Args:
        tasks: The families.
        num_problems: How many problems are made to train on and to hold out.
        num_held_out: How many of these are held out; as many has the split `test`.
    """

    tasks: tuple[GymTask, ...]
    num_problems: int
    num_held_out: int

    def shares(self, split: str) -> list[int]:
        """How many problems of each task a split has, by the weights.

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
    """Refuse tasks that cannot be made before anything heavy loads.

    Raises:
        UserError: The package is missing, a task or one of its parameters is unknown or refused, or there are more
            tasks than problems.
    """
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


def without_worked_solutions(tasks: Sequence[GymTask]) -> list[str]:
    """The names of tasks that there are no worked solutions for."""
    return [task.name for task in tasks if task.name not in WORKED]
