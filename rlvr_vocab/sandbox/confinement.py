"""Confines a process before it runs an untrusted program; Linux enforces it.

Landlock (https://docs.kernel.org/userspace-api/landlock.html) allows reading files below a few folders and no writing.
seccomp (https://docs.kernel.org/userspace-api/seccomp_filter.html) allows only the system calls of a computation: no
process, thread, signal, socket or change to a file. Resource limits bound memory and time. None of this can be undone.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import stat
import struct
import sys

# Imported twice for each program: importing dataclasses, pathlib and typing would take longer than all the rest.


class CannotConfine(Exception):
    """This system cannot confine a process; the text says what is missing."""


# System calls of a computation that reads files and pipes: their numbers on x86_64 and on aarch64 (None: none there).
_ALLOWED = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "stat": (4, None), "fstat": (5, 80),
    "lstat": (6, None), "poll": (7, None), "lseek": (8, 62), "mmap": (9, 222), "mprotect": (10, 226),
    "munmap": (11, 215), "brk": (12, 214), "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139), "pread64": (17, 67), "readv": (19, 65), "writev": (20, 66), "access": (21, None),
    "select": (23, None), "sched_yield": (24, 124), "mremap": (25, 216), "dup": (32, 23),
    "nanosleep": (35, 101), "getpid": (39, 172), "exit": (60, 93), "uname": (63, 160),
    "getcwd": (79, 17), "readlink": (89, None), "gettimeofday": (96, 169), "getrlimit": (97, 163),
    "getrusage": (98, 165), "sysinfo": (99, 179), "times": (100, 153), "getuid": (102, 174), "getgid": (104, 176),
    "geteuid": (107, 175), "getegid": (108, 177), "getppid": (110, 173), "sigaltstack": (131, 132),
    "gettid": (186, 178), "time": (201, None), "futex": (202, 98), "sched_getaffinity": (204, 123),
    "getdents64": (217, 61), "clock_gettime": (228, 113), "clock_getres": (229, 114), "clock_nanosleep": (230, 115),
    "exit_group": (231, 94), "newfstatat": (262, 79), "readlinkat": (267, 78),
    "faccessat": (269, 48), "pselect6": (270, 72), "ppoll": (271, 73), "getrandom": (318, 278),
    "membarrier": (324, 283), "statx": (332, 291), "rseq": (334, 293), "faccessat2": (439, 439),
}  # fmt: skip
_EQUAL, _AT_LEAST, _HAS_BITS = 0x15, 0x35, 0x45  # conditional jumps of BPF
# System calls allowed by the value of one argument: numbers as above, the argument, a test, its values, and whether a
# match allows the call (if false, a match refuses the call and every other value is allowed).
_DECIDED_BY_ARGUMENT: tuple[tuple[tuple[int, int | None], int, int, tuple[int, ...], bool], ...] = (
    # fcntl: F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC; with F_SETOWN and F_SETSIG a file could send signals.
    ((72, 25), 1, _EQUAL, (0, 1, 2, 3, 1030), True),
    # open, openat: Landlock before its version 3 (Linux 6.2) lets O_TRUNC empty a file that may only be read.
    ((2, None), 1, _HAS_BITS, (os.O_TRUNC,), False),
    ((257, 56), 2, _HAS_BITS, (os.O_TRUNC,), False),
    # madvise: MADV_HWPOISON, MADV_SOFT_OFFLINE and above, which remove pages from the whole machine.
    ((28, 233), 2, _AT_LEAST, (100,), False),
)
_AUDIT_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP = 1, 4, 38, 22
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446  # on every architecture
_READ_FILE, _READ_DIRECTORY = 1 << 2, 1 << 3
# Number of file access rights in each version of Landlock, from the first on: a right handled but not given is refused.
_FILE_RIGHTS = (13, 14, 15, 15, 16)
# Devices without user data, and the files of the dynamic linker.
_ALWAYS_READABLE = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/dev/null", "/dev/urandom")

_libc = ctypes.CDLL(None, use_errno=True)


def require_confinement() -> None:
    """Raises CannotConfine where this system cannot confine a process."""
    machine = os.uname().machine
    if sys.platform != "linux" or machine not in _AUDIT_ARCHITECTURE:
        raise CannotConfine(f"{sys.platform} on {machine} cannot confine: that needs Linux on x86_64 or aarch64")
    if _landlock_version() < 1:
        raise CannotConfine("the kernel has no Landlock (Linux 5.13 or later, with landlock in its security modules)")


def readable_paths() -> list[str]:
    """The folders of the interpreter, its packages and time zones."""
    return [*_ALWAYS_READABLE, "/usr/share/zoneinfo", sys.base_prefix, sys.prefix, *sys.path]


def limit(seconds: float, memory: int, output: int) -> None:
    """Limit seconds of processor time, bytes of memory and of a file; on Linux this process ends with its parent."""
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    limits = {"AS": memory, "CPU": int(seconds) + 1, "CORE": 0, "FSIZE": output, "NOFILE": 64}
    for name, most in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))


def confine(readable: list[str]) -> None:
    """Confine this process, for good; it may read the files and folder trees that are named. Raises CannotConfine."""
    require_confinement()
    _checked("prctl", _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))
    _checked("prctl", _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _allow_reading(readable)
    _allow_system_calls()


def _landlock_version() -> int:
    return _libc.syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), 1)


def _allow_reading(paths: list[str]) -> None:
    version = min(_landlock_version(), len(_FILE_RIGHTS))
    handled = struct.pack("Q", (1 << _FILE_RIGHTS[version - 1]) - 1)
    ruleset = _checked("landlock", _libc.syscall(_LANDLOCK_CREATE_RULESET, handled, ctypes.c_size_t(len(handled)), 0))
    for path in paths:
        try:
            below = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        is_folder = stat.S_ISDIR(os.fstat(below).st_mode)
        rule = struct.pack("=Qi", _READ_FILE | _READ_DIRECTORY if is_folder else _READ_FILE, below)
        _checked(f"landlock for {path}", _libc.syscall(_LANDLOCK_ADD_RULE, ruleset, 1, rule, 0))
        os.close(below)
    _checked("landlock", _libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def _allow_system_calls() -> None:
    """Make every other system call fail with EPERM, as well as setting a limit."""
    program = _filter(os.uname().machine)
    instructions = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))

    described = Program(len(program) // 8, ctypes.cast(instructions, ctypes.c_void_p))
    _checked("seccomp", _libc.prctl(_PR_SET_SECCOMP, 2, ctypes.byref(described), 0, 0))


def _filter(machine: str) -> bytes:
    """The classic BPF program that allows a machine's system calls (`struct sock_filter`, 8 bytes an instruction)."""
    load, give_back = 0x20, 0x06
    allow, refuse, kill = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000
    place = list(_AUDIT_ARCHITECTURE).index(machine)
    program = [
        (load, 0, 0, 4),  # seccomp_data.arch: a 32-bit call has other numbers
        (_EQUAL, 1, 0, _AUDIT_ARCHITECTURE[machine]),
        (give_back, 0, 0, kill),
        (load, 0, 0, 0),  # seccomp_data.nr
    ]
    for both, argument, test, values, match_allows in _DECIDED_BY_ARGUMENT:
        if (number := both[place]) is not None:
            decided = [
                (load, 0, 0, 16 + 8 * argument),  # the lower half of seccomp_data.args[argument]
                *((test, len(values) - at, 0, value) for at, value in enumerate(values)),
                (give_back, 0, 0, refuse if match_allows else allow),
                (give_back, 0, 0, allow if match_allows else refuse),
            ]
            program += [(_EQUAL, 0, len(decided), number), *decided]
    numbers = [number for both in _ALLOWED.values() if (number := both[place]) is not None]
    program += [(_EQUAL, len(numbers) - at, 0, number) for at, number in enumerate(numbers)]
    program += [(give_back, 0, 0, refuse), (give_back, 0, 0, allow)]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


def _checked(what: str, result: int) -> int:
    if result < 0:
        raise CannotConfine(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result
