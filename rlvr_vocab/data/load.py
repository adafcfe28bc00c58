"""Loading a problem set: read, sort, hold out, lay out as rows for the trainer, and account for every row."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rlvr_vocab.data.arithmetic import ARITHMETIC_COLUMNS, ArithmeticTask, arithmetic_problems
from rlvr_vocab.data.doubts import missing_columns, numbered_choices, turns_in_problems
from rlvr_vocab.data.files import expanded, local_file, one_line, read_rows
from rlvr_vocab.data.reasoning_gym.problems import COLUMNS as GYM_COLUMNS
from rlvr_vocab.data.reasoning_gym.problems import gym_rows
from rlvr_vocab.data.reasoning_gym.tasks import GymProblems, check_tasks
from rlvr_vocab.data.rows import (
    Problem,
    UsableRows,
    column_names,
    disambiguate_by_system_prompt,
    require_columns,
    usable_rows,
)
from rlvr_vocab.data.source import ARITHMETIC, Columns, ProblemSource
from rlvr_vocab.data.split import Partition, Split, partition
from rlvr_vocab.data.table import PromptStyle, problem_table, refuse_examples
from rlvr_vocab.errors import UserError
from rlvr_vocab.text import pluralize

if TYPE_CHECKING:
    import datasets

EXAMPLES_PER_REASON = 3
FEW_HELD_OUT = 20


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
        doubts: Why the rows may not be what they should be, a line each with what to do.
        missing_columns: The same of columns that the questions need.
        reaches_no_prompt: A key without an effect, and why.
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
    doubts: tuple[str, ...] = ()
    missing_columns: tuple[str, ...] = ()
    reaches_no_prompt: str = ""

    def lines(self) -> list[str]:
        """For people: what was kept, then one line for each thing that went otherwise."""
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
        lines += [self.reaches_no_prompt] if self.reaches_no_prompt else []
        lines += [f"warning: {line}" for line in (*self.doubts, *self.missing_columns)]
        return lines


@dataclass(frozen=True)
class ProblemSets:
    """Problems to train on, held-out problems to measure on (None for none), and what happened on the way.

    `reserved_keys` tells the held-out problems, those beyond `max_eval_samples` included.

    Columns of both: `prompt` (list of messages), `problem` (its text), `solution` and `answer` (the bare final answer,
    twice) when a column of answers is mapped, `reasoning` when that column is mapped, then the original columns,
    `raw_<name>` where the name is taken.
    """

    train: "datasets.Dataset"
    eval: "datasets.Dataset | None"
    report: LoadReport
    reserved_keys: frozenset[str]


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
        UserError: If they cannot be read, or none is left to train on or to hold out.
    """
    return lay_out(read_problems(source, split), style)


def read_problems(source: ProblemSource, split: Split) -> DividedProblems:
    """Read, sort and divide the problems that `source` names; there may be none.

    Raises:
        UserError: If they cannot be read.
    """
    sources = [source] if source.eval_split is None else [source, eval_source(source)]
    train_rows, *held_out = disambiguate_by_system_prompt([read_usable_rows(each, split.seed) for each in sources])
    train_keys, *eval_keys = ([problem.key for problem in rows.problems] for rows in (train_rows, *held_out))
    parts = partition(train_keys, eval_keys[0] if eval_keys else None, split)
    return DividedProblems(source, split, train_rows, held_out[0] if held_out else None, parts)


def lay_out(divided: DividedProblems, style: PromptStyle) -> ProblemSets:
    """The rows for the trainer, and the account of what was read.

    Raises:
        UserError: If no problem is left to train on or to hold out.
    """
    parts = divided.parts
    table = problem_table(divided.problems, style, divided.source.columns)
    report = build_report(divided)
    if style.system_prompt and all((each.messages or [{}])[0].get("role") == "system" for each in divided.problems):
        line = "dataset.system_prompt reaches no prompt: every row has a system message of its own"
        report = replace(report, reaches_no_prompt=line)
    require_problems(report, wants_eval=divided.eval_rows is not None and divided.split.max_eval_samples != 0)
    held_out = table.rows(parts.held_out) if parts.held_out else None
    reserved_keys = frozenset(problem.key for problem in divided.reserved)
    return ProblemSets(table.rows(parts.train), held_out, report, reserved_keys)


def check_source(source: ProblemSource, style: PromptStyle) -> None:
    """Find what is wrong with a source before anything heavy loads; a hub set or a folder is not looked up.

    Raises:
        UserError: If a file is missing, empty, unreadable, of unknown kind, or lacks a mapped column, or if solved
            turns would stand before conversations.
    """
    if isinstance(source.generator, GymProblems):
        check_tasks(source.generator)
        require_columns(source.columns, GYM_COLUMNS, source.name)
        return
    if source.name == ARITHMETIC:
        require_columns(source.columns, ARITHMETIC_COLUMNS, source.name)
        return
    path = local_file(source.name)
    if path is None:
        return
    rows = read_rows(path)
    require_table(rows, source.columns, str(path.absolute()))
    if any(isinstance(row, dict) and isinstance(row.get(source.columns.problem), list) for row in rows):
        refuse_examples(style, f'column "{source.columns.problem}"')
    if source.eval_split is not None:
        check_source(eval_source(source), style)


def eval_source(source: ProblemSource) -> ProblemSource:
    """The source of the held-out problems: the second file, or the other split of the same set."""
    if source.eval_split is None:
        raise ValueError("the source names no eval_split")
    if local_file(source.name) is None:
        return replace(source, split=source.eval_split, eval_split=None)
    if local_file(source.eval_split) is None:
        raise UserError(
            f'dataset.eval_split is "{source.eval_split}", but dataset.name is a file, which has no splits:'
            " name a second file, or hold problems out with dataset.eval_fraction"
        )
    return replace(source, name=source.eval_split, eval_split=None)


def read_usable_rows(source: ProblemSource, seed: int) -> UsableRows:
    """Read one source and sort its rows."""
    rows: Sequence[object]
    if isinstance(source.generator, GymProblems):
        return gym_rows(source.generator, source.split, seed)
    if source.name == ARITHMETIC:
        where, rows = source.name, arithmetic_problems(source.generator or ArithmeticTask(), seed)
    else:
        where, rows = named_rows(source.name, source.subset, source.split)
    require_table(rows, source.columns, where)
    return usable_rows(rows, source.columns, source.answer_format, source.decimal)


def named_rows(name: str, subset: str | None, split: str) -> tuple[str, Sequence[object]]:
    """Where the rows of a file, or of a set that `datasets` reads, come from, and the rows."""
    path = local_file(name)
    if path is None:
        return name, hub_rows(name, subset, split)
    return str(path.absolute()), read_rows(path)


def require_table(rows: Sequence[object], columns: Columns, where: str) -> None:
    """Refuse a problem set without rows or without a mapped column."""
    if not rows:
        raise UserError(f"{where} has no rows; it must hold at least one problem")
    require_columns(columns, column_names(rows), where)


def build_report(divided: DividedProblems) -> LoadReport:
    """Account for every row; a row of the eval set says so in its reason."""
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
        examples={reason: tuple(rows[:EXAMPLES_PER_REASON]) for reason, rows in by_reason.items()},
        duplicates=len(train_rows.problems) - len({problem.key for problem in train_rows.problems}),
        held_out_removed=parts.removed,
        unmeasured=parts.unmeasured,
        doubts=(*turns_in_problems(problems), *numbered_choices(problems, source.columns)),
        missing_columns=tuple(missing_columns(problems, source.columns)),
    )


def require_problems(report: LoadReport, wants_eval: bool) -> None:
    """Refuse a set with nothing to train on, or without the held-out problems that were asked for."""
    if report.train_rows == 0:
        raise UserError("no problem is left to train on: " + "; ".join(report.lines()))
    if wants_eval and report.eval_rows == 0:
        raise UserError("no held-out problem is usable: " + "; ".join(report.lines()))


def hub_rows(name: str, subset: str | None, split: str) -> list[dict[str, Any]]:
    """The rows of one split.

    Raises:
        UserError: If it cannot be had: offline, no such set, configuration or split, no access.
    """
    from datasets import load_dataset

    # `datasets` does not know a home folder's `~`.
    place = str(expanded(name)) if name.startswith("~") else name
    try:
        return load_dataset(place, subset, split=split).to_list()
    # The hub's client lets through anything from httpx.ConnectError to a script's RuntimeError;
    # to the user all of them mean that this set cannot be had, and the cause is kept in the line.
    except Exception as error:
        wanted = f"split {split}" if subset is None else f"configuration {subset}, split {split}"
        raise UserError(
            f"dataset {name} ({wanted}) could not be loaded from the Hugging Face hub or a folder:"
            f" {one_line(error)}; to read a local file, set dataset=local dataset.name=FILE"
        ) from error
