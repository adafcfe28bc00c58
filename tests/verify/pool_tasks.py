"""What the workers of the pool tests do. An item is the name of a task here and its arguments."""

import os
import resource
import signal
import sys
import time
from pathlib import Path


def act(item):
    name, *arguments = item
    return globals()[name](*arguments)


KEPT = []
leave, not_json, pid = os._exit, object, os.getpid


def echo(value=None):
    return value


def send_oneself(name):
    os.kill(os.getpid(), signal.Signals[name])


def nap(seconds):
    time.sleep(seconds)
    return seconds


def hang():
    while True:
        pass


def grow():
    grown = bytearray()
    while True:
        grown += b"x" * 2**22


def keep(megabytes):
    """Keeps so much more memory from item to item; returns how much there is."""
    KEPT.append(bytearray(megabytes * 2**20))
    return sum(len(kept) for kept in KEPT) // 2**20


def die_once(path: str = os.environ.get("DIES_ONCE", "")):
    """Is killed the first time, as by a full machine."""
    if not Path(path).exists():
        Path(path).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def recurse_through_c():
    return sorted([0], key=lambda _: recurse_through_c())


def write_to_every_file(text):
    """To every open file but the standard ones."""
    for descriptor in range(3, 256):
        try:
            os.write(descriptor, text.encode())
        except OSError:
            continue
    time.sleep(0.3)


def confinement():
    """Whether the alarm is at its default and unblocked, the core limit, the session, where standard files lead."""
    alarm = signal.getsignal(signal.SIGALRM) == signal.SIG_DFL, signal.SIGALRM in signal.pthread_sigmask(0, [])
    nowhere = Path(os.devnull).stat().st_rdev
    files = [os.fstat(descriptor).st_rdev == nowhere for descriptor in (0, 1, 2)]
    print("printed", flush=True)
    print("printed", file=sys.stderr, flush=True)
    return [*alarm, resource.getrlimit(resource.RLIMIT_CORE)[0], os.getsid(0) == os.getpid(), files]


def fail(kind, words):
    raise {"ValueError": ValueError, "SystemExit": SystemExit}[kind](words)


def slow_start():
    time.sleep(0.5)


def die_at_the_start():
    os.kill(os.getpid(), signal.SIGKILL)
