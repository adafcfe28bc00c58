"""A reward of a run, as a trainer calls it: what is not a score becomes None, is counted, and is warned about."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import reprlib
import sysconfig
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from numbers import Real
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.adaptive import Adaptation, AdaptiveWeight
from rlvr_vocab.rewards.deadline import Deadline, DeadlineThread, StillWanted, TimedOut, run_coroutine
from rlvr_vocab.rewards.reward import Score, traits_of
from rlvr_vocab.rewards.turns import turn_text
from rlvr_vocab.secrets import without_secrets
from rlvr_vocab.text import pluralize, writable

logger = logging.getLogger(__name__)

# Names of the trainer's columns of reasons begin with this.
REASON = "reason/"
# A trainer keeps rewards as float32, in which anything larger is infinite.
LARGEST_SCORE = 3.4028234e38
_OF_THE_WHOLE_BATCH = ("trainer_state", "log_extra", "log_metric", "environments")
# Where code of the user is not: these frames are passed over when the line of an error is looked for.
_NOT_USER_CODE = (f"{Path(__file__).parents[1]}{os.sep}", f"{sysconfig.get_paths()['stdlib']}{os.sep}", "<frozen ")
# Also those that are meant to end a program, or a task within it.
_RAISED = (Exception, SystemExit, asyncio.CancelledError)


class NotAScore(ValueError):
    """A returned value cannot be a score."""


class Reward:
    """A reward function with its weight and parameters, whose mistakes cost a row, not a run.

    A row for which it raises, or returns something else than a finite number or None, scores None; so do all rows where
    it returns no list of the batch's length. They are counted in `failures` and warned about. Asynchronous functions
    are awaited. With a deadline, in seconds for a batch, it runs in a thread of its own; rows without a score by then
    score None, those of later batches too as long as it hangs.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        *,
        weight: float = 1.0,
        params: Mapping[str, Any] | None = None,
        full_mark: float | None = None,
        adaptive: Adaptation | None = None,
        deadline: float | None = None,
    ) -> None:
        self.function, self.traits = function, traits_of(function)
        self.name = self.__name__ = name
        self.weight, self.params, self.deadline = weight, dict(params or {}), deadline
        self.full_mark = self.traits.full_mark if full_mark is None else full_mark
        self.adaptive = AdaptiveWeight(weight, self.full_mark, adaptive) if adaptive else None
        self.failures = 0
        self._thread = None if deadline is None else DeadlineThread(f"reward {name}")
        parameters = inspect.signature(function).parameters.values()
        self._takes = {item.name for item in parameters if item.kind is not item.VAR_KEYWORD}
        self._takes_any = len(self._takes) < len(parameters)

    def __call__(self, **columns: Any) -> list[float | None]:
        scores = self.explain(**columns)
        before = self.failures
        self._count_and_warn(scores, columns)
        log_metric, log_extra = columns.get("log_metric"), columns.get("log_extra")
        timeouts = sum(score.timed_out for score in scores)
        if log_metric is not None and self.failures > before:
            log_metric(f"rewards/{self.name}/failures", float(self.failures - before))
        if log_metric is not None and timeouts:
            log_metric(f"rewards/{self.name}/timeouts", float(timeouts))
        if log_extra is not None:  # with every batch: the trainer keeps columns of one length
            log_extra(f"{REASON}{self.name}", [score.reason for score in scores])
        return [score.value for score in scores]

    def explain(self, **columns: Any) -> list[Score]:
        """Scores with reasons where the function gives any, and failed ones for the rows of its mistakes.

        Raises:
            UserError: a function of the library finds a parameter wrong or missing.
        """
        rows = len(columns["completions"])
        deadline = Deadline(self.deadline)
        try:
            return self._scores(columns, deadline)
        except (NotAScore, TimedOut) as why:
            return [_mistake(why, "batch")] * rows
        except UserError:
            raise
        except _RAISED as error:
            scores = [self._score_alone(columns, row, deadline) for row in range(rows)]
            if not any(score.failed for score in scores):
                logger.warning(
                    "reward %s %s, and not when it was called row by row: no row is lost", self.name, _raised(error)
                )
            return scores

    def arguments(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """The columns that the function takes, and its parameters."""
        settings = getattr(self.function, "settings", ())  # a column of that name is no value for them
        taken = {
            name: values
            for name, values in columns.items()
            if name not in settings and (self._takes_any or name in self._takes)
        }
        return {**taken, **self.params}

    def check_parameters(self) -> None:
        """Raises UserError where a function of the library cannot take the values of its parameters."""
        if getattr(self.function, "settings", None):
            self._call(dict.fromkeys(self._takes, ()))

    def _call(self, columns: Mapping[str, Any]) -> Any:
        explain = getattr(self.function, "explain", None)
        return (explain if callable(explain) else self.function)(**self.arguments(columns))

    def _scores(self, columns: dict[str, Any], deadline: Deadline) -> list[Score]:
        """The scores of a batch, failed ones for single values among them; other mistakes are raised."""
        given, rows = _copies(columns), len(columns["completions"])

        def score(given: dict[str, Any]) -> list[Score]:
            return [score_of(value) for value in values_of(self._call(given), rows, deadline)]

        if self._thread is None:
            return score(given)
        return self._thread.call(lambda wanted: score(_logging_while(wanted, given)), deadline)

    def _score_alone(self, columns: dict[str, Any], row: int, deadline: Deadline) -> Score:
        try:
            [score] = self._scores(_row_alone(columns, row), deadline)
        except _RAISED as error:
            return _mistake(error, "row")
        return score

    def _count_and_warn(self, scores: list[Score], columns: dict[str, Any]) -> None:
        """Warn of a mistake of the batch, of the first three rows, then of every tenth, every hundredth, …"""
        for row, score in enumerate(scores):
            self.failures += score.failed is not None
            count = self.failures
            if score.failed == "batch" and row == 0:
                logger.warning("reward %s %s: all of them score None", self.name, score.reason)
            elif score.failed == "row" and (count <= 3 or (count >= 10 and count % 10 ** (len(str(count)) - 1) == 0)):
                shown = _shown_row(columns["completions"], row)
                logger.warning(
                    "reward %s %s for %s: it scores None (such rows so far: %d)", self.name, score.reason, shown, count
                )


def values_of(result: Any, rows: int, deadline: Deadline) -> list[Any]:
    """A function's result as a list with a value per row; an awaitable is cancelled at the deadline.

    Raises:
        NotAScore: it is no sequence, array or tensor of one dimension with so many values.
        TimedOut: it was cancelled.
    """
    if inspect.isawaitable(result):
        result = run_coroutine(_awaited(result, deadline))
    if getattr(result, "ndim", None) == 1 and hasattr(result, "tolist"):
        result = result.tolist()
    if not isinstance(result, Sequence) or isinstance(result, str | bytes | bytearray):
        shape = getattr(result, "shape", None)
        raise NotAScore(f"returned {_with_type(result)}{f' of shape {tuple(shape)}' if shape else ''}, not a list")
    if len(result) != rows:
        raise NotAScore(f"returned {pluralize(len(result), 'value')} for {pluralize(rows, 'row')}")
    return list(result)


def score_of(value: Any) -> Score:
    """A returned value as a score, a failed one where it is no score, no finite number and not None."""
    try:
        if isinstance(value, Score):
            return replace(value, value=_finite_number(value.value), timed_out=bool(value.timed_out))
        return Score(_finite_number(value), "")
    except NotAScore as error:
        return _mistake(error, "row")
    except _RAISED as error:  # an object that cannot even be looked at: a tensor without storage, for instance
        return Score(None, f"returned {type(value).__name__}, which {_raised(error)}", failed="row")


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
        raise  # its own


def _copies(columns: dict[str, Any]) -> dict[str, Any]:
    """Lists that the function may change, and a `log_extra` that takes any text."""
    given = {name: list(column) if isinstance(column, list) else column for name, column in columns.items()}
    log_extra = columns.get("log_extra")
    if log_extra is not None:  # a trainer writes these columns to files

        def log_writable(column: str, values: Sequence[Any]) -> None:
            log_extra(writable(column), [writable(each) if isinstance(each, str) else each for each in values])

        given["log_extra"] = log_writable
    return given


def _logging_while(wanted: StillWanted, columns: dict[str, Any]) -> dict[str, Any]:
    """An abandoned call logs nothing any more: the trainer is at another batch by then."""

    def while_wanted(log: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: log(*args, **kwargs) if wanted() else None

    return {
        name: while_wanted(value) if name in ("log_extra", "log_metric") else value for name, value in columns.items()
    }


def _row_alone(columns: dict[str, Any], row: int) -> dict[str, Any]:
    rows = len(columns["completions"])
    return {
        name: values[row : row + 1]
        if name not in _OF_THE_WHOLE_BATCH and isinstance(values, list | tuple) and len(values) == rows
        else values
        for name, values in columns.items()
    }


def _mistake(error: BaseException, of: Any) -> Score:
    described = str(error) if isinstance(error, NotAScore | TimedOut) else _raised(error)
    return Score(None, described, timed_out=isinstance(error, TimedOut), failed=of)


def _raised(error: BaseException) -> str:
    """`raised KeyError: 'x' (mine.py, line 12)`: an error and the line of the user's file that it came through."""
    text = without_secrets(" ".join(str(error)[:2_000].split()))[:200]  # addresses of services hold keys
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    users = [place for place in frames if not place[0].startswith(_NOT_USER_CODE) and "site-packages" not in place[0]]
    where = ""
    if users:
        file, line = [place for place in users if place[0] == users[0][0]][-1]
        where = f" ({Path(file).name}, line {line})"
    return f"raised {type(error).__name__}{': ' * bool(text)}{text}{where}"


def _shown_row(completions: Any, row: int) -> str:
    """The number of a row, from 1, and how its completion begins."""
    text = " ".join(turn_text(completions[row]).split())
    return f"row {row + 1} ({text[:50]!r}{'…' if len(text) > 50 else ''})"


def dry_run(reward: Reward, rows: Sequence[dict[str, Any]], completions: Sequence[Any]) -> list[Score]:
    """Call a reward once, before anything is trained, with an assistant's turn for each of some rows.

    Raises:
        UserError: it raised or returned no scores; the message names function, row and value.
    """
    scores = reward.explain(**trial_columns(rows, completions))
    for row, score in enumerate(scores):
        if score.failed == "batch" and not score.timed_out:
            raise UserError(f"reward {reward.name} {score.reason}; it must return a list with a number or None per row")
        if score.timed_out and score.failed:
            advice = "a larger `deadline` beside its name gives it more time, null any time"
            raise UserError(f"reward {reward.name} {score.reason} in its trial; {advice}")
        if score.failed:
            # Alarms work in the main thread alone; math-verify and others raise elsewhere.
            needs_main_thread = reward.deadline is not None and all(w in score.reason for w in ("ValueError", "signal"))
            hint = "; `deadline: null` beside its name lets it run in the main thread, without a deadline"
            where = f" for {_shown_row(completions, row)} in its trial{hint if needs_main_thread else ''}"
            raise UserError(f"reward {reward.name} {score.reason}{where}")
    return scores


def trial_columns(rows: Sequence[Mapping[str, Any]], completions: Sequence[Any]) -> dict[str, Any]:
    """The arguments of a trainer's call, for completions that were not sampled."""
    return {
        **{name: [row[name] for row in rows] for name in rows[0] if name != "prompt"},
        "prompts": [row["prompt"] for row in rows],
        "completions": list(completions),
        "completion_ids": dummy_ids(completions),
        **dummy_trainer(),
    }


def dummy_ids(completions: Sequence[Any]) -> list[list[int]]:
    """As many ids as a completion has characters, where nothing was sampled."""
    return [list(range(len(turn_text(completion)))) for completion in completions]


def dummy_trainer() -> dict[str, Any]:
    """The arguments that a trainer passes beside the columns, with the state of a run that has not begun."""
    state = SimpleNamespace(
        epoch=0.0,
        global_step=0,
        max_steps=1,
        num_train_epochs=1,
        num_input_tokens_seen=0,
        best_metric=None,
        log_history=[],
        is_local_process_zero=True,
        is_world_process_zero=True,
    )
    return {"trainer_state": state, "log_extra": lambda column, values: None, "log_metric": lambda name, value: None}
