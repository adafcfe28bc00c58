"""Runs a program against its tests: starts the processes, waits up to their time limit, and counts passed tests."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

from rlvr_vocab.sandbox.confinement import CannotConfine, require_confinement

_PACKAGE = str(Path(__file__).parents[1])
# Skips the package's `__init__`, which is not needed here and takes long.
_START = (
    "import sys; package = sys.modules['rlvr_vocab'] = type(sys)('rlvr_vocab'); package.__path__ = [{package!r}]; "
    "from rlvr_vocab.sandbox.{module} import main; sys.path.append({packages!r}); main()"
)
# Without the caller's environment, which may contain keys.
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "LANG": "C.UTF-8"}


@dataclass(frozen=True)
class Limits:
    """Limits of a program: seconds of wall-clock and of processor time, bytes of address space, bytes of output."""

    seconds: float = 10.0
    memory: int = 2**30
    output: int = 2**20


@dataclass(frozen=True)
class ProgramTests:
    """The tests of a program: `code` or `scripts`."""

    code: tuple[str, ...] = ()  # Python with assertions
    scripts: tuple[tuple[str, str], ...] = ()  # standard input and expected output of the whole program
    setup: str = ""  # Python that runs before each piece of code
    entry_point: str | None = None


def case_test(arguments: Sequence[Any], *accepted: Any) -> str:
    """A test in Python: the function `entry_point` returns an accepted value for the arguments, all of them JSON."""
    return f"assert _gives({json.dumps([arguments, *accepted])!r})"


@dataclass(frozen=True)
class Result:
    """The number of tests passed, their total (0 where they cannot judge any program), and the first failure."""

    passed: int
    total: int
    failure: str = ""
    timed_out: bool = False


class TimeBudget:
    """The time of a batch of programs: it ends within `seconds * (1.5 + runs / cores / 10)`.

    Each run gets at least a tenth of `seconds`, and up to all of `seconds` while the reserve lasts. The reserve starts
    at 1.5 times `seconds` per core and receives the unused time of other runs.
    """

    def __init__(self, seconds: float, cores: float) -> None:
        self._seconds, self._least = seconds, seconds / 10
        self._spare, self._lock = 1.5 * seconds * cores, threading.Lock()

    @contextmanager
    def allot(self) -> Iterator[float]:
        """The seconds of one run; unused ones return to the reserve."""
        with self._lock:
            given = self._least + min(self._seconds - self._least, self._spare)
            self._spare -= given - self._least
        begun = time.monotonic()
        try:
            yield given
        finally:
            with self._lock:
                self._spare += max(0.0, given - (time.monotonic() - begun))


def run_tests(
    source: str, tests: ProgramTests, limits: Limits, *, confined: bool = True, budget: TimeBudget | None = None
) -> Result:
    """Run a program's tests in separate processes until one of them exceeds its time; raises CannotConfine.

    `limits` apply to the program and to its tests: `seconds` to each script, or to all other tests together. The
    `budget` of a batch may shorten them. With `confined=False` the program has all rights of its user.
    """
    budget = budget or TimeBudget(limits.seconds, cores=float("inf"))
    if not tests.scripts:
        with budget.allot() as seconds:
            return _run_assertions(source, tests, replace(limits, seconds=seconds), confined)
    passed, failure, late = 0, "", False
    for given, expected in tests.scripts:
        with budget.allot() as seconds:
            result = _run_script(source, given, expected, replace(limits, seconds=seconds), confined)
        passed, failure, late = passed + result.passed, failure or result.failure, result.timed_out
        if late:
            break
    return Result(passed, len(tests.scripts), failure, late)


@functools.cache
def probe() -> None:
    """Raises CannotConfine where a program cannot be confined here; starts a process the first time."""
    require_confinement()
    result = run_tests("print(6 * 7)", ProgramTests(scripts=(("", "42"),)), Limits(10.0, 2**29))
    if result.passed != 1:
        raise CannotConfine(f"a program that prints 42 did not: {result.failure}")


def _run_script(source: str, given: str, expected: str, limits: Limits, confined: bool) -> Result:
    limits = replace(limits, output=limits.output + 2 * len(expected.encode(errors="replace")))
    with ExitStack() as stack:
        text, entered, printed, errors = (_file(stack, content) for content in (source, given, "", ""))
        job = {"source": text.fileno(), "calls": []}
        process = _start("program", job, limits, confined, stdin=entered, stdout=printed, stderr=errors)
        is_late = not _ends(process, limits.seconds)
        output, error = _text(printed, "surrogateescape"), _last_line(errors)
    if is_late:
        return Result(0, 1, f"not done after {limits.seconds:.3g} s", timed_out=True)
    if process.returncode != 0:
        return Result(0, 1, error or f"ended with {process.returncode}")
    is_right = _lines(output) == _lines(expected)
    return Result(int(is_right), 1, "" if is_right else f"printed {output[:80]!r}")


def _run_assertions(source: str, tests: ProgramTests, limits: Limits, confined: bool) -> Result:
    asked = json.dumps({"tests": tests.code, "setup": tests.setup, "entry_point": tests.entry_point})
    with ExitStack() as stack:
        text, entered, verdicts, ignored, errors = (_file(stack, content) for content in (source, asked, "", "", ""))
        (calls_in, calls_out), (answers_in, answers_out) = os.pipe(), os.pipe()
        try:
            job = {"calls": [calls_out, answers_in], "verdicts": verdicts.fileno()}
            tester = _start("tester", job, limits, confined, stdin=entered, stderr=errors)
            job = {"calls": [calls_in, answers_out], "source": text.fileno()}
            program = _start("program", job, limits, confined, stderr=ignored)
        finally:
            for number in (calls_in, calls_out, answers_in, answers_out):
                os.close(number)
        is_late = not _ends(tester, limits.seconds)
        _ends(program, 0.0)
        lines = [json.loads(line) for line in _text(verdicts).splitlines(keepends=True) if line.endswith("\n")]
        error = _last_line(errors)
    if lines and len(lines[-1]) == 1:
        return Result(0, 0, *lines[-1])
    standings = dict.fromkeys(range(len(tests.code)), (0, 1, "")) | {number: rest for number, *rest in lines}
    passed, total = (sum(standing[place] for standing in standings.values()) for place in (0, 1))
    failures = [failure for _, _, failure in standings.values() if failure]
    if is_late or tester.returncode != 0:
        why = f"not done after {limits.seconds:.3g} s" if is_late else error
        failures.append(why or f"the tests ended with {tester.returncode}")
        total = max(total, passed + 1)
    return Result(passed, total, failures[0] if failures else "", is_late)


def _start(module: str, job: dict[str, Any], limits: Limits, confined: bool, **streams: Any) -> subprocess.Popen[bytes]:
    """A process for a job, whose files it inherits."""
    numbers = [*job["calls"], *(job[key] for key in ("source", "verdicts") if key in job)]
    start = _START.format(module=module, package=_PACKAGE, packages=sysconfig.get_paths()["purelib"])
    job = {**job, "limits": asdict(limits), "confined": confined}
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", start, json.dumps(job)],
        **{"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, **streams},
        env=_ENVIRONMENT,
        cwd="/",
        pass_fds=numbers,
        start_new_session=True,
    )


def _ends(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether a process ends by itself within `seconds`; afterwards it is killed with all processes that it started."""
    try:
        process.wait(seconds)
        return True
    except subprocess.TimeoutExpired:
        return False
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _file(stack: ExitStack, content: str) -> IO[bytes]:
    """A file without a name, to be read from its beginning."""
    file = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
    file.write(content.encode(errors="replace"))
    file.seek(0)
    return file


def _text(file: IO[bytes], errors: str = "replace") -> str:
    file.seek(0)
    return file.read().decode(errors=errors)


def _last_line(file: IO[bytes]) -> str:
    return next((line.strip()[:200] for line in reversed(_text(file).splitlines()) if line.strip()), "")


def _lines(output: str) -> list[str]:
    """Lines for comparison: without trailing blanks and without trailing empty lines."""
    return [line.rstrip() for line in output.rstrip().splitlines()]
