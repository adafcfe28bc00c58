"""Which problems are trained on and which are held out: seeded, and without a problem in common."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from rlvr_vocab.errors import UserError


@dataclass(frozen=True)
class Split:
    """How problems are divided.

    Args:
        eval_fraction: Part of the problems to hold out, from 0 up to but not including 1; at least one
            problem when it is above 0.
        max_train_samples: At most that many problems to train on; None for all.
        max_eval_samples: At most that many held out; None for no limit, 0 for none at all.
        seed: Seed of the shuffle, and of generated problems.

    Raises:
        UserError: If a number is out of range.
    """

    eval_fraction: float = 0.0
    max_train_samples: int | None = None
    max_eval_samples: int | None = None
    seed: int = 42

    def __post_init__(self) -> None:
        if not 0 <= self.eval_fraction < 1:
            raise UserError(
                f"dataset.eval_fraction is {self.eval_fraction}; it must be at least 0 and below 1"
                " (0.1 holds a tenth out)"
            )
        if self.max_train_samples is not None and self.max_train_samples < 1:
            raise UserError(
                f"dataset.max_train_samples is {self.max_train_samples}; it must be at least 1, or null for all"
            )
        if self.max_eval_samples is not None and self.max_eval_samples < 0:
            raise UserError(
                f"dataset.max_eval_samples is {self.max_eval_samples}; it must be at least 0, or null for no limit"
            )


@dataclass(frozen=True)
class Partition:
    """Indices into the problems, in order of use; those of a separate eval set count on after training.

    `removed` counts problems taken out of training because the same problem is held out.
    """

    train: list[int]
    held_out: list[int]
    removed: int


def partition(train_keys: Sequence[str], eval_keys: Sequence[str] | None, split: Split) -> Partition:
    """Shuffle, hold out, take what is held out away from training, and only then cut to `max_train_samples`.

    So a larger `max_train_samples` adds problems and changes neither the earlier ones nor the held-out ones.

    Args:
        train_keys: What identifies each problem of the training set.
        eval_keys: The same for a separate eval set; None when held-out problems come from the training set.
        split: The wanted division.
    """
    order = shuffled(len(train_keys), split.seed)
    if eval_keys is None:
        held_out = order[: num_held_out(len(order), split)]
        candidates = order[len(held_out) :]
        held_out_keys = {train_keys[index] for index in held_out}
    else:
        from_eval = shuffled(len(eval_keys), split.seed)[: split.max_eval_samples]
        held_out = [len(train_keys) + index for index in from_eval]
        candidates = order
        held_out_keys = {eval_keys[index] for index in from_eval}
    train = [index for index in candidates if train_keys[index] not in held_out_keys]
    return Partition(train[: split.max_train_samples], held_out, removed=len(candidates) - len(train))


def num_held_out(num_problems: int, split: Split) -> int:
    """How many problems `eval_fraction` holds out."""
    if split.eval_fraction == 0:
        return 0
    wanted = max(1, round(split.eval_fraction * num_problems))
    return wanted if split.max_eval_samples is None else min(wanted, split.max_eval_samples)


def shuffled(count: int, seed: int) -> list[int]:
    """The numbers below `count` in an order that depends on the seed alone."""
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return order
