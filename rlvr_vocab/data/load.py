"""Loading a problem set: read, sort, hold out, lay out as rows for the trainer, and account for every row."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rlvr_vocab.data.arithmetic import ARITHMETIC_COLUMNS, ArithmeticTask, arithmetic_problems
from rlvr_vocab.data.files import local_file, named_rows, read_rows
from rlvr_vocab.data.reasoning_gym.problems import COLUMNS as GYM_COLUMNS
from rlvr_vocab.data.reasoning_gym.problems import gym_rows
from rlvr_vocab.data.reasoning_gym.tasks import GymProblems, check_tasks
from rlvr_vocab.data.rows import (
    Problem,
    UsableRows,
    column_names,
    disambiguate_by_system_prompt,
    refuse_examples,
    require_columns,
    usable_rows,
)
from rlvr_vocab.data.source import ARITHMETIC, ProblemSource, PromptStyle, Split
from rlvr_vocab.data.warnings import problem_warnings
from rlvr_vocab.errors import UserError
from rlvr_vocab.text import pluralize

if TYPE_CHECKING:
    from datasets import Dataset

EXAMPLES_PER_REASON = 3
FEW_HELD_OUT = 20


@dataclass(frozen=True)
class LoadReport:
    """Where the rows went: `rows_read` is `rows_kept` plus all of `dropped`.

    Args:
        source: The problem set, as the user named it.
        train_rows, eval_rows: Problems to train on, and held-out ones to measure on.
        dropped, examples: For each reason, the number of rows left out, and the first as (row number, short text).
        duplicates: Rows of the training set that repeat the problem of an earlier one.
        held_out_removed: Rows taken out of training because their problem is held out.
        unmeasured: Held-out problems beyond `max_eval_samples`: neither trained on nor measured on.
        warnings: Why the rows may not be what they should be, a line each with the remedy.
        note: A key without an effect, and why.
    """

    source: str
    rows_read: int
    rows_kept: int
    train_rows: int
    eval_rows: int
    dropped: Mapping[str, int]
    examples: Mapping[str, Sequence[tuple[int, str]]]
    duplicates: int = 0
    held_out_removed: int = 0
    unmeasured: int = 0
    warnings: tuple[str, ...] = ()
    note: str = ""

    def lines(self) -> list[str]:
        """For people: how many rows are usable, then one line for each exception."""
        lines = [
            f"{self.source}: {pluralize(self.rows_read, 'row')} read, {self.rows_kept:,} usable;"
            f" {self.train_rows:,} to train on, {self.eval_rows:,} held out"
        ]
        if 0 < self.eval_rows < FEW_HELD_OUT:
            lines.append(
                f"few held-out problems: {self.eval_rows}; a figure on so few says little (dataset.eval_fraction=0.1 "
                "holds out a tenth)"
            )
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
        return [*lines, *([self.note] if self.note else []), *(f"warning: {line}" for line in self.warnings)]


@dataclass(frozen=True)
class ProblemSets:
    """Problems to train on, held-out problems to measure on (None for none), and the account of all rows.

    `reserved_keys` are those of all held-out problems, with the ones beyond `max_eval_samples`.
    """

    train: Dataset
    eval: Dataset | None
    report: LoadReport
    reserved_keys: frozenset[str]


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


@dataclass(frozen=True)
class DividedProblems:
    """A problem set as it was read and divided, row by row; `parts` indexes `problems`."""

    source: ProblemSource
    split: Split
    train_rows: UsableRows
    eval_rows: UsableRows | None
    parts: Partition

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All usable problems: those of the training set, then those of a separate eval set."""
        return self.train_rows.problems + (self.eval_rows.problems if self.eval_rows is not None else ())

    @property
    def trained(self) -> list[Problem]:
        """The problems to train on, in order of use."""
        problems = self.problems
        return [problems[index] for index in self.parts.train]

    @property
    def reserved(self) -> list[Problem]:
        """The held-out problems, those beyond `max_eval_samples` included."""
        problems = self.problems
        return [problems[index] for index in self.parts.reserved]


def load_problem_sets(source: ProblemSource, style: PromptStyle, split: Split) -> ProblemSets:
    """Load the problems that `source` names.

    Raises:
        UserError: they cannot be read, or none is left to train on or to hold out.
    """
    return lay_out(read_problems(source, split), style)


def read_problems(source: ProblemSource, split: Split) -> DividedProblems:
    """Read, sort and divide the problems that `source` names; there may be none.

    Raises:
        UserError: they cannot be read.
    """
    sources = [source] if source.eval_split is None else [source, _eval_source(source)]
    train_rows, *held_out = disambiguate_by_system_prompt([read_usable_rows(each, split.seed) for each in sources])
    train_keys, *eval_keys = ([problem.key for problem in rows.problems] for rows in (train_rows, *held_out))
    parts = partition(train_keys, eval_keys[0] if eval_keys else None, split)
    return DividedProblems(source, split, train_rows, held_out[0] if held_out else None, parts)


def read_usable_rows(source: ProblemSource, seed: int) -> UsableRows:
    """Read one source, whatever its `eval_split`, and sort its rows."""
    if isinstance(source.generator, GymProblems):
        return gym_rows(source.generator, source.split, seed)
    rows: Sequence[object]
    if source.name == ARITHMETIC:
        where, rows = source.name, arithmetic_problems(source.generator or ArithmeticTask(), seed)
    else:
        where, rows = named_rows(source.name, source.subset, source.split)
    _require_table(rows, source, where)
    return usable_rows(rows, source.columns, source.answer_format, source.decimal)


def _eval_source(source: ProblemSource) -> ProblemSource:
    """The source of the held-out problems: the second file, or the other split of the same set."""
    assert source.eval_split is not None
    if local_file(source.name) is None:
        return replace(source, split=source.eval_split, eval_split=None)
    if local_file(source.eval_split) is None:
        raise UserError(
            f'dataset.eval_split is "{source.eval_split}", but dataset.name is a file, which has no splits:'
            " name a second file, or hold problems out with dataset.eval_fraction"
        )
    return replace(source, name=source.eval_split, eval_split=None)


def _require_table(rows: Sequence[object], source: ProblemSource, where: str) -> None:
    if not rows:
        raise UserError(f"{where} has no rows; it must hold at least one problem")
    require_columns(source, column_names(rows), where)


def partition(train_keys: Sequence[str], eval_keys: Sequence[str] | None, split: Split) -> Partition:
    """Shuffle, hold out, take what is held out away from training, and only then cut to `max_train_samples`.

    So a larger `max_train_samples` adds problems and changes neither the earlier ones nor the held-out ones. Of a
    repeated problem that `eval_fraction` takes, one row is reserved and the others are removed.

    Args:
        train_keys, eval_keys: Key of each problem of the training set, and of a separate eval set if there is one.
    """
    order = _shuffled(len(train_keys), split.seed)
    if eval_keys is None:
        first_rows: dict[str, int] = {}
        for index in order:
            first_rows.setdefault(train_keys[index], index)
        wanted = max(1, round(split.eval_fraction * len(first_rows))) if split.eval_fraction else 0
        reserved = list(first_rows.values())[:wanted]
        reserved_keys, not_reserved = {train_keys[index] for index in reserved}, len(order) - len(reserved)
    else:
        reserved = [len(train_keys) + index for index in _shuffled(len(eval_keys), split.seed)]
        reserved_keys, not_reserved = set(eval_keys), len(order)
    train = [index for index in order if train_keys[index] not in reserved_keys]
    return Partition(
        train[: split.max_train_samples],
        reserved[: split.max_eval_samples],
        reserved,
        removed=not_reserved - len(train),
    )


def _shuffled(count: int, seed: int) -> list[int]:
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return order


def lay_out(divided: DividedProblems, style: PromptStyle) -> ProblemSets:
    """The rows for the trainer, and the account of all rows.

    Raises:
        UserError: no problem is left to train on or to hold out.
    """
    from rlvr_vocab.data.table import problem_table  # with `datasets`, which takes a second

    parts = divided.parts
    report = build_report(divided)
    if style.system_prompt and all((each.messages or [{}])[0].get("role") == "system" for each in divided.problems):
        line = "dataset.system_prompt reaches no prompt: every row has a system message of its own"
        report = replace(report, note=line)
    require_problems(report, wants_eval=divided.eval_rows is not None and divided.split.max_eval_samples != 0)
    table = problem_table(divided.problems, style, divided.source.columns)
    held_out = table.select(parts.held_out) if parts.held_out else None
    return ProblemSets(table.select(parts.train), held_out, report, frozenset(each.key for each in divided.reserved))


def build_report(divided: DividedProblems) -> LoadReport:
    """Account for every row; a row of the eval set has its name in the reason."""
    source, parts, train_rows, eval_rows = divided.source, divided.parts, divided.train_rows, divided.eval_rows
    dropped, problems, kept = list(train_rows.dropped), train_rows.problems, len(divided.problems)
    if eval_rows is not None:
        dropped += [replace(row, reason=f"{row.reason}, in {source.eval_split}") for row in eval_rows.dropped]
    by_reason: dict[str, list[tuple[int, str]]] = {}
    for row in dropped:
        by_reason.setdefault(row.reason, []).append((row.row_number, row.shown))
    return LoadReport(
        source=source.name,
        rows_read=kept + len(dropped),
        rows_kept=kept,
        train_rows=len(parts.train),
        eval_rows=len(parts.held_out),
        dropped=dict(Counter(row.reason for row in dropped).most_common()),
        examples={reason: rows[:EXAMPLES_PER_REASON] for reason, rows in by_reason.items()},
        duplicates=len(problems) - len({problem.key for problem in problems}),
        held_out_removed=parts.removed,
        unmeasured=len(parts.reserved) - len(parts.held_out),
        warnings=tuple(problem_warnings(problems, source.columns)),
    )


def require_problems(report: LoadReport, wants_eval: bool) -> None:
    """Refuse a set with nothing to train on, or without the held-out problems that were asked for."""
    if report.train_rows == 0:
        raise UserError("no problem is left to train on: " + "; ".join(report.lines()))
    if wants_eval and report.eval_rows == 0:
        raise UserError("no held-out problem is usable: " + "; ".join(report.lines()))


def check_source(source: ProblemSource, style: PromptStyle) -> None:
    """Find what is wrong with a source before anything heavy loads; a hub set or a folder is not looked up.

    Raises:
        UserError: a file is missing, empty, unreadable, of unknown kind, or lacks a mapped column, or solved turns
            would stand before conversations.
    """
    if isinstance(source.generator, GymProblems):
        check_tasks(source.generator)
        require_columns(source, GYM_COLUMNS, source.name)
    elif source.name == ARITHMETIC:
        require_columns(source, ARITHMETIC_COLUMNS, source.name)
    elif (path := local_file(source.name)) is not None:
        rows = read_rows(path)
        _require_table(rows, source, str(path.absolute()))
        if any(isinstance(row, dict) and isinstance(row.get(source.columns.problem), list) for row in rows):
            refuse_examples(style)
        if source.eval_split is not None:
            check_source(_eval_source(source), style)
