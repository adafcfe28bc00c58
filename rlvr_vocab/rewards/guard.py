"""Stands between a reward function and the trainer: what is not a score becomes None, counted, with a warning."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import reprlib
import sysconfig
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.deadline import Deadline, DeadlineThread, StillWanted, TimedOut, run_coroutine
from rlvr_vocab.rewards.reward import Score
from rlvr_vocab.rewards.turns import turn_text
from rlvr_vocab.secrets import without_secrets
from rlvr_vocab.text import pluralize, writable

logger = logging.getLogger(__name__)

# The first mistakes of a function are told one by one, then every tenth, from the hundredth on every hundredth, …
_TOLD_ONE_BY_ONE = 3
_OF_THE_WHOLE_BATCH = ("trainer_state", "log_extra", "log_metric", "environments")
_LOGGING = ("log_extra", "log_metric")
# What the trainer's columns of reasons are called, before the name of the function.
REASON = "reason/"
# Where the user's own code is not: frames of an error that are passed over when its line is looked for.
_NOT_THE_USERS = (f"{Path(__file__).parents[1]}{os.sep}", f"{sysconfig.get_paths()['stdlib']}{os.sep}", "<frozen ")
# What a user's function may raise: also what is meant to end a program, or a task within it.
_RAISED = (Exception, SystemExit, asyncio.CancelledError)
# A trainer keeps rewards as float32, in which anything larger is infinite.
LARGEST_SCORE = 3.4028234e38


class NotAScore(ValueError):
    """What a reward function returned for a row, or for a batch, cannot be a score."""


@dataclass(frozen=True)
class Mistake(Score):
    """The score of a row where a function raised or returned no score: None, and what it did instead.

    Attributes:
        of_the_batch: it concerns what was returned for the batch, and no row in particular.
    """

    of_the_batch: bool = False


class GuardedReward:
    """A reward function whose mistakes cost a row, not a run.

    A row for which the function raises, or returns something else than a finite number or None, scores None; so do
    all rows where it returns no list of the batch's length. Every such row is counted in `failures` and told in a
    warning that names function, row and value. Asynchronous functions are awaited. The function gets lists of its
    own, with the cells of all.

    With a deadline it runs in a thread of its own. Rows without a score when that is over score None, those of later
    batches too as long as it hangs. The deadline holds for a batch, rows that are tried again one by one included.

    Args:
        function: called with columns by name; returns numbers, None or scores.
        name: what it is told and logged as.
        deadline: seconds for a batch; None for any time, in the thread of the caller.

    Attributes:
        failures: rows that scored None because of a mistake, so far.
    """

    def __init__(self, function: Callable[..., Any], name: str, deadline: float | None = None) -> None:
        self.function = function
        self.name = self.__name__ = name
        self.deadline = deadline
        self.failures = 0
        self._thread = None if deadline is None else DeadlineThread(f"reward {name}")

    def __call__(self, **columns: Any) -> list[float | None]:
        scores = self.explain(**columns)
        before = self.failures
        self._tell(scores, columns)
        log_metric, log_extra = columns.get("log_metric"), columns.get("log_extra")
        timeouts = sum(score.timed_out for score in scores)
        if log_metric is not None and self.failures > before:
            log_metric(f"rewards/{self.name}/failures", float(self.failures - before))
        if log_metric is not None and timeouts:
            log_metric(f"rewards/{self.name}/timeouts", float(timeouts))
        if log_extra is not None:  # of every batch, said or not: the trainer keeps columns of one length
            log_extra(f"{REASON}{self.name}", [score.reason for score in scores])
        return [score.value for score in scores]

    def explain(self, **columns: Any) -> list[Score]:
        """Scores with reasons where the function gives any, and a `Mistake` for each row that it failed on.

        Raises:
            UserError: the function says itself that it is used wrongly.
        """
        rows = len(columns["completions"])
        deadline = Deadline(self.deadline)
        try:
            return self._called(columns, deadline)
        except (NotAScore, TimedOut) as why:
            timed_out = isinstance(why, TimedOut)
            return [Mistake(None, str(why), of_the_batch=True, timed_out=timed_out)] * rows
        except UserError:
            raise
        except _RAISED as error:
            return self._row_by_row(columns, rows, _said(error), deadline)

    def call(self, columns: Mapping[str, Any]) -> Any:
        return self.function(**columns)

    def _called(self, columns: dict[str, Any], deadline: Deadline) -> list[Score]:
        """The scores of a batch, mistakes in single values among them; whatever else goes wrong is raised."""
        given, rows = _copies(columns), len(columns["completions"])
        if self._thread is None:
            return self._scores_of(given, rows, deadline)
        return self._thread.call(
            lambda wanted: self._scores_of(_logging_while(wanted, given), rows, deadline), deadline
        )

    def _scores_of(self, given: dict[str, Any], rows: int, deadline: Deadline) -> list[Score]:
        return [score_of(value) for value in values_of(self.call(given), rows, deadline)]

    def _row_by_row(self, columns: dict[str, Any], rows: int, raised: str, deadline: Deadline) -> list[Score]:
        """Keep the scores of the rows for which the function does not raise."""
        scores = [self._score_alone(columns, row, deadline) for row in range(rows)]
        if any(isinstance(score, Mistake) for score in scores):
            return scores
        # It raises for no row alone, only for something about the batch.
        logger.warning("reward %s %s, and not when it was called row by row: no row is lost", self.name, raised)
        return scores

    def _score_alone(self, columns: dict[str, Any], row: int, deadline: Deadline) -> Score:
        try:
            [score] = self._called(_row_alone(columns, row), deadline)
        except (NotAScore, TimedOut) as why:
            return Mistake(None, str(why), timed_out=isinstance(why, TimedOut))
        except _RAISED as error:
            return Mistake(None, _said(error))
        return score

    def _tell(self, scores: list[Score], columns: dict[str, Any]) -> None:
        """Count the mistakes among the scores of a batch, and warn of the first and then ever fewer of them."""
        for row, score in enumerate(scores):
            if not isinstance(score, Mistake):
                continue
            self.failures += 1
            count = self.failures
            if score.of_the_batch:
                if row == 0:
                    logger.warning("reward %s %s: all of them score None", self.name, score.reason)
            elif count <= _TOLD_ONE_BY_ONE or (count >= 10 and count % 10 ** (len(str(count)) - 1) == 0):
                shown = shown_row(columns["completions"], row)
                logger.warning(
                    "reward %s %s for %s: it scores None (such rows so far: %d)", self.name, score.reason, shown, count
                )


def shown_row(completions: Any, row: int) -> str:
    """A row as a person finds it again: its number from 1, and how its completion begins."""
    text = " ".join(turn_text(completions[row]).split())
    return f"row {row + 1} ({text[:50]!r}{'…' if len(text) > 50 else ''})"


def values_of(result: Any, rows: int, deadline: Deadline) -> list[Any]:
    """What a function returned, as a list with a value per row.

    Lists, tuples and other sequences will do, as will numpy arrays and torch tensors of one dimension. What can be
    awaited is awaited, and cancelled at the deadline.

    Raises:
        NotAScore: it is something else, or of another length.
        TimedOut: it was cancelled.
    """
    if inspect.isawaitable(result):
        result = run_coroutine(_awaited(result, deadline))
    if getattr(result, "ndim", None) == 1 and hasattr(result, "tolist"):
        result = result.tolist()
    if not isinstance(result, Sequence) or isinstance(result, str | bytes | bytearray):
        shape = getattr(result, "shape", None)
        shape = f" of shape {tuple(shape)}" if shape else ""
        raise NotAScore(f"returned {_with_type(result)}{shape}, not a list")
    if len(result) != rows:
        raise NotAScore(f"returned {pluralize(len(result), 'value')} for {pluralize(rows, 'row')}")
    return list(result)


def score_of(value: Any) -> Score:
    """A score as it is, a number or None as a score without a reason, a `Mistake` for anything else."""
    try:
        if isinstance(value, Score):
            return Score(_finite_number(value.value), value.reason, bool(value.timed_out))
        return Score(_finite_number(value), "")
    except NotAScore as mistake:
        return Mistake(None, str(mistake))
    except _RAISED as error:  # an object that cannot even be looked at: a tensor without storage, for instance
        return Mistake(None, f"returned {type(value).__name__}, which {_said(error)}")


def _finite_number(value: Any) -> float | None:
    if value is None:
        return None
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):  # a scalar of numpy or torch
        value = value.item()
    if not isinstance(value, Real | Decimal):
        raise NotAScore(f"returned {_with_type(value)}, not a number")
    score = float(value)
    if not abs(score) <= LARGEST_SCORE:  # NaN too
        raise NotAScore(f"returned {score}, which is no finite float32")
    return score


def _with_type(value: Any) -> str:
    """`'yes' (a str)`: a value on one short line, and its type."""
    shown, name = " ".join(reprlib.repr(value).split()), type(value).__name__
    return shown if value is None else f"{shown} ({'an' if name[:1].lower() in 'aeiou' else 'a'} {name})"


async def _awaited(awaitable: Any, deadline: Deadline) -> Any:
    try:
        async with asyncio.timeout(deadline.left()) as limit:
            return await awaitable
    except TimeoutError:
        if limit.expired():
            raise deadline.missed() from None
        raise


def _copies(columns: dict[str, Any]) -> dict[str, Any]:
    given = {name: list(column) if isinstance(column, list) else column for name, column in columns.items()}
    log_extra = columns.get("log_extra")
    if log_extra is not None:  # a trainer writes these columns to files

        def log_writable(column: str, values: Sequence[Any]) -> None:
            log_extra(writable(column), [writable(each) if isinstance(each, str) else each for each in values])

        given["log_extra"] = log_writable
    return given


def _logging_while(wanted: StillWanted, columns: dict[str, Any]) -> dict[str, Any]:
    """A call that was given up logs nothing any more: the trainer is at another batch by then."""

    def kept_from_it(log: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: log(*args, **kwargs) if wanted() else None

    return {name: kept_from_it(value) if name in _LOGGING else value for name, value in columns.items()}


def _row_alone(columns: dict[str, Any], row: int) -> dict[str, Any]:
    rows = len(columns["completions"])

    def is_per_row(name: str, values: Any) -> bool:
        return name not in _OF_THE_WHOLE_BATCH and isinstance(values, list | tuple) and len(values) == rows

    return {name: values[row : row + 1] if is_per_row(name, values) else values for name, values in columns.items()}


def _said(error: BaseException) -> str:
    """`raised KeyError: 'x' (mine.py, line 12)`: an error and the line of the user's file that it came through."""
    text = without_secrets(" ".join(str(error)[:2_000].split()))[:200]  # addresses of services hold keys
    return f"raised {type(error).__name__}{': ' * bool(text)}{text}{_where(error)}"


def _where(error: BaseException) -> str:
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    users = [
        (file, line) for file, line in frames if not file.startswith(_NOT_THE_USERS) and "site-packages" not in file
    ]
    if not users:
        return ""
    file, line = [place for place in users if place[0] == users[0][0]][-1]
    return f" ({Path(file).name}, line {line})"
