"""Which problems are trained on and which are held out: seeded, and without a problem in common."""

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Split:
    """How problems are divided.

    Args:
        eval_fraction: Part of the different problems to take away from training, from 0 up to but not including 1;
            at least one problem when it is above 0.
        max_train_samples: At most that many problems to train on; None for all.
        max_eval_samples: At most that many of those taken away are measured on; None for all, 0 for none.
        seed: Seed of the shuffle, and of generated problems.
    """

    eval_fraction: float = 0.0
    max_train_samples: int | None = None
    max_eval_samples: int | None = None
    seed: int = 42


@dataclass(frozen=True)
class Partition:
    """Indices into the problems, in order of use; those of a separate eval set count on after training.

    `reserved` are never trained on, and `held_out`, the first of them, are measured on. `removed` counts problems
    taken out of training because the same problem is reserved.
    """

    train: list[int]
    held_out: list[int]
    reserved: list[int]
    removed: int

    @property
    def unmeasured(self) -> int:
        """How many problems are reserved beyond `max_eval_samples`."""
        return len(self.reserved) - len(self.held_out)


def partition(train_keys: Sequence[str], eval_keys: Sequence[str] | None, split: Split) -> Partition:
    """Shuffle, hold out, take what is held out away from training, and only then cut to `max_train_samples`.

    So a larger `max_train_samples` adds problems and changes neither the earlier ones nor the held-out ones, and
    `max_eval_samples` changes nothing about training: a problem that it leaves out is still never trained on.

    Of problems that are repeated, `eval_fraction` takes its part as if each stood there once, and of one that it
    takes, one row is reserved and the others are removed; those of training stay as often as they stand there.

    Args:
        train_keys: What identifies each problem of the training set.
        eval_keys: The same for a separate eval set; None when held-out problems come from the training set.
        split: The wanted division.
    """
    order = shuffled(len(train_keys), split.seed)
    if eval_keys is None:
        first_rows: dict[str, int] = {}
        for index in order:
            first_rows.setdefault(train_keys[index], index)
        wanted = max(1, round(split.eval_fraction * len(first_rows))) if split.eval_fraction else 0
        reserved = list(first_rows.values())[:wanted]
        reserved_keys, not_reserved = {train_keys[index] for index in reserved}, len(order) - len(reserved)
    else:
        reserved = [len(train_keys) + index for index in shuffled(len(eval_keys), split.seed)]
        reserved_keys, not_reserved = set(eval_keys), len(order)
    train = [index for index in order if train_keys[index] not in reserved_keys]
    return Partition(
        train[: split.max_train_samples],
        reserved[: split.max_eval_samples],
        reserved,
        removed=not_reserved - len(train),
    )


def shuffled(count: int, seed: int) -> list[int]:
    """The numbers below `count` in an order that depends on the seed alone."""
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return order
