"""What the workers of the pool tests do. An item is the name of a function here and its arguments."""

import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

KEPT: list[bytearray] = []


def act(item: list[Any]) -> Any:
    name, *arguments = item
    return globals()[name](*arguments)


def echo(value: Any = None) -> Any:
    return value


def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def pid() -> int:
    return os.getpid()


def session() -> int:
    return os.getsid(0)


def hang() -> NoReturn:
    while True:
        pass


def hang_in_c() -> int:
    return 3 ** (10**9)


def hang_with_signals_ignored() -> NoReturn:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    hang()


def grow() -> NoReturn:
    grown = bytearray()
    while True:
        grown += b"x" * 2**22


def keep(megabytes: int) -> int:
    KEPT.append(bytearray(megabytes * 2**20))
    return megabytes


def leave(code: int) -> NoReturn:
    os._exit(code)


def send_oneself(name: str) -> None:
    os.kill(os.getpid(), signal.Signals[name])


def levels_reached(levels: int) -> int:
    return 1 + levels_reached(levels - 1) if levels else 0


def recurse_through_c() -> Any:
    return sorted([0], key=lambda _: recurse_through_c())


def scribble() -> None:
    """Write nonsense to every open file but the standard ones."""
    for descriptor in open_descriptors():
        if descriptor > 2:
            os.write(descriptor, b'"other"\n')


def answer_an_earlier_request() -> None:
    for descriptor in open_descriptors():
        if descriptor > 2:
            os.write(descriptor, b'[0, 1, "", 1.0]\n')
    time.sleep(0.3)


def alarm_state() -> list[bool]:
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    return [signal.getsignal(signal.SIGALRM) == signal.SIG_DFL, signal.SIGALRM in blocked]


def core_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_CORE)[0]


def open_descriptors() -> list[int]:
    found = []
    for descriptor in range(256):
        try:
            os.fstat(descriptor)
        except OSError:
            continue
        found.append(descriptor)
    return found


def standard_files_lead_nowhere() -> list[bool]:
    nowhere = Path(os.devnull).stat().st_rdev
    return [os.fstat(descriptor).st_rdev == nowhere for descriptor in (0, 1, 2)]


def shout() -> None:
    print("printed", flush=True)
    print("printed", file=sys.stderr, flush=True)
    os.write(1, b"written")
    os.write(2, b"written")


def fail(kind: str, words: str) -> NoReturn:
    raise {"ValueError": ValueError, "SystemExit": SystemExit}[kind](words)


def not_json() -> object:
    return object()


def hash_of(text: str) -> int:
    return hash(text)


def once_killed(marker: str) -> str:
    """Killed at the first try, well at the second."""
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "well"


def slow_start() -> None:
    time.sleep(0.5)


def die_at_the_start() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
