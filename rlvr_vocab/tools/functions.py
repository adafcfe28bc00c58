"""Tools and environments by name, and a guard by which a wrong call costs that call alone.

A tool of the user runs in this process: it can end it (`os._exit`) or use up its memory.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import contextmanager, redirect_stdout
from copy import deepcopy
from pathlib import Path
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.build import load_attribute, load_function
from rlvr_vocab.rewards.guard import USER_CODE_ERRORS, is_warned_of, raised, run_in_thread
from rlvr_vocab.rewards.reward import has_parts, is_user_code
from rlvr_vocab.secrets import without_secrets
from rlvr_vocab.text import nearest_and_all, writable
from rlvr_vocab.tools.calculator import calculator

logger = logging.getLogger(__name__)
TOOLS: dict[str, Callable[..., Any]] = {"calculator": calculator}  # those that a run names without a file
DEADLINE = 10  # seconds for a call
LONGEST_RESULT = 32_000  # characters
LONGEST_ERROR = 1_000

# --- by name ---


def load_tools(names: Sequence[str]) -> list[Callable[..., Any]]:
    """The functions that `tools` names; UserError for one that is unknown, broken, or has no schema."""
    for name in names:
        if not is_user_code(name) and name not in TOOLS:
            own = "; a function of your own is file.py:function or module:function"
            raise UserError(f"tools: no tool {name}{nearest_and_all(name, sorted(TOOLS))}{own}")
    tools = [load_function(name, "tools") if is_user_code(name) else TOOLS[name] for name in names]
    check_tools(tools, "tools: ")
    [(twice, count)] = Counter(tool.__name__ for tool in tools).most_common(1) or [("", 0)]
    if count > 1:
        raise UserError(f"tools: several are called {twice}, and a model calls a tool by its name: rename one")
    return tools


def load_environment(name: str, params: Mapping[str, Any]) -> Callable[[], Any]:
    """The factory of a run's environments; UserError for a broken class, or one whose methods have no schema."""
    key, kind = f"environment={name}", load_attribute(name, "environment")
    if not isinstance(kind, type) or not callable(getattr(kind, "reset", None)):
        raise UserError(f"{key}: is no class with a method reset, which begins an episode")
    try:
        inspect.signature(kind).bind(**params)
    except TypeError as error:
        raise UserError(f"{key}: {error}; environment.params has its arguments") from None
    check_tools(methods_of(kind), f"{key}: ")
    return functools.partial(kind, **params)


def methods_of(environment: type) -> list[Callable[..., Any]]:
    """The methods of an environment that a model may call, as TRL finds them."""
    found = inspect.getmembers(environment, inspect.isfunction)
    return [method for name, method in found if name not in ("reset", "get_reward") and not name.startswith("_")]


def offered_tools(tools: Any = None, environment_factory: Any = None) -> list[Callable[..., Any]] | None:
    """The functions that a prompt shows for a trainer's arguments, as far as they are known; None for none."""
    several = isinstance(environment_factory, Mapping)
    factories: Any = environment_factory.values() if several else [environment_factory]
    kinds = [getattr(factory, "func", factory) for factory in factories]  # of a partial
    return [*(tools or ()), *(tool for kind in kinds if isinstance(kind, type) for tool in methods_of(kind))] or None


def check_tools(tools: Sequence[Callable[..., Any]], where: str = "") -> None:
    """Raises UserError for a function of which Transformers makes no schema: type hints and docstring are missing."""
    from transformers.utils import get_json_schema  # which imports torch

    for tool in tools:
        try:
            get_json_schema(tool)
        except Exception as error:  # of several kinds
            name, why = getattr(tool, "__name__", repr(tool)), " ".join(str(error).split())[:300]
            raise UserError(f"{where}{name} has no schema that tells a model how to call it: {why}") from error


# --- the guard ---


class ToolError(Exception):
    """A failed call; the model reads the message."""


class _DeadlineOver(BaseException):
    """Raised in a tool by an alarm; a tool that catches Exception does not catch it."""

    def __init__(self, deadline: float | None) -> None:
        super().__init__(f"had not returned by its deadline of {deadline} seconds")


_failures = Counter[str]()


def guarded(tool: Callable[..., Any], deadline: float | None = DEADLINE) -> Callable[..., Any]:
    """The tool, with calls that cannot harm the run by mistake.

    Arguments are copies. A call has a deadline in seconds (None: no limit). Its result is text, cut where it is long;
    stdout is dropped, but of coroutines. Every failure is a ToolError of one short message.
    """
    if getattr(tool, "is_guarded", False):
        return tool
    if inspect.iscoroutinefunction(tool):

        @functools.wraps(tool)
        async def call(*args: Any, **arguments: Any) -> Any:
            with _errors_of(tool):  # several run at once, and sys.stdout is one
                return content_of(await _ended_by(deadline, tool(*args, **deepcopy(arguments))))

    else:

        @functools.wraps(tool)
        def call(*args: Any, **arguments: Any) -> Any:
            with (
                _errors_of(tool),
                Path(os.devnull).open("w", encoding="utf-8", errors="replace") as nowhere,
                redirect_stdout(nowhere),
            ):
                return _within(deadline, lambda: content_of(tool(*args, **deepcopy(arguments))))

    vars(call)["is_guarded"] = True
    return call


def guarded_tools(tools: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    return {name: guarded(tool) for name, tool in tools.items()}


@contextmanager
def _errors_of(tool: Callable[..., Any]) -> Iterator[None]:
    """Raises the errors of a call as ToolError, with the message that TRL would pass on, and warns of some."""
    try:
        yield
    except (*USER_CODE_ERRORS, _DeadlineOver) as error:
        what = str(error) if isinstance(error, _DeadlineOver) else raised(error)
        _failures[tool.__name__] = count = _failures[tool.__name__] + 1
        if tool not in TOOLS.values() and is_warned_of(count):
            logger.warning("tool %s %s (failed calls so far: %d)", tool.__name__, what, count)
        message = str(error) if isinstance(error, Exception) else what
        raise ToolError(without_secrets(_cut(message, LONGEST_ERROR))) from None


def _within(deadline: float | None, call: Callable[[], Any]) -> Any:
    """The result of a call; _DeadlineOver once its time is over.

    In the main thread an alarm ends it: a thread could not end code that holds the interpreter's lock (a regular
    expression, a large power), and tools may set alarms of their own. In another thread the call is abandoned.
    """
    if threading.current_thread() is not threading.main_thread():
        outcome = run_in_thread(call, "tool")
        if wait([outcome], deadline).not_done:
            raise _DeadlineOver(deadline)
        return outcome.result()
    is_over = False

    def ring(*_: Any) -> None:
        if not is_over:
            raise _DeadlineOver(deadline)

    handler, timer = signal.signal(signal.SIGALRM, ring), signal.setitimer(signal.ITIMER_REAL, deadline or 0, 1.0)
    try:
        try:
            return call()
        finally:
            is_over = True
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler or signal.SIG_DFL)


async def _ended_by(deadline: float | None, coroutine: Awaitable[Any]) -> Any:
    """The same for a coroutine, which is cancelled; one that never awaits stops its event loop."""
    task = asyncio.ensure_future(coroutine)
    done, _ = await asyncio.wait({task}, timeout=deadline)
    if not done:
        task.cancel()
        raise _DeadlineOver(deadline)
    return task.result()


# --- results ---

_ADDRESS = re.compile(r" at 0x[0-9a-f]+>")  # all that Python shows of a generator, a function, an object


def content_of(result: Any) -> Any:
    """The content of a tool's message as TRL makes it: a list stays, of anything else the text; ToolError for none."""
    if has_parts(result):
        texts = [isinstance(part, dict) and isinstance(part.get("text"), str) for part in result]
        return [
            {**part, "text": _cut(part["text"])} if text else part for part, text in zip(result, texts, strict=True)
        ]
    text = str(result)
    if isinstance(result, bytes | bytearray) or (not isinstance(result, str) and _ADDRESS.search(text)):
        raise ToolError(f"returned {type(result).__name__}, which has no text")
    return deepcopy(result) if isinstance(result, list) and len(text) <= LONGEST_RESULT else _cut(text)


def _cut(text: str, limit: int = LONGEST_RESULT) -> str:
    """Text of at most `limit` characters, and a word on the rest, as UTF-8 can write it."""
    more = f"… ({limit:,} of {len(text):,} characters)" if len(text) > limit else ""
    return writable(text[:limit]) + more
