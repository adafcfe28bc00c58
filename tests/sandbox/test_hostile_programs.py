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
from tests.sandbox.hostile_programs import ADVANTAGES, FAKES, SCRIPTS

LIMITS = Limits(seconds=2.0, memory=2**29)

try:
    probe()
except CannotConfine as error:
    pytest.skip(f"programs cannot be confined here: {error}", allow_module_level=True)


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


@pytest.mark.parametrize("what", FAKES)
def test_a_program_is_not_taken_for_right(what):
    result = run_tests(FAKES[what], ProgramTests(code=("assert answer(7) == 49",)), LIMITS)
    assert (result.passed, result.total) == (0, 1)
    assert result.failure


@pytest.mark.parametrize("what", ADVANTAGES)
def test_a_program_takes_no_advantage_of_its_test(what):
    source, test = ADVANTAGES[what]
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
