"""The process of a program: it confines itself, runs the program, and answers calls to what that has defined.

    python -I -S -c '…; main()' JOB

JOB is JSON: the file numbers of the program's text and of calls and answers (none for a script, which reads its
standard input), its limits, and whether it is confined. A call is a line of JSON, as is its answer.
"""

from __future__ import annotations

import builtins
import io
import json
import operator
import os
import resource
import sys
import threading

from rlvr_vocab.sandbox.confinement import confine, limit, readable_paths
from rlvr_vocab.sandbox.values import decoded, encoded

TYPE_CHECKING = False  # without an import: it would take longer than the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO, Any

_MOST_THREADS = 64
_MOST_PRINTED = 2**20
# LeetCode has these imported, and the signatures that it gives use them.
_SOLUTION_IMPORTS = "import bisect, collections, functools, heapq, itertools, math\nfrom typing import *\n"


def main() -> None:
    job = json.loads(sys.argv[1])
    with os.fdopen(job["source"], encoding="utf-8") as file:
        source = file.read()
    calls = [os.fdopen(number, mode, buffering=0) for number, mode in zip(job["calls"], ("rb", "wb"), strict=False)]
    sys.set_int_max_str_digits(0)
    sys.argv = ["program.py"]
    _emulate_contest_machine()
    limit(**job["limits"])
    if job["confined"]:
        confine([*readable_paths(), "/dev/stdin"])
    # A module that can be found by its name: dataclasses, pickle and typing look there.
    module = sys.modules["program" if calls else "__main__"] = type(sys)("program" if calls else "__main__")
    module.__file__ = "program.py"

    def load() -> None:
        if calls and "class Solution" in source:
            exec(_SOLUTION_IMPORTS, module.__dict__)
        exec(compile(source, "program.py", "exec", dont_inherit=True), module.__dict__)

    if calls:
        _Served(module.__dict__).answer_all(load, *calls)
    else:
        load()


def _emulate_contest_machine() -> None:
    """`exit`, a deep stack that may be asked for, and threads that run where they are started: none can be created."""
    stack, get, change = resource.RLIMIT_STACK, resource.getrlimit, resource.setrlimit
    most, unused = (get(stack)[1],) * 2, iter(range(_MOST_THREADS))
    change(stack, most)

    def start(thread: threading.Thread) -> None:
        if next(unused, None) is None:
            raise RuntimeError("can't start new thread")
        try:
            thread.run()
        except SystemExit:
            pass
        except BaseException:  # noqa: BLE001 - the error of a thread is printed, and ends no program
            sys.excepthook(*sys.exc_info())

    resource.getrlimit = lambda kind: most if kind == stack else get(kind)
    resource.setrlimit = lambda kind, limits: None if kind == stack else change(kind, limits)
    threading.Thread.start = start  # type: ignore[method-assign, assignment]
    threading.Thread.join = lambda thread, timeout=None: None  # type: ignore[method-assign, assignment]
    threading.Thread.is_alive = lambda thread: False  # type: ignore[method-assign, assignment]
    builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]


def _refusal_of(run: Callable[[], Any]) -> dict[str, Any] | None:
    """The exception of a call, as an answer: the names of its classes and its text; None where it returned."""
    try:
        run()
    except BaseException as error:  # noqa: BLE001 - whatever a program raises is its answer
        return {"raised": [[kind.__name__ for kind in type(error).__mro__], str(error)[:300]]}
    return None


class _Served:
    """The definitions of a program, and the objects that it returned."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._printed = io.BytesIO()

    def answer_all(self, load: Callable[[], Any], calls: IO[bytes], answers: IO[bytes]) -> None:
        sys.stdout = io.TextIOWrapper(self._printed, "utf-8", write_through=True)
        refusal = _refusal_of(load)
        for line in calls:
            self._printed.seek(0)
            self._printed.truncate()
            answer = {"refused": refusal["raised"]} if refusal else self._answer(json.loads(line))
            answer["printed"] = self._printed.getvalue()[:_MOST_PRINTED].decode(errors="replace")
            answers.write(json.dumps(answer).encode("ascii") + b"\n")

    def _answer(self, call: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        refusal = _refusal_of(lambda: answer.update(self._called(call)))
        return answer if refusal is None else refusal

    def _called(self, call: dict[str, Any]) -> dict[str, Any]:
        target = self._object(call["target"])
        if "attribute" in call:
            return {"value": self._encoded(getattr(target, call["attribute"]))}
        arguments = decoded(call["arguments"], self._object)
        named = decoded(call["named"], self._object)
        value = target(*arguments, **named)
        # The caller sees changes in place.
        return {"value": self._encoded(value), "arguments": self._encoded(arguments)}

    def _object(self, name: str | int) -> Any:
        """A kept object, a name of the program, a method of its class Solution, or a function of Python's own."""
        if isinstance(name, int):
            return self._objects[name]
        module, _, function = name.partition(".")
        if function:
            return getattr(operator if module == "operator" else builtins, function)
        if name not in self._namespace and hasattr(self._namespace.get("Solution"), name):
            return getattr(self._namespace["Solution"](), name)
        if name not in self._namespace:
            raise NameError(f"the program defines no {name}")
        return self._namespace[name]

    def _encoded(self, value: Any) -> Any:
        return encoded(value, self._kept)

    def _kept(self, value: Any) -> int:
        number = self._numbers.setdefault(id(value), len(self._objects))
        if number == len(self._objects):
            self._objects.append(value)
        return number
