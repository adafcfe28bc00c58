"""A reward of a run, as a trainer calls it: a mistake of its function costs rows, which score None and are counted."""

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
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, TypeVar

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.adaptive import AdaptiveWeight
from rlvr_vocab.rewards.reward import RewardSpec, Score, assistant_text, parameters_of, traits_of
from rlvr_vocab.secrets import without_secrets
from rlvr_vocab.text import pluralize, short_text, writable

logger = logging.getLogger(__name__)
T = TypeVar("T")

# Names of the trainer's columns of reasons begin with this.
REASON = "reason/"
LARGEST_SCORE = 3.4028234e38  # a trainer keeps rewards as float32
# Arguments that TRL passes to reward functions beside the columns of the data set, the first of them of a whole batch.
OF_THE_BATCH = ("trainer_state", "log_extra", "log_metric")
FROM_THE_TRAINER = ("prompts", "completions", "completion_ids", "environments", *OF_THE_BATCH)
# Frames in these files are skipped when the user's line of an error is looked for.
_NOT_USER_CODE = (f"{Path(__file__).parents[1]}{os.sep}", f"{sysconfig.get_paths()['stdlib']}{os.sep}", "<frozen ")
# Errors of user code: also those that are meant to end a program, or a task within it.
USER_CODE_ERRORS = (Exception, SystemExit, asyncio.CancelledError)


class NoScores(Exception):
    """A call gave no scores. The message continues a sentence that begins with the function's name."""


class TimedOut(NoScores):
    """A call was abandoned, or not begun."""


class Reward:
    """A reward function with its weight and parameters, whose mistakes cost a row, not a run.

    A row for which it raises, or returns no finite number and not None, scores None; so do all rows where it returns no
    list of the batch's length. They are counted in `failures` and warned about. Asynchronous functions are awaited.
    With a deadline, in seconds for a batch, it runs in another thread; rows without a score by then score None, and so
    do those of later batches as long as it hangs.
    """

    def __init__(
        self, function: Callable[..., Any], name: str, spec: RewardSpec | None = None, deadline: float | None = None
    ) -> None:
        spec = spec or RewardSpec(name)
        self.function, self.traits = function, traits_of(function)
        self.name = self.__name__ = name
        self.weight, self.params, self.deadline = spec.weight, spec.params, deadline
        self.reads_thought = self.traits.declared_reading(spec.params)
        self.full_mark = self.traits.full_mark if spec.full_mark is None else spec.full_mark
        self.adaptive = AdaptiveWeight(spec.weight, self.full_mark, spec.adaptive) if spec.adaptive else None
        self.failures = 0
        self._running: Future[list[Score]] | None = None
        self._takes, self._takes_any = parameters_of(function)

    def __call__(self, **columns: Any) -> list[float | None]:
        scores = self.explain(**columns)
        for row, score in enumerate(scores):
            self.failures += score.failed is not None
            if score.failed == "batch" and row == 0:
                logger.warning("reward %s %s: all of them score None", self.name, score.reason)
            elif score.failed == "row" and is_warned_of(self.failures):
                shown, count = _shown_row(columns["completions"], row), self.failures
                logger.warning(
                    "reward %s %s for %s: it scores None (such rows so far: %d)", self.name, score.reason, shown, count
                )
        if log_metric := columns.get("log_metric"):
            failed, late = ([score for score in scores if score.failed], [score for score in scores if score.timed_out])
            for metric, rows in (("failures", len(failed)), ("timeouts", len(late))):
                if rows:
                    log_metric(f"rewards/{self.name}/{metric}", float(rows))
        if log_extra := columns.get("log_extra"):  # with every batch: the trainer keeps columns of one length
            log_extra(f"{REASON}{self.name}", [score.reason for score in scores])
        return [score.value for score in scores]

    def explain(self, **columns: Any) -> list[Score]:
        """Scores with reasons where the function gives any, and failed ones for the rows of its mistakes.

        Raises UserError if a function of the library finds a parameter wrong or missing.
        """
        rows = len(columns["completions"])
        end = None if self.deadline is None else time.monotonic() + self.deadline
        try:
            return self._scores(columns, end)
        except UserError:
            raise
        except NoScores as error:
            return [_failed(error, "batch")] * rows
        except USER_CODE_ERRORS:
            return [self._score_alone(columns, row, end) for row in range(rows)]

    def check_parameters(self) -> None:
        """Raises UserError where a function of the library cannot take the values of its parameters."""
        if getattr(self.function, "settings", None):
            self._call(dict.fromkeys(self._takes, ()))

    def _call(self, columns: Mapping[str, Any]) -> Any:
        if (acted := self._takes.get("environments")) and acted.default is acted.empty and acted.name not in columns:
            raise NoScores("needs an environment to act in: add environment=…")
        settings = getattr(self.function, "settings", ())  # a column of that name is no value for them
        names = columns if self._takes_any else self._takes
        taken = {name: values for name, values in columns.items() if name in names and name not in settings}
        explain = getattr(self.function, "explain", None)
        return (explain if callable(explain) else self.function)(**{**taken, **self.params})

    def _score_alone(self, columns: dict[str, Any], row: int, end: float | None) -> Score:
        rows = len(columns["completions"])
        alone = {
            name: values[row : row + 1]
            if name not in OF_THE_BATCH and isinstance(values, list | tuple) and len(values) == rows
            else values
            for name, values in columns.items()
        }
        if "log_extra" in alone:
            alone["log_extra"] = lambda *column: None  # the column would lack the rows that fail
        try:
            return self._scores(alone, end)[0]
        except USER_CODE_ERRORS as error:
            return _failed(error, "row")

    def _scores(self, columns: dict[str, Any], end: float | None) -> list[Score]:
        """The scores of a batch, failed ones for single values among them; other mistakes are raised.

        The function gets lists that it may change. What it logs is text that can be written, and is passed on only if
        the call succeeds.
        """
        logged: list[Callable[[], None]] = []
        given: dict[str, Any] = {
            name: list(column) if isinstance(column, list) else column for name, column in columns.items()
        }
        for name in ("log_extra", "log_metric"):
            if (log := columns.get(name)) is not None:
                given[name] = partial(_log_later, logged, log)

        def call() -> list[Score]:
            result = self._call(given)
            if inspect.isawaitable(result):
                result = run_coroutine(self._awaited(result, end))
            return [score_of(value) for value in _values_in(result, len(columns["completions"]))]

        scores = call() if end is None else self._in_thread(call, end)
        for log in logged:
            log()
        return scores

    def _in_thread(self, call: Callable[[], list[Score]], end: float) -> list[Score]:
        """The result of a call that is abandoned at the deadline; while it still runs, no other begins."""
        if self._running is not None and not self._running.done():
            raise TimedOut("still hangs in an earlier call and was not called again")
        if (left := end - time.monotonic()) <= 0:
            raise TimedOut(f"was not called after its deadline of {self.deadline:g} seconds")
        self._running = run_in_thread(call, f"reward {self.name}")
        if wait([self._running], left).not_done:
            raise self._missed()
        return self._running.result()

    async def _awaited(self, awaitable: Any, end: float | None) -> Any:
        try:
            async with asyncio.timeout_at(end) as limit:  # in the event loop's time, which is time.monotonic
                return await awaitable
        except TimeoutError:
            if limit.expired():
                raise self._missed() from None
            raise  # its own

    def _missed(self) -> TimedOut:
        return TimedOut(f"had not returned by its deadline of {self.deadline:g} seconds")


def is_warned_of(failure: int) -> bool:
    """Whether a failure, counted from 1, is worth a line: the first three, then the 10th, the 100th and so on."""
    return failure <= 3 or str(failure).strip("0") == "1"


def _log_later(logged: list[Callable[[], None]], log: Callable[..., None], *values: Any, **named: Any) -> None:
    named = {name: _as_utf8(value) for name, value in named.items()}
    logged.append(partial(log, *map(_as_utf8, values), **named))


def _as_utf8(value: Any) -> Any:
    """Text that can be written, alone or in a list; other values as they are."""
    if isinstance(value, list | tuple):
        return [_as_utf8(each) for each in value]
    return writable(value) if isinstance(value, str) else value


def run_in_thread(function: Callable[[], T], name: str) -> Future[T]:
    """The outcome of a call in a daemon thread, which has the context variables and the GPU of its caller."""
    outcome: Future[T] = Future()
    context, torch = contextvars.copy_context(), sys.modules.get("torch")
    # In a new thread "cuda" is the first GPU. Rewards import no torch themselves.
    gpu = torch.cuda.current_device() if torch is not None and torch.cuda.is_initialized() else None

    def run() -> None:
        try:
            if torch is not None and gpu is not None:
                torch.cuda.set_device(gpu)
            outcome.set_result(context.run(function))
        except BaseException as error:  # noqa: BLE001 - raised again in the thread of the caller
            outcome.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return outcome


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, also where an event loop runs in this thread already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    return run_in_thread(partial(asyncio.run, coroutine), "coroutine").result()


def _values_in(result: Any, rows: int) -> Sequence[Any]:
    """A function's result as a list; raises NoScores unless it is a sequence or array with a value for each row."""
    if getattr(result, "ndim", None) == 1 and hasattr(result, "tolist"):
        result = result.tolist()
    if not isinstance(result, Sequence) or isinstance(result, str | bytes | bytearray):
        raise NoScores(f"returned {_with_type(result)}, not a list")
    if len(result) != rows:
        raise NoScores(f"returned {pluralize(len(result), 'value')} for {pluralize(rows, 'row')}")
    return result


def score_of(value: Any) -> Score:
    """A returned value as a score, a failed one unless it is a finite number or None."""
    score = value if isinstance(value, Score) else Score(value, "")
    given: Any = score.value
    if given is None:
        return score
    number: float | None = None
    with suppress(TypeError, ValueError, OverflowError, RuntimeError):
        number = float(given.item() if hasattr(given, "item") else given)  # an array of one number, or a tensor
    if number is None or isinstance(given, str | bytes):
        return Score(None, f"returned {_with_type(given)}, not a number", failed="row")
    if not abs(number) <= LARGEST_SCORE:  # NaN too
        return Score(None, f"returned {number}, which is no finite float32", failed="row")
    return replace(score, value=number)


def _with_type(value: Any) -> str:
    """`'yes' (str)`: a value on one short line, and its type."""
    return f"{' '.join(reprlib.repr(value).split())} ({type(value).__name__})"


def _failed(error: BaseException, of: Literal["row", "batch"]) -> Score:
    reason = str(error) if isinstance(error, NoScores) else raised(error)
    return Score(None, reason, timed_out=isinstance(error, TimedOut), failed=of)


def raised(error: BaseException) -> str:
    """`raised KeyError: 'x' (mine.py, line 12)`: an error and the line of the user's code where it was raised."""
    text = without_secrets(" ".join(str(error)[:2_000].split()))[:200]  # addresses of services hold keys
    where = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if not file.startswith(_NOT_USER_CODE) and "site-packages" not in file:
            where = f" ({Path(file).name}, line {line})"
    return f"raised {type(error).__name__}{': ' * bool(text)}{text}{where}"


def _shown_row(completions: Any, row: int) -> str:
    return f"row {row + 1} ({short_text(assistant_text(completions[row]), 50)!r})"


# --- before anything is trained ---


def dry_run(reward: Reward, rows: Sequence[dict[str, Any]], completions: Sequence[Any]) -> list[Score]:
    """Call a reward once with a turn for each of some rows; UserError, with row and value, if it gives no scores."""
    scores = reward.explain(**trial_columns(rows, completions))
    for row, score in enumerate(scores):
        if score.failed is None:
            continue
        where, advice = f" for {_shown_row(completions, row)}" if score.failed == "row" else "", ""
        if reward.deadline is not None and (score.timed_out or "signal" in score.reason):  # alarms need the main thread
            advice = "; a larger `deadline` beside its name gives it more time, `deadline: null` the main thread"
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
    return [list(range(len(assistant_text(completion)))) for completion in completions]


def dummy_trainer() -> dict[str, Any]:
    """The arguments that a trainer passes beside the columns, with the state of a run that has not begun."""
    state = SimpleNamespace(epoch=0.0, global_step=0, max_steps=1, num_train_epochs=1, log_history=[])
    return {"trainer_state": state, "log_extra": lambda column, values: None, "log_metric": lambda name, value: None}
