"""The process of a program: it confines itself, runs the program, and answers calls to the program's definitions.

    python -I -S -c '…; main()' JOB

JOB is JSON: the file numbers of the program's text and of calls and answers (none for a script, which reads its
standard input), its limits, and whether it is confined. A call and its answer are each a line of JSON, so that only
plain values pass from a program to its tests.
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
from collections import Counter, OrderedDict, deque, namedtuple

from rlvr_vocab.sandbox.confinement import confine, limit, readable_paths

TYPE_CHECKING = False  # without an import, which would take longer than the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO, Any

_MOST_PRINTED = 2**20
# LeetCode imports these, and its function signatures use them.
_SOLUTION_IMPORTS = "import bisect, collections, functools, heapq, itertools, math\nfrom typing import *\n"

_MAPPINGS: dict[str, type[Any]] = {kind.__name__: kind for kind in (Counter, OrderedDict, dict)}
_SEQUENCES: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (list, tuple, set, frozenset, deque, bytes, bytearray)
}
# Types that can be rebuilt from a few plain values.
_MADE = {
    "builtins": ("complex", "range"),
    "datetime": ("date", "datetime", "time", "timedelta", "timezone"),
    "decimal": ("Decimal",),
    "fractions": ("Fraction",),
    "numpy": ("array",),
}


class NotPlain(TypeError):
    """A value cannot be sent between the processes."""


def encoded(value: Any, of_object: Callable[[Any], Any] | None = None) -> Any:
    """A value as JSON, a subclass as its plainest base; `of_object` encodes other types, else they raise NotPlain."""
    if value is None or type(value) is bool:
        return value
    for plain in (int, float, str):
        if isinstance(value, plain):
            return plain(value)
    for name, kind in _MAPPINGS.items():
        if isinstance(value, kind):
            return {name: [[encoded(key, of_object), encoded(item, of_object)] for key, item in value.items()]}
    for name, kind in _SEQUENCES.items():
        if isinstance(value, kind):
            items = [encoded(item, of_object) for item in value]
            fields = getattr(value, "_fields", None) if kind is tuple else None
            return {"fields": [list(fields), items]} if fields else {name: items}
    module, name, arguments = type(value).__module__, type(value).__name__, None
    if isinstance(value, complex):
        module, name, arguments = "builtins", "complex", (value.real, value.imag)
    elif module == "numpy" and getattr(value, "ndim", None) == 0:
        if type(item := value.item()).__module__ != "numpy":  # a longdouble's is itself
            return encoded(item, of_object)
    elif (module, name) == ("numpy", "ndarray") and value.dtype.names is None:
        name, arguments = "array", (value.tolist(), value.dtype.str)
    elif name in _MADE.get(module, ()):
        arguments = value.__reduce__()[1]
    if arguments is not None:
        return {"made": [module, name, encoded(list(arguments), of_object)]}
    if of_object is None:
        raise NotPlain(f"{type(value).__name__} is not a plain value")
    return {"object": of_object(value)}


def decoded(value: Any, of_object: Callable[[Any], Any] | None = None) -> Any:
    """The inverse of `encoded`; raises NotPlain for other JSON. `of_object` decodes objects."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case {"fields": [list() as fields, list() as items]}:
            return namedtuple("Row", fields)(*(decoded(item, of_object) for item in items))
        case {"made": [str() as module, str() as name, arguments]} if name in _MADE.get(module, ()):
            __import__(module)
            return getattr(sys.modules[module], name)(*decoded(arguments, of_object))
        case {"object": name} if of_object is not None:
            return of_object(name)
        case dict() if len(value) == 1:
            [(name, items)] = value.items()
            if name in _MAPPINGS:
                return _MAPPINGS[name]({decoded(key, of_object): decoded(item, of_object) for key, item in items})
            if name in _SEQUENCES:
                return _SEQUENCES[name](decoded(item, of_object) for item in items)
    raise NotPlain("JSON that is no value")


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
    # The module must be in sys.modules: dataclasses, pickle and typing look it up by name.
    module = sys.modules["program" if calls else "__main__"] = type(sys)("program" if calls else "__main__")
    module.__file__ = "program.py"
    if calls and "class Solution" in source:
        exec(_SOLUTION_IMPORTS, module.__dict__)

    def load() -> None:
        exec(compile(source, "program.py", "exec", dont_inherit=True), module.__dict__)

    if calls:
        _answer_calls(load, module.__dict__, *calls)
    else:
        load()


def _emulate_contest_machine() -> None:
    """Provide `exit`, a deep stack, and threads that run inside `start`, as no thread can be created."""
    stack, get, change = resource.RLIMIT_STACK, resource.getrlimit, resource.setrlimit
    most = (get(stack)[1],) * 2
    change(stack, most)

    def start(thread: threading.Thread) -> None:
        try:
            thread.run()
        except SystemExit:
            pass
        except BaseException:  # noqa: BLE001 - an error in a thread is printed and does not end the program
            sys.excepthook(*sys.exc_info())

    resource.getrlimit = lambda kind: most if kind == stack else get(kind)
    resource.setrlimit = lambda kind, limits: None if kind == stack else change(kind, limits)
    threading.Thread.start = start  # type: ignore[method-assign, assignment]
    threading.Thread.join = lambda thread, timeout=None: None  # type: ignore[method-assign, assignment]
    threading.Thread.is_alive = lambda thread: False  # type: ignore[method-assign, assignment]
    builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]


def _answer_calls(load: Callable[[], None], namespace: dict[str, Any], calls: IO[bytes], answers: IO[bytes]) -> None:
    """Load the program and answer calls to its definitions and to the objects that it returned."""
    objects: list[Any] = []
    numbers: dict[int, int] = {}
    printed = io.BytesIO()
    sys.stdout = io.TextIOWrapper(printed, "utf-8", write_through=True)

    def named(name: str | int) -> Any:
        """A kept object, a name of the program, a method of its class Solution, or a function of Python's own."""
        if isinstance(name, int):
            return objects[name]
        module, _, function = name.partition(".")
        if function:
            return getattr(operator if module == "operator" else builtins, function)
        if name in namespace:
            return namespace[name]
        if hasattr(namespace.get("Solution"), name):
            return getattr(namespace["Solution"](), name)
        raise NameError(f"the program defines no {name}")

    def number_of(value: Any) -> int:
        number = numbers.setdefault(id(value), len(objects))
        if number == len(objects):
            objects.append(value)
        return number

    def answer(call: dict[str, Any]) -> dict[str, Any]:
        try:
            target = named(call["target"])
            if "attribute" in call:
                return {"value": encoded(getattr(target, call["attribute"]), number_of)}
            arguments = decoded(call["arguments"], named)
            value = target(*arguments, **decoded(call["named"], named))
            # The caller sees changes in place.
            return {"value": encoded(value, number_of), "arguments": encoded(arguments, number_of)}
        except BaseException as error:  # noqa: BLE001 - an exception of the program is returned
            return {"raised": _described(error)}

    refused = None
    try:
        load()
    except BaseException as error:  # noqa: BLE001 - as above
        refused = {"refused": _described(error)}
    for line in calls:
        printed.seek(0)
        printed.truncate()
        content: dict[str, Any] = refused or answer(json.loads(line))
        content["printed"] = printed.getvalue()[:_MOST_PRINTED].decode(errors="replace")
        answers.write(json.dumps(content).encode("ascii") + b"\n")


def _described(error: BaseException) -> list[Any]:
    """The names of the classes of an exception, and its text."""
    return [[kind.__name__ for kind in type(error).__mro__], str(error)[:300]]
