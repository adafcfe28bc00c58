"""Tools and environments by name; what a wrong call costs."""

import asyncio
import re
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.tools.functions import ToolError, guarded, load_environment, load_tools

TAGS = "<think></think><|im_start|>assistant\n"


def raises():
    raise KeyError("Paris")


def raises_much():
    raise ValueError("z" * 10_000_000)


def spins():
    while True:
        pass


def catches():
    with pytest.raises(BaseException):  # noqa: B017, PT011 - the first alarm
        time.sleep(60)
    time.sleep(60)


def sleeps_by_its_own_alarm():
    def ring(*_):
        raise TimeoutError("operation timed out")

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    time.sleep(60)


def recursion():
    return recursion()


def generator():
    yield "text"


def ends():
    sys.exit(3)


async def waits():
    await asyncio.Event().wait()


async def catches_its_end():
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.3)
            return


HOSTILE = {  # function -> what the model reads
    raises: "^'Paris'$",
    (lambda: time.sleep(60)): "^had not returned by its deadline of 0.2 seconds$",
    spins: "deadline",
    (lambda: re.match(r"(a+)+$", "a" * 40 + "b")): "deadline",  # holds the interpreter's lock
    (lambda: threading.Event().wait()): "deadline",
    catches: "deadline",
    sleeps_by_its_own_alarm: "^operation timed out$",
    recursion: "maximum recursion depth",
    ends: "SystemExit: 3",
    generator: "^returned generator, which has no text$",
    (lambda: b"bytes"): "returned bytes",
    (lambda: {"rows": [object()]}): "has no text",
    raises_much: r"^z{1000}… \(1,000 of 10,000,000 characters\)$",
    waits: "deadline",
    catches_its_end: "deadline",
}


def call(tool, **arguments):
    """As TRL calls it."""
    if not asyncio.iscoroutinefunction(tool):
        return tool(**arguments)
    return asyncio.run(tool(**arguments))


@pytest.mark.parametrize(("tool", "message"), HOSTILE.items(), ids=lambda each: getattr(each, "__name__", None))
def test_a_wrong_call_costs_one_short_message(tool, message):
    handler = signal.getsignal(signal.SIGALRM)
    start = time.monotonic()
    with pytest.raises(ToolError, match=message) as raised:
        call(guarded(tool, deadline=0.2))
    assert len(str(raised.value)) < 1_100
    assert time.monotonic() - start < 3
    assert (signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)) == (handler, (0, 0))


def test_a_call_outside_of_the_main_thread_is_abandoned_at_its_deadline():
    outcome = []

    def run():
        try:
            outcome.append(guarded(lambda: time.sleep(5), deadline=0.1)())
        except ToolError as error:
            outcome.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(3)
    assert outcome == ["had not returned by its deadline of 0.1 seconds"]


@pytest.mark.parametrize(
    "result", ["text", "", 3, 2.5, None, True, {"a": [1, None]}, [("b", 2)], [], (1,), TAGS, "é\n"]
)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_benign_result_is_what_trl_makes_of_it(result, is_async):
    async def async_tool():
        return result

    found = call(guarded(async_tool if is_async else lambda: result))
    assert found == (result if isinstance(result, list) else str(result))  # as in TRL's `_tool_call_loop`


def test_a_long_result_is_cut_and_half_surrogates_are_escaped():
    assert guarded(lambda: "x" * 50_000_000)() == "x" * 32_000 + "… (32,000 of 50,000,000 characters)"
    assert guarded(lambda: "a\ud800b")() == "a\\ud800b"
    image = {"type": "image", "image": object()}
    assert guarded(lambda: [("x", 1)] * 9_000)() == str([("x", 1)] * 9_000)[:32_000] + "… (32,000 of 90,000 characters)"
    found = guarded(lambda: [image, {"type": "text", "text": "x" * 50_000 + "\ud800"}])()
    assert found[0] == image
    assert found[1]["text"] == "x" * 32_000 + "… (32,000 of 50,001 characters)"


def test_arguments_are_copies_and_the_signature_stays():
    def tool(rows: list[int], *, n: int = 1) -> str:
        """Sum."""
        rows.append(n)
        return str(sum(rows))

    given = [1, 2]
    assert guarded(tool)(rows=given, n=4) == "7"
    assert given == [1, 2]
    assert guarded(tool).__doc__ == "Sum."
    assert guarded(tool).__wrapped__ is tool
    assert guarded(again := guarded(tool)) is again


def test_what_a_tool_prints_is_dropped(capsys):
    def prints():
        print("x" * 1_000, "\ud800")
        sys.stdout.close()
        return "done"

    stdout = sys.stdout
    assert guarded(prints)() == "done"
    assert guarded(lambda: setattr(sys, "stdout", None))() == "None"
    assert sys.stdout is stdout
    assert capsys.readouterr().out == ""


# --- by name ---

FILE = '''
def plus(a: int, b: int) -> int:
    """Add.

    Args:
        a: one
        b: other
    """
    return a + b


def no_hints(a):
    """Add."""


def no_docstring(a: int): ...


def undescribed(a: int):
    """Add."""


class Env:
    def __init__(self, level: int = 1):
        self.level = level

    def reset(self, **row): ...

    def step(self, move: str):
        """Move.

        Args:
            move: where to
        """


class Silent:
    def step(self): ...


class BadMethod(Env):
    def look(self, where): ...
'''


@pytest.fixture(autouse=True)
def in_a_folder_with_tools():
    Path("mine.py").write_text(FILE)


def test_tools_are_loaded_by_name_and_an_environment_is_made_with_its_parameters():
    plus, calculator = load_tools(["mine.py:plus", "calculator"])
    assert plus(2, b=3) == 5
    assert calculator.__name__ == "calculator"
    assert load_environment("mine.py:Env", {"level": 3})().level == 3


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["calculater"], "tools: no tool calculater; did you mean calculator"),
        (["mine.py:nothing"], "'nothing' does not exist"),
        (["mine.py:Env"], "is no function"),
        (["mine.py:no_hints"], "no_hints has no schema.*missing a type hint"),
        (["mine.py:no_docstring"], "no_docstring has no schema.*no docstring"),
        (["mine.py:undescribed"], "undescribed has no schema.*'a'"),
        (["calculator", "calculator"], "several are called calculator"),
        (["/none.py:plus"], "no such file /none.py"),
    ],
)
def test_a_tool_that_cannot_be_one_is_refused(names, message):
    with pytest.raises(UserError, match=message):
        load_tools(names)


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("Env", {}, "write file.py:Class"),
        ("mine.py:Env", {"depth": 1}, "unexpected keyword argument 'depth'; environment.params"),
        ("mine.py:Silent", {}, "no class with a method reset"),
        ("mine.py:BadMethod", {}, "look has no schema"),
    ],
)
def test_an_environment_that_cannot_be_one_is_refused(name, params, message):
    with pytest.raises(UserError, match=message):
        load_environment(name, params)
