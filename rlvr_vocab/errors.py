"""User-facing errors: one line and an exit code."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class UserError(ValueError):
    """Bad input: one clear line, which commands print alone, with exit code 2.

    about: the argument of the function that is meant, for a caller whose user gave it under another name.
    """

    def __init__(self, message: str, about: str = "") -> None:
        super().__init__(message)
        self.about = about


class OutOfRoom(Exception):
    """The disk or the memory is full. The message is one clear line; commands print it alone and exit with code 74."""


# What torch says, on a GPU and without, and what CUDA and its libraries say where torch's own allocator is not asked.
_OUT_OF_MEMORY = (
    "CUDA out of memory",
    "DefaultCPUAllocator: can't allocate memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether an error of torch says that the memory, a GPU's or the machine's, is full."""
    return any(words in str(error) for words in _OUT_OF_MEMORY)


class Interrupted(BaseException):
    """A run was told to stop before its end, and the same command goes on with it: exit code 75.

    Like `KeyboardInterrupt` no `Exception`: a library that goes on after any of these must not go on after this.
    """


BAD_INPUT = 2
OUT_OF_ROOM = os.EX_IOERR  # 74: the disk or the memory is full
RESUME_ME = os.EX_TEMPFAIL  # 75: told to stop before its end; the same command goes on
CTRL_C = 130
READER_GONE = 141  # as a shell counts a process that SIGPIPE ended: 128 + 13

FILE = "RLVR_VOCAB_EXIT_CODE_FILE"


def is_main_process() -> bool:
    """As a launcher says it, before torch can."""
    return os.environ.get("RANK", "0") == "0"


def delete_exit_code() -> None:
    """What an earlier run has left there: a crash leaves nothing."""
    if FILE in os.environ and is_main_process():
        Path(os.environ[FILE]).unlink(missing_ok=True)


def write_exit_code(code: int) -> None:
    """Leave the code of the main process in the file that the environment names, where it names one."""
    if FILE in os.environ and is_main_process():
        Path(os.environ[FILE]).write_text(f"{code}\n", encoding="utf-8")


# A launcher ends the others as soon as one has ended, and looks a few times a second.
_SECONDS = 5.0
_LEFT_ALONE = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")


@contextmanager
def main_process_reports(seconds: float = _SECONDS) -> Iterator[None]:
    """Let the main process alone report an error that all processes of a run meet.

    The others wait for the launcher to end them; one that is still there after `seconds` has met the error alone. A
    process whose connections break because another has ended waits too.
    """
    try:
        yield
    except (UserError, OutOfRoom, Interrupted):
        if not is_main_process():
            _wait_to_be_ended(seconds)
        raise
    except RuntimeError as error:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1 and any(words in str(error) for words in _LEFT_ALONE):
            _wait_to_be_ended(seconds)
        raise


def _wait_to_be_ended(seconds: float) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    time.sleep(seconds)
