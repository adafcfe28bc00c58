"""Programs that would do harm, or be taken for right: nothing comes of it, and a word says why."""

import socket
import struct
import subprocess
import sys
import time

import psutil
import pytest

from rlvr_vocab.sandbox import confinement
from rlvr_vocab.sandbox.confinement import CannotConfine
from rlvr_vocab.sandbox.run import Limits, ProgramTests, probe, run_tests

LIMITS = Limits(seconds=2.0, memory=2**29)

try:
    probe()
except CannotConfine as error:
    pytest.skip(f"programs cannot be confined here: {error}", allow_module_level=True)

# Programs with a word of the reason for which each fails; one prints "done" where it has had its way.
# {folder} is one that the user may write to, with a file `kept` in it; {pid} a process of the user's; {port} a port
# that somebody listens on.
SCRIPTS = {
    "an endless loop": ("while True: pass", "not done"),
    "a deaf endless loop": (
        "import signal\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n"
        "    except Exception: pass\nwhile True: pass",
        "not done",
    ),
    "a fork bomb": ("import os\nwhile True: os.fork()", "PermissionError"),
    "a thread bomb": ("import threading\nwhile True: threading.Thread(target=len).start()", "not done"),
    "ten gigabytes": ("x = bytearray(10 * 2**30)\nprint('done')", "MemoryError"),
    "deep recursion": (
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
        ("-11", "MemoryError", "not done"),
    ),
    "printing without end": ("while True: print('x' * 10**6)", "File too large"),
    "killing a process": ("import os\nos.kill({pid}, 9)\nprint('done')", "PermissionError"),
    "killing by a file's signal": (
        "import fcntl, os, signal\nfcntl.fcntl(0, fcntl.F_SETOWN, {pid})\nprint('done')",
        "PermissionError",
    ),
    "writing a file": ("open('{folder}/new', 'w')\nprint('done')", "PermissionError"),
    "deleting a file": ("import os\nos.unlink('{folder}/kept')\nprint('done')", "PermissionError"),
    "emptying a file that it may read": (  # seccomp's error: Landlock's, where its version knows of it, is another
        "import os\nos.open('/dev/null', os.O_RDONLY | os.O_TRUNC)\nprint('done')",
        "Operation not permitted",
    ),
    "reading a file": ("print('done', open('{folder}/kept').read())", "PermissionError"),
    "reading the environment of its parent": (
        "import os\nprint('done', open(f'/proc/{{os.getppid()}}/environ').read())",
        "PermissionError",
    ),
    "reading its own environment": ("import os\nassert 'SECRET' in os.environ\nprint('done')", "AssertionError"),
    "a connection": (
        "import socket\nsocket.create_connection(('127.0.0.1', {port}))\nprint('done')",
        "PermissionError",
    ),
    "a shell": ("import os, sys\nsys.exit(os.system('touch {folder}/new'))", ("printed ''", "ended")),
    "tracing its parent": (
        "import ctypes, os\nassert ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0\nprint('done')",
        "AssertionError",
    ),
    "more rights": ("import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))\nprint('done')", "not allowed"),
    "a file in memory": ("import os\nos.memfd_create('x')\nprint('done')", "PermissionError"),
    "a file with a hole": ("import os\nos.lseek(1, 2**40, 0)\nos.write(1, b'done')", "File too large"),
    "its own memory": ("open('/proc/self/mem', 'r+b')\nprint('done')", "PermissionError"),
    "typing at the terminal": (
        "import fcntl, termios\nfcntl.ioctl(0, termios.TIOCSTI, b'x')\nprint('done')",
        "PermissionError",
    ),
    "system calls by number": (  # shmget, unshare, add_key, io_uring_setup, pidfd_open, process_vm_readv: x86_64's
        "import ctypes\nlibc = ctypes.CDLL(None)\n"
        "assert any(libc.syscall(n, 0, 0, 0, 0, 0, 0) >= 0 for n in (29, 272, 248, 425, 434, 310))\nprint('done')",
        "AssertionError",
    ),
    "a crash": ("import ctypes\nctypes.string_at(0)", "-11"),
}
# What a program does to be taken for right by the test `assert answer(7) == 49`.
FAKES = {
    "an object that equals everything": (
        "class All:\n    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n"
        "def answer(n): return All()"
    ),
    "an integer that equals everything": (
        "class All(int):\n    def __eq__(self, other): return True\n    __hash__ = None\ndef answer(n): return All(0)"
    ),
    "no assertions": "__debug__ = False\nimport builtins\nbuiltins.AssertionError = Exception\ndef answer(n): return 0",
    "a search through memory": (
        "import gc\ndef answer(n):\n"
        "    return next((int(o.split('==')[1]) for o in gc.get_objects() if type(o) is str and '== 49' in o), 0)"
    ),
    "a made-up answer": (
        "import os\nfor number in range(3, 64):\n    try: os.write(number, b'{\"value\": true}\\n' * 3)\n"
        "    except OSError: pass\ndef answer(n): return 0"
    ),
    "an endless answer": "def answer(n): return 'x' * 2**28",
    "an assertion of its own": "def answer(n): raise AssertionError('')",
    "a value that holds itself": "def answer(n):\n    x = []\n    x.append(x)\n    return x",
    "a search through frames": (
        "import sys\ndef answer(n):\n    frame, wanted = sys._getframe(), str(n) + ') == '\n    while frame:\n"
        "        text = repr([*frame.f_locals.values(), *frame.f_globals.values()])\n"
        "        if wanted in text: return int(text.split(wanted)[1][:2])\n        frame = frame.f_back\n    return 0"
    ),
    "another encoder": (
        "import json, sys\nfor module in list(sys.modules.values()):\n"
        "    if hasattr(module, 'encoded'): module.encoded = lambda value, kept=None: {'object': 'answer'}\n"
        'json.dumps = lambda *a, **k: \'{"value": {"object": "answer"}}\'\ndef answer(n): return 0'
    ),
    "lists in lists without end": (
        "import os\ndef answer(n):\n    for number in range(3, 64):\n        try: os.write(number, "
        "b'{\"value\": ' + b'{\"list\": [' * 10**5 + b']}' * 10**5 + b'}\\n')\n        except OSError: pass"
    ),
    "half an answer": (
        "import os, time\ndef answer(n):\n    for number in range(3, 64):\n        try: os.write(number, b'{')\n"
        "        except OSError: pass\n    time.sleep(600)"
    ),
    "closed files": "import os\nos.closerange(0, 64)\ndef answer(n): return 49",
    "an alarm": "import signal\nsignal.setitimer(signal.ITIMER_REAL, 0.1)\ndef answer(n): return 49",
    "a test of its own": "def answer(n): return 0\ndef check(candidate): pass\nabs = all = len = lambda *a: 49",
}

EXPECTS_AN_ERROR = (
    "try:\n    answer(-1)\n    found = False\nexcept Exception:\n    found = True\nassert found\nassert answer(7) == 49"
)
SQUARE = "assert answer(7) == 49"
ALL_OF_MANY = "assert all(map(lambda n: answer(n) == n * n, [3, 7]))"
EVERYTHING = (
    "class All:\n    def __lt__(self, other): return True\n    __gt__ = __le__ = __ge__ = __contains__ = __lt__\n"
    "    def __sub__(self, other): return 0\n    __rsub__ = __sub__\n    def __abs__(self): return 0\n"
    "    def __float__(self): return 49.0\n    def __len__(self): return 49\n    def __hash__(self): return hash(49)\n"
    "    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n"
    "def answer(n): return All()"
)
# Programs that take advantage of how a test is written, and the test.
ADVANTAGES = {
    **{
        f"an object that answers for itself in {test}": (EVERYTHING, f"assert {test}")
        for test in ("49 in answer(7)", "48 < answer(7) < 50", "not answer(7) != 49", "{49: True}.get(answer(7))")
    },
    "a module of the test's": (
        "class np:\n    allclose = staticmethod(lambda *a: True)\ndef answer(n): return 0",
        "assert np.allclose(answer(7), 49)",
    ),
    "a verdict that the test prints": ("def answer(n): return '[0, 1, 1, \"\"]\\n' * 9", "print(answer(7))\n" + SQUARE),
    "an end to a generator in the test": (
        "def answer(n): raise GeneratorExit",
        f"{SQUARE} and all(answer(n) for n in [3])",
    ),
    "an exit behind a bare except": (
        "import os\ndef answer(n): os._exit(0)",
        "try:\n    answer(7)\nexcept:\n    found = True\nassert found",
    ),
    "an exit where nothing else is asked": (
        "import os\ndef answer(n): os._exit(0)",
        "try:\n    answer(7)\nexcept:\n    pass\nelse:\n    assert False",
    ),
    "a loop that is right at first": (
        "import time\ndef answer(n):\n    if n < 4: return n * n\n    time.sleep(600)",
        "for n in range(9):\n    given = answer(n)\n    assert given == n * n",
    ),
    "one of many in a loop": ("def answer(n): return [49] * 5000 + [0]", "for x in answer(7):\n    assert x == 49"),
    "an end to what is mapped": ("def answer(n): raise StopIteration", ALL_OF_MANY),
    "nothing to assert": ("def answer(n): return []", "for x in answer(7):\n    assert x == 49"),
    "a program that does not load for an error": ("def answer(n) return 49", EXPECTS_AN_ERROR),
    "no value for an error": (
        "import os\ndef answer(n):\n    for number in range(3, 64):\n"
        "        try: os.write(number, b'{\"value\": [1]}\\n')\n        except OSError: pass",
        EXPECTS_AN_ERROR,
    ),
}


@pytest.fixture
def surroundings(tmp_path, monkeypatch):
    """A folder, a process and a port of the user's, which are as they were afterwards."""
    monkeypatch.setenv("SECRET", "xyzzy")
    (tmp_path / "kept").write_text("as it was")
    with (
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        server.settimeout(0.0)
        yield {"folder": tmp_path, "pid": process.pid, "port": server.getsockname()[1]}
        with pytest.raises(BlockingIOError):  # nobody has called
            server.accept()
        assert process.poll() is None
        process.kill()
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept").read_text() == "as it was"


@pytest.mark.parametrize("what", SCRIPTS)
def test_a_program_does_no_harm_and_its_failure_has_a_reason(surroundings, what):
    source, reasons = SCRIPTS[what]
    begun = time.monotonic()
    result = run_tests(source.format(**surroundings), ProgramTests(scripts=(("", "done"),)), LIMITS)
    assert (result.passed, result.total) == (0, 1)
    assert any(reason in result.failure for reason in ([reasons] if isinstance(reasons, str) else reasons)), result
    assert result.timed_out == ("not done" in result.failure)
    assert time.monotonic() - begun < LIMITS.seconds + 10
    assert "xyzzy" not in result.failure


@pytest.mark.parametrize("what", [*FAKES, *ADVANTAGES])
def test_a_program_is_not_taken_for_right(what):
    source, test = ADVANTAGES[what] if what in ADVANTAGES else (FAKES[what], SQUARE)
    result = run_tests(source, ProgramTests(code=(test,)), LIMITS)
    assert result.passed == 0 and result.total >= 1
    assert result.failure


def decision(machine, number, *arguments, architecture=None):
    """The decision of the filter about a system call, as the kernel would come to it."""
    words = {0: number, 4: confinement._AUDIT_ARCHITECTURE[architecture or machine]}
    words |= {16 + 8 * place: value for place, value in enumerate(arguments)}
    program = list(struct.iter_unpack("HBBI", confinement._filter(machine)))
    at, loaded = 0, None
    while True:
        code, if_true, if_false, value = program[at]
        if code == 0x06:
            return {0x7FFF0000: "allowed", 0x00050001: "refused", 0x80000000: "killed"}[value]
        if code == 0x20:
            loaded, step = words.get(value, 0), 0
        else:
            step = if_true if {0x15: loaded == value, 0x35: loaded >= value, 0x45: loaded & value}[code] else if_false
        at += 1 + step


@pytest.mark.parametrize(
    ("name", "x86_64", "aarch64", "arguments", "decided"),
    [
        ("read", 0, 63, (), "allowed"),
        ("openat, to read", 257, 56, (0, 0, 0o2000000), "allowed"),
        ("openat, to read and empty", 257, 56, (0, 0, 0o2001000), "refused"),
        ("open, to read", 2, None, (0, 0), "allowed"),
        ("open, to read and empty", 2, None, (0, 0o1000), "refused"),
        ("openat2", 437, 437, (), "refused"),
        ("truncate", 76, 45, (), "refused"),
        ("madvise DONTNEED", 28, 233, (0, 0, 4), "allowed"),
        ("madvise HWPOISON", 28, 233, (0, 0, 100), "refused"),
        ("fcntl F_GETFL", 72, 25, (0, 3), "allowed"),
        ("fcntl F_SETOWN", 72, 25, (0, 8), "refused"),
        ("clone", 56, 220, (), "refused"),
        ("a number of x32", 0x40000000, None, (), "refused"),
    ],
)
def test_the_filter_decides_by_number_and_argument(name, x86_64, aarch64, arguments, decided):
    assert decision("x86_64", x86_64, *arguments) == decided
    if aarch64 is not None:
        assert decision("aarch64", aarch64, *arguments) == decided
    assert decision("x86_64", x86_64, *arguments, architecture="aarch64") == "killed"


def test_nothing_of_a_program_is_left():
    sleeping = "import time\ntime.sleep(600)"
    run_tests(sleeping, ProgramTests(code=("assert f() == 1",)), Limits(seconds=0.5))
    children = [child for child in psutil.Process().children(recursive=True) if child.status() != "zombie"]
    assert not any("rlvr_vocab.sandbox" in " ".join(child.cmdline()) for child in children)
