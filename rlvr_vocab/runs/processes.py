"""The processes of a run: how they meet, and work that the main one does for all of them."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from accelerate import PartialState
from accelerate.utils import broadcast_object_list

from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.errors import UserError
from rlvr_vocab.terminal import quiet_imports

T = TypeVar("T")
# What a launcher sets for its processes. A trainer that finds it takes part in the distributed training.
_LAUNCHED = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "NODE_RANK"),
    *("MASTER_ADDR", "MASTER_PORT"),
)
_LAUNCHED_PREFIXES = ("ACCELERATE_", "FSDP_", "ROLE_", "TORCHELASTIC_")
_STILL_TRUE = "ACCELERATE_USE_CPU"
_DDP_TIMEOUT = 1800  # seconds, the default of `training.ddp_timeout`


def init_distributed(settings: RunSettings) -> PartialState:
    """Join the processes of a run; the first `PartialState` decides backend and timeout."""
    grpo = settings.training.grpo
    timeout = timedelta(seconds=grpo.get("ddp_timeout") or _DDP_TIMEOUT)
    return PartialState(cpu=bool(grpo.get("use_cpu")), backend=grpo.get("ddp_backend"), timeout=timeout)


def run_on_main_and_broadcast(function: Callable[..., T], *arguments: Any) -> T:
    """Call the function once for all processes of a run, and return its result in each of them.

    With several processes the main one calls it in a child outside the process group; the others wait.

    Args:
        function: one of a module, so that a fresh Python finds it.

    Raises:
        UserError: in every process, as the function has raised it.
    """
    state = PartialState()
    if state.num_processes == 1:
        return function(*arguments)
    outcome = [_in_a_child(function, arguments) if state.is_main_process else None]
    [(result, error)] = broadcast_object_list(outcome)
    if error is not None:
        raise UserError(error)
    return result


def _in_a_child(function: Callable[..., T], arguments: tuple[Any, ...]) -> tuple[T | None, str | None]:
    context = multiprocessing.get_context("spawn")
    with _without_launcher(), ProcessPoolExecutor(1, context, initializer=quiet_imports) as pool:
        try:
            return pool.submit(function, *arguments).result(), None
        except UserError as error:
            return None, str(error)


@contextmanager
def _without_launcher() -> Iterator[None]:
    launched = {
        name: value
        for name, value in os.environ.items()
        if name in _LAUNCHED or (name.startswith(_LAUNCHED_PREFIXES) and name != _STILL_TRUE)
    }
    for name in launched:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(launched)
