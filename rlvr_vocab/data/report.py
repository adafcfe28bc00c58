"""What happened to the rows of a problem set, in numbers and in lines to print."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rlvr_vocab.counted import counted
from rlvr_vocab.data.rows import DroppedRow

EXAMPLES_PER_REASON = 3


@dataclass(frozen=True)
class LoadReport:
    """Where the rows went: `rows_read` is `rows_kept` plus all of `dropped`.

    Args:
        source: The problem set, as the user named it.
        rows_read: Rows in all files or splits that were read.
        rows_kept: Rows that are usable problems.
        train_rows: Problems to train on.
        eval_rows: Held-out problems to measure on.
        dropped: How many rows each reason cost.
        examples: The first of them, for each reason, as (row number from 1, short text).
        duplicates: Rows of the training set that repeat the problem of an earlier one; training keeps those whose
            problem is not held out.
        held_out_removed: Rows taken out of training because their problem is held out.
        unmeasured: Held-out problems beyond `max_eval_samples`: neither trained on nor measured on.
        notes: What was changed in values that are handed on.
    """

    source: str
    rows_read: int
    rows_kept: int
    train_rows: int
    eval_rows: int
    dropped: Mapping[str, int]
    examples: Mapping[str, tuple[tuple[int, str], ...]]
    duplicates: int = 0
    held_out_removed: int = 0
    unmeasured: int = 0
    notes: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """For people: what was kept, then one line for each thing that went otherwise."""
        lines = [
            f"{self.source}: {counted(self.rows_read, 'row')} read, {self.rows_kept:,} usable;"
            f" {self.train_rows:,} to train on, {self.eval_rows:,} held out"
        ]
        for reason, count in self.dropped.items():
            shown = "; ".join(f"row {row_number}: {text}" for row_number, text in self.examples[reason])
            more = "; …" if count > len(self.examples[reason]) else ""
            lines.append(f"dropped {count:,}: {reason} ({shown}{more})")
        if self.duplicates:
            lines.append(f"rows that repeat an earlier problem, kept unless it is held out: {self.duplicates:,}")
        if self.held_out_removed:
            lines.append(f"left out of training, as the same problem is held out: {self.held_out_removed:,}")
        if self.unmeasured:
            lines.append(f"held out too, but beyond dataset.max_eval_samples: {self.unmeasured:,}")
        return [*lines, *self.notes]


def count_reasons(dropped: Iterable[DroppedRow]) -> dict[str, int]:
    """How many rows each reason cost, the costliest first."""
    return dict(Counter(row.reason for row in dropped).most_common())


def first_examples(dropped: Iterable[DroppedRow]) -> dict[str, tuple[tuple[int, str], ...]]:
    """The first rows that each reason cost."""
    by_reason: dict[str, list[tuple[int, str]]] = {}
    for row in dropped:
        by_reason.setdefault(row.reason, []).append((row.row_number, row.shown))
    return {reason: tuple(rows[:EXAMPLES_PER_REASON]) for reason, rows in by_reason.items()}


def count_duplicates(keys: Iterable[str]) -> int:
    """How many keys repeat an earlier one."""
    return sum(count - 1 for count in Counter(keys).values())
