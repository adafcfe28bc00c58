"""What a reward function returned, believed only where it is a list with a finite number or None for each row."""

from __future__ import annotations

import asyncio
import inspect
import math
import reprlib
from collections.abc import Iterator, Sequence, ValuesView
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from itertools import islice
from numbers import Real
from typing import Any

from rlvr_vocab.counted import counted
from rlvr_vocab.rewards.deadline import FOREVER, Deadline
from rlvr_vocab.rewards.reward import Score

# A trainer keeps rewards as float32, in which anything larger is infinite.
LARGEST_SCORE = 3.4028234e38


class NotAScore(ValueError):
    """What a reward function returned for a row, or for a batch, cannot be a score."""


def values_of(result: Any, rows: int, deadline: Deadline = FOREVER) -> list[Any]:
    """What a function returned, as a list with a value per row.

    Lists, tuples and other sequences will do, as will generators, numpy arrays and torch tensors of one dimension.
    What can be awaited is awaited, and cancelled at the deadline.

    Raises:
        NotAScore: it is something else, or of another length.
        TimedOut: it was cancelled.
    """
    if inspect.isawaitable(result):
        result = _awaited_result(result, deadline)
    if getattr(result, "ndim", None) == 1 and hasattr(result, "tolist"):
        result = result.tolist()
    if isinstance(result, Iterator | ValuesView):  # never more of it than is needed: it may have no end
        result = list(islice(result, rows + 1))
        if len(result) > rows:
            raise NotAScore(f"returned more than {counted(rows, 'value')} for {counted(rows, 'row')}")
    if not isinstance(result, Sequence) or isinstance(result, str | bytes | bytearray):
        shape = getattr(result, "shape", None)
        shape = f" of shape {tuple(shape)}" if shape else ""
        raise NotAScore(f"returned {shown_value(result)}{_kind(result)}{shape}, not a list")
    values = list(islice(result, rows + 1))
    if len(result) != rows or len(values) != rows:
        short = f", none for row {len(values) + 1}" if len(values) < rows else ""
        raise NotAScore(f"returned {counted(len(result), 'value')} for {counted(rows, 'row')}{short}")
    return values


def score_of(value: Any) -> Score:
    """A score as it is, a number or None as a score without a reason.

    Raises:
        NotAScore: it is neither, or its score is not finite.
    """
    if isinstance(value, Score):
        return Score(number_of(value.value), str(value.reason), bool(value.timed_out))
    return Score(number_of(value), "")


def number_of(value: Any) -> float | None:
    """A finite number as a float, None as None.

    Raises:
        NotAScore: it is neither.
    """
    if value is None:
        return None
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):  # a scalar of numpy or torch
        value = value.item()
    if not isinstance(value, Real | Decimal):
        raise NotAScore(f"returned {shown_value(value)}{_kind(value)}, not a number")
    try:
        score = float(value)
    except (OverflowError, ValueError):  # 10**400; a signalling NaN
        raise NotAScore(f"returned {shown_value(value)}{_kind(value)}, which no float can hold") from None
    if not math.isfinite(score):
        raise NotAScore(f"returned {score}")
    if abs(score) > LARGEST_SCORE:
        raise NotAScore(f"returned {score}, which is infinite as float32")
    return score


def shown_value(value: Any) -> str:
    """A value as it stands in a message: on one line, and not at any length."""
    try:
        return " ".join(reprlib.repr(value).split())
    except ValueError:  # a whole number with more digits than Python prints
        return "a number with thousands of digits"


def _awaited_result(awaitable: Any, deadline: Deadline) -> Any:
    try:
        asyncio.get_running_loop()
    except RuntimeError:  # no loop runs in this thread, so one may
        return asyncio.run(_awaited(awaitable, deadline))
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, _awaited(awaitable, deadline)).result()


async def _awaited(awaitable: Any, deadline: Deadline) -> Any:
    try:
        async with asyncio.timeout(deadline.left()) as limit:
            return await awaitable
    except TimeoutError:
        if limit.expired():
            raise deadline.missed() from None
        raise


def _kind(value: Any) -> str:
    """` (a str)`; nothing for None, which says it itself."""
    if value is None:
        return ""
    name = type(value).__name__
    return f" ({'an' if name[:1].lower() in 'aeiou' else 'a'} {name})"
