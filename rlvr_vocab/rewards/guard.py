"""A reward of a run, as a trainer calls it: what is not a score becomes None, is counted, and is warned about."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import os
import reprlib
import sys
import sysconfig
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from decimal import Decimal
from numbers import Real
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, Literal, TypeVar

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.adaptive import Adaptation, AdaptiveWeight
from rlvr_vocab.rewards.reward import Score, traits_of, turn_text
from rlvr_vocab.secrets import without_secrets
from rlvr_vocab.text import pluralize, writable

logger = logging.getLogger(__name__)
T = TypeVar("T")

# Names of the trainer's columns of reasons begin with this.
REASON = "reason/"
# A trainer keeps rewards as float32, in which anything larger is infinite.
LARGEST_SCORE = 3.4028234e38
_OF_THE_WHOLE_BATCH = ("trainer_state", "log_extra", "log_metric", "environments")
# Code that is not the user's: these frames are passed over when the line of an error is looked for.
_NOT_USER_CODE = (f"{Path(__file__).parents[1]}{os.sep}", f"{sysconfig.get_paths()['stdlib']}{os.sep}", "<frozen ")
# Also those that are meant to end a program, or a task within it.
_RAISED = (Exception, SystemExit, asyncio.CancelledError)


class NoScores(Exception):
    """A call gave no scores. The message continues a sentence that begins with the function's name."""


class TimedOut(NoScores):
    """A call was abandoned, or not begun."""


class Reward:
    """A reward function with its weight and parameters, whose mistakes cost a row, not a run.

    A row for which it raises, or returns no finite number and not None, scores None; so do all rows where it returns no
    list of the batch's length. They are counted in `failures` and warned about. Asynchronous functions are awaited.
    With a deadline, in seconds for a batch, it runs in a thread of its own; rows without a score by then score None,
    those of later batches too as long as it hangs.
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
        for row, score in enumerate(scores):
            self.failures += score.failed is not None
            if score.failed == "batch" and row == 0:
                logger.warning("reward %s %s: all of them score None", self.name, score.reason)
            elif score.failed == "row" and (self.failures <= 3 or str(self.failures).strip("0") == "1"):
                shown, count = _shown_row(columns["completions"], row), self.failures
                logger.warning(
                    "reward %s %s for %s: it scores None (such rows so far: %d)", self.name, score.reason, shown, count
                )
        if log_metric := columns.get("log_metric"):
            for metric, rows in (
                ("failures", sum(score.failed is not None for score in scores)),
                ("timeouts", sum(score.timed_out for score in scores)),
            ):
                if rows:
                    log_metric(f"rewards/{self.name}/{metric}", float(rows))
        if log_extra := columns.get("log_extra"):  # with every batch: the trainer keeps columns of one length
            log_extra(f"{REASON}{self.name}", [score.reason for score in scores])
        return [score.value for score in scores]

    def explain(self, **columns: Any) -> list[Score]:
        """Scores with reasons where the function gives any, and failed ones for the rows of its mistakes.

        Raises:
            UserError: a function of the library finds a parameter wrong or missing.
        """
        rows, deadline = len(columns["completions"]), Deadline(self.deadline)
        try:
            return self._scores(columns, deadline)
        except UserError:
            raise
        except NoScores as error:
            return [_failed(error, "batch")] * rows
        except _RAISED:
            return [self._score_alone(columns, row, deadline) for row in range(rows)]

    def check_parameters(self) -> None:
        """Raises UserError where a function of the library cannot take the values of its parameters."""
        if getattr(self.function, "settings", None):
            self._call(dict.fromkeys(self._takes, ()))

    def _call(self, columns: Mapping[str, Any]) -> Any:
        settings = getattr(self.function, "settings", ())  # a column of that name is no value for them
        names = set(columns) if self._takes_any else self._takes
        taken = {name: values for name, values in columns.items() if name in names and name not in settings}
        explain = getattr(self.function, "explain", None)
        return (explain if callable(explain) else self.function)(**{**taken, **self.params})

    def _scores(self, columns: dict[str, Any], deadline: Deadline) -> list[Score]:
        """The scores of a batch, failed ones for single values among them; other mistakes are raised."""
        ended = threading.Event()
        given = _for_one_call(columns, ended)

        def call() -> list[Score]:
            values = values_of(self._call(given), len(columns["completions"]), deadline)
            return [score_of(value) for value in values]

        try:
            return call() if self._thread is None else self._thread.call(call, deadline)
        finally:
            ended.set()

    def _score_alone(self, columns: dict[str, Any], row: int, deadline: Deadline) -> Score:
        rows = len(columns["completions"])
        alone = {
            name: values[row : row + 1]
            if name not in _OF_THE_WHOLE_BATCH and isinstance(values, list | tuple) and len(values) == rows
            else values
            for name, values in columns.items()
        }
        try:
            return self._scores(alone, deadline)[0]
        except _RAISED as error:
            return _failed(error, "row")


def _for_one_call(columns: dict[str, Any], ended: threading.Event) -> dict[str, Any]:
    """Lists that the function may change; it logs text that can be written, and nothing once its call has ended."""
    given = {name: list(column) if isinstance(column, list) else column for name, column in columns.items()}
    log_extra, log_metric = columns.get("log_extra"), columns.get("log_metric")
    if log_extra is not None:

        def log_column(column: str, values: Sequence[Any]) -> None:
            if not ended.is_set():
                log_extra(writable(column), [writable(each) if isinstance(each, str) else each for each in values])

        given["log_extra"] = log_column
    if log_metric is not None:
        given["log_metric"] = lambda name, value: None if ended.is_set() else log_metric(name, value)
    return given


def values_of(result: Any, rows: int, deadline: Deadline) -> list[Any]:
    """A function's result, awaited until the deadline where it is asynchronous, as a list with a value per row.

    Raises:
        NoScores: it is no sequence, array or tensor of one dimension with so many values.
        TimedOut: it was cancelled at the deadline.
    """
    if inspect.isawaitable(result):
        result = run_coroutine(_awaited(result, deadline))
    if getattr(result, "ndim", None) == 1 and hasattr(result, "tolist"):
        result = result.tolist()
    if not isinstance(result, Sequence) or isinstance(result, str | bytes | bytearray):
        raise NoScores(f"returned {_with_type(result)}, not a list")
    if len(result) != rows:
        raise NoScores(f"returned {pluralize(len(result), 'value')} for {pluralize(rows, 'row')}")
    return list(result)


def score_of(value: Any) -> Score:
    """A returned value as a score, a failed one where it is no score, no finite number and not None."""
    score = value if isinstance(value, Score) else Score(value, "")
    try:
        return replace(score, value=_finite_number(score.value), timed_out=bool(score.timed_out))
    except _RAISED as error:
        return _failed(error, "row")


def _finite_number(value: Any) -> float | None:
    if value is None:
        return None
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):  # a scalar of numpy or torch
        value = value.item()
    if not isinstance(value, Real | Decimal):
        raise NoScores(f"returned {_with_type(value)}, not a number")
    score = float(value)
    if not abs(score) <= LARGEST_SCORE:  # NaN too
        raise NoScores(f"returned {score}, which is no finite float32")
    return score


def _with_type(value: Any) -> str:
    """`'yes' (str)`: a value on one short line, and its type."""
    return f"{' '.join(reprlib.repr(value).split())} ({type(value).__name__})"


def _failed(error: BaseException, of: Literal["row", "batch"]) -> Score:
    reason = str(error) if isinstance(error, NoScores) else _raised(error)
    return Score(None, reason, timed_out=isinstance(error, TimedOut), failed=of)


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


# --- deadlines ---


class Deadline:
    """`seconds` from now on; None for no deadline."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._end = None if seconds is None else time.monotonic() + seconds

    def left(self) -> float | None:
        """Seconds, not below 0; None for no deadline."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def missed(self) -> TimedOut:
        return TimedOut(f"had not returned by its deadline of {self.seconds:g} seconds")


class DeadlineThread:
    """One daemon thread for all calls of a function; a call that is late is abandoned.

    Thread-local state of the function stays from call to call. A call has the context variables and the GPU of its
    caller; what it raises is raised there. While an abandoned call still runs, no other begins.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._last: Future[Any] | None = None
        self._begun = 0.0
        weakref.finalize(self, self._calls.put, None)

    def call(self, function: Callable[[], T], deadline: Deadline) -> T:
        """The result of `function`.

        Raises:
            TimedOut: it has not returned by the deadline, or an earlier call still runs.
        """
        if self._last is not None and not self._last.done():
            seconds = time.monotonic() - self._begun
            raise TimedOut(f"still hangs in a call that began {seconds:.0f} seconds ago and was not called again")
        if (left := deadline.left()) == 0:
            raise TimedOut(f"was not called after its deadline of {deadline.seconds:g} seconds")
        outcome: Future[T] = Future()
        context, torch = contextvars.copy_context(), sys.modules.get("torch")
        # In a new thread "cuda" would be the first GPU. Rewards import no torch themselves.
        gpu = torch.cuda.current_device() if torch is not None and torch.cuda.is_initialized() else None

        def run() -> None:
            try:
                if torch is not None and gpu is not None:
                    torch.cuda.set_device(gpu)
                outcome.set_result(context.run(function))
            except BaseException as error:  # noqa: BLE001 - raised again in the thread of the caller
                outcome.set_exception(error)

        self._begun, self._last = time.monotonic(), outcome
        if self._thread is None or not self._thread.is_alive():  # none has survived a fork
            self._thread = threading.Thread(target=_run_calls, args=(self._calls,), name=self._name, daemon=True)
            self._thread.start()
        self._calls.put(run)
        if wait([outcome], left).not_done:
            raise deadline.missed()
        return outcome.result()


def _run_calls(calls: SimpleQueue[Callable[[], None] | None]) -> None:
    while (call := calls.get()) is not None:
        call()
        del call  # with its result, while waiting for the next


async def _awaited(awaitable: Any, deadline: Deadline) -> Any:
    try:
        async with asyncio.timeout(deadline.left()) as limit:
            return await awaitable
    except TimeoutError:
        if limit.expired():
            raise deadline.missed() from None
        raise  # its own


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, also where an event loop runs in this thread already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


# --- before anything is trained ---


def dry_run(reward: Reward, rows: Sequence[dict[str, Any]], completions: Sequence[Any]) -> list[Score]:
    """Call a reward once with an assistant's turn for each of some rows.

    Raises:
        UserError: it raised or returned no scores; the message names function, row and value.
    """
    scores = reward.explain(**trial_columns(rows, completions))
    for row, score in enumerate(scores):
        if score.failed is None:
            continue
        where, advice = f" for {_shown_row(completions, row)}" if score.failed == "row" else "", ""
        if score.timed_out:
            advice = "; a larger `deadline` beside its name gives it more time, null any time"
        elif score.failed == "batch":
            advice = "; it must return a list with a number or None per row"
        elif reward.deadline is not None and "signal" in score.reason:  # alarms work in the main thread alone
            advice = "; `deadline: null` beside its name lets it run in the main thread, without a deadline"
        raise UserError(f"reward {reward.name} {score.reason}{where} in its trial{advice}")
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
    state = SimpleNamespace(epoch=0.0, global_step=0, max_steps=1, num_train_epochs=1, log_history=[])
    return {"trainer_state": state, "log_extra": lambda column, values: None, "log_metric": lambda name, value: None}
