"""User-facing errors as one line and an exit code, missing packages, errors of several processes, and signals."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

BAD_INPUT = 2
OUT_OF_ROOM = os.EX_IOERR  # 74: the disk or the memory is full
RESUME_ME = os.EX_TEMPFAIL  # 75: stopped before its end; the same command goes on
CTRL_C = 130
READER_GONE = 141  # the shell's code for a process that SIGPIPE ended: 128 + 13
EXIT_CODE_FILE = "RLVR_VOCAB_EXIT_CODE_FILE"


class UserError(ValueError):
    """Bad input: one line, which commands print alone, with exit code 2."""


class OutOfRoom(Exception):
    """The disk or the memory is full: one line, which commands print alone, with exit code 74."""


class Interrupted(BaseException):
    """A run was stopped and the same command resumes it: exit code 75. No `Exception`, so libraries do not catch it."""


# Of the messages of torch on a GPU and without one, and of CUDA's libraries.
_OUT_OF_MEMORY = ("out of memory", "DefaultCPUAllocator: can't allocate memory", "_STATUS_ALLOC_FAILED")


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether an error of torch means that the memory, a GPU's or the machine's, is full."""
    return any(words in str(error) for words in _OUT_OF_MEMORY)


# Optional packages, and the extras of pyproject.toml that install them.
_EXTRA_OF = {"bitsandbytes": "quantization", "openai": "judge", "reasoning_gym": "gym", "vllm": "vllm"}
_EXTRA_OF |= {tracker: tracker for tracker in ("tensorboard", "trackio", "mlflow")}
_REMARKS = {
    "reasoning_gym": " (it builds a small extension, which needs a C compiler)",
    "vllm": " in an environment of its own (docs/vllm.md)",
}


def installed(package: str) -> bool:
    return find_spec(package) is not None


def require_package(package: str, wanted_by: str, otherwise: str = "") -> None:
    """Raises UserError where an optional package is missing, with how to install it and what to do without it."""
    if installed(package):
        return
    name = package.replace("_", "-")
    extra = _EXTRA_OF.get(package)
    made_by = Path(sys.prefix, "pyvenv.cfg")
    made_by_uv = made_by.is_file() and "\nuv = " in made_by.read_text(encoding="utf-8")  # without pip
    if "UV" in os.environ or made_by_uv:
        no_dev = "--no-dev " if package == "vllm" else ""  # it takes an older Transformers than the group dev
        command = f"uv run {no_dev}{f'--extra {extra}' if extra else f'--with {name}'} rlvr-vocab …"
    else:
        command = f"pip install -e '.[{extra}]'" if extra else f"pip install {name}"
    how = f"install it with {command}{_REMARKS.get(package, '')}" + (otherwise and f", or {otherwise}")
    raise UserError(f"{wanted_by}: {name} is not installed; {how}")


def is_main_process() -> bool:
    """Whether this is rank 0, by the launcher's variable, which is set before torch is imported."""
    return os.environ.get("RANK", "0") == "0"


def write_exit_code(code: int | None) -> None:
    """Write the main process's code to the file that the environment names; None removes the file, as before a run."""
    if EXIT_CODE_FILE in os.environ and is_main_process():
        file = Path(os.environ[EXIT_CODE_FILE])
        file.unlink(missing_ok=True)
        if code is not None:
            file.write_text(f"{code}\n", encoding="utf-8")


_LEFT_ALONE = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")


@contextmanager
def main_process_reports(seconds: float = 20.0) -> Iterator[None]:
    """Let the main process alone report an error that all processes of a run raise.

    The others wait for the launcher, which ends them within a second, as does a process whose peer has ended. One that
    still runs after `seconds` raised the error alone.
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


# From Ctrl-C, from a scheduler, and SLURM's warning before the time limit.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
_PASSED_ON_WITHIN = 3.0  # seconds in which a launcher passes on a signal that its processes received themselves
STARTED_BY_MULTIRUN = "RLVR_VOCAB_MULTIRUN"
_LAUNCHED = ("TORCHELASTIC_RUN_ID", STARTED_BY_MULTIRUN)


class StopSignals:
    """The signal that a process received: `reason` is its name, such as `SIGTERM`, or None.

    With `defer_signals`, as within a step, a signal is only noted; otherwise it raises `Interrupted` at once.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self.defer_signals = False
        self._process = os.getpid()
        self._first = 0.0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """In the block a signal raises `Interrupted`, even if a library alters it; a second one ends the process."""
        self.reason, self.defer_signals, self._process = None, False, os.getpid()
        before = {number: signal.signal(number, self._received) for number in STOP_SIGNALS}
        try:
            yield
        except (Interrupted, OutOfRoom):
            raise
        except BaseException as error:
            if self.defer_signals or self.reason is None:
                raise
            raise Interrupted(f"by {self.reason} ({type(error).__name__}: {error})") from error
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def require_going_on(self) -> None:
        """Raise `Interrupted` if a signal was noted."""
        if self.reason is not None:
            raise Interrupted(f"by {self.reason}; the same command goes on")

    def _received(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a forked child has this handler too; its parent handles the signal
            return
        if self.reason is not None:
            launched = any(name in os.environ for name in _LAUNCHED)
            if launched and time.monotonic() - self._first < _PASSED_ON_WITHIN:
                return
            os._exit(128 + number)
        self.reason, self._first = signal.Signals(number).name, time.monotonic()
        if not self.defer_signals:
            raise Interrupted(f"by {self.reason}, outside of a step; the same command goes on")


stop_signals = StopSignals()  # of this process


@contextmanager
def block_signals_in_children() -> Iterator[None]:
    """Keep SIGINT and SIGUSR1, which a terminal and SLURM send to all processes, from those started in the block.

    The children inherit the block; this process receives a blocked signal when the block ends.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGUSR1))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
