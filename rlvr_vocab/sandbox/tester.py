"""The process of a program's tests: it runs them, and asks the process of the program for what that returns.

    python -I -S -c '…; main()' JOB < TESTS > VERDICTS

What is expected and whether it came stay here, out of the program's reach: it gets arguments and gives back plain
values. VERDICTS has a line of JSON for each test that begins, its number, and one for each assertion that it reaches:
null where it holds, else why not.
"""

from __future__ import annotations

import ast
import builtins
import json
import math
import os
import sys
from contextlib import contextmanager, suppress

from rlvr_vocab.sandbox.confinement import confine, limit, readable_paths
from rlvr_vocab.sandbox.values import NotPlain, decoded, encoded

TYPE_CHECKING = False  # without an import: it would take longer than the rest
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO, Any

LONGEST_ANSWER = 16 * 2**20
_NOT_RAISED = ("AssertionError", "StopIteration", "StopAsyncIteration")


class ProgramFailed(Exception):
    """The process of the program has ended, or wrote what is no answer."""


class Program:
    """The program, as its tests see it.

    Attributes:
        ended: why there are no more answers; empty as long as there are.
    """

    def __init__(self, calls: IO[bytes], answers: IO[bytes]) -> None:
        self._calls, self._answers = calls, answers
        self.ended = ""

    def ask(self, **call: Any) -> dict[str, Any]:
        """The answer to a call.

        Raises:
            ProgramFailed: there will be none.
            Exception: what the program raised.
        """
        try:
            self._calls.write(json.dumps(call).encode("ascii") + b"\n")
            line = self._answers.readline(LONGEST_ANSWER)
            answer = json.loads(line) if line.endswith(b"\n") else None
        except (OSError, ValueError, RecursionError):
            answer = None
        match answer:
            case {"refused": str() as reason}:
                self.ended = reason
            case dict():
                pass
            case _:
                self.ended = "the program has ended"
        if self.ended:
            raise ProgramFailed(self.ended)
        assert isinstance(answer, dict)
        match answer:
            case {"raised": [str() as kind, str() as text]}:
                raise _exception(kind, text)
        return answer

    def value_of(self, answer: dict[str, Any]) -> Any:
        try:
            return decoded(answer["value"], lambda name: Remote(self, name))
        except (KeyError, ValueError, TypeError, RecursionError) as error:
            self.ended = "the program gave no value"
            raise ProgramFailed(self.ended) from error


def _exception(kind: str, text: str) -> Exception:
    """What the program raised, where it is one of Python's own; a StopIteration would end a `map` of the test's."""
    known = getattr(builtins, kind, None)
    if isinstance(known, type) and issubclass(known, Exception) and kind not in _NOT_RAISED:
        with suppress(TypeError):  # a few are made of more than a text
            return known(text)
    return ProgramFailed(f"raised {kind}: {text}")


class Remote:
    """A function, class or object of the program. It is equal to nothing but itself, and neither true nor false."""

    def __init__(self, program: Program, name: str | int) -> None:
        self._program, self._name = program, name

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        sent = {"arguments": encoded(list(arguments), _name_of), "named": encoded(named, _name_of)}
        answer = self._program.ask(target=self._name, **sent)
        if "arguments" in answer:
            _change(arguments, self._program.value_of({"value": answer["arguments"]}))
        return self._program.value_of(answer)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._program.value_of(self._program.ask(target=self._name, attribute=name))

    def __bool__(self) -> bool:
        raise TypeError("an object of the program is neither true nor false")


def _name_of(value: Any) -> str | int:
    if isinstance(value, Remote):
        return value._name
    raise NotPlain(f"{type(value).__name__} cannot be given to a program")


def _change(arguments: tuple[Any, ...], after: Any) -> None:
    """Do to the arguments what the program did to its copies of them."""
    for ours, theirs in zip(arguments, after if isinstance(after, list) else (), strict=False):
        if type(ours) is not type(theirs) or ours == theirs:
            continue
        if isinstance(ours, list):
            ours[:] = theirs
        elif isinstance(ours, dict | set):
            ours.clear()
            ours.update(theirs)


class Verdicts:
    """Writes them.

    Attributes:
        count: how many assertions, or tests that raised, there have been.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self.count = 0

    def begin(self, number: int) -> None:
        self._line(number)

    def give(self, failure: str | None) -> None:
        self.count += 1
        self._line(failure)

    def _line(self, verdict: str | int | None) -> None:
        sys.stdout.write(json.dumps(verdict) + "\n")
        sys.stdout.flush()

    @contextmanager
    def assertion(self, source: str) -> Iterator[None]:
        """Around an assertion: whatever it raises is its failure, and the next one has its turn.

        None holds once the program has ended: `except Exception: assert True` would take that for an error of its.
        """
        try:
            yield
        except AssertionError as error:
            self.give(_one_line(error) or f"not so: {source}")
        except Exception as error:  # noqa: BLE001 - whatever a test raises is its failure
            self.give(_said(error))
        else:
            self.give(self._program.ended or None)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {_one_line(error)}".removesuffix(": ")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


class _Guarded(ast.NodeTransformer):
    """Puts every assertion into a `with`."""

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        source = ast.Constant(ast.unparse(node.test)[:200])
        call = ast.Call(ast.Name("_assertion", ast.Load()), [source], [])
        return ast.copy_location(ast.With([ast.withitem(call)], [node]), node)


def run_code(code: str, program: Program, entry_point: str | None, verdicts: Verdicts) -> None:
    """Run a test that is Python: its assertions, and its function `check` where it has one, as HumanEval writes it."""
    tree = ast.fix_missing_locations(_Guarded().visit(ast.parse(code)))
    namespace = {name: Remote(program, name) for name in _names_of_the_program(tree)}
    if entry_point:
        namespace.update(dict.fromkeys((entry_point, "candidate"), Remote(program, entry_point)))
    scope: dict[str, Any] = {"math": math, **namespace, "_assertion": verdicts.assertion}
    exec(compile(tree, "tests.py", "exec"), scope)
    if entry_point and "check" in scope and not isinstance(scope["check"], Remote):
        scope["check"](scope[entry_point])


def has_assertions(test: Any) -> bool:
    return isinstance(test, str) and any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(test)))


def _names_of_the_program(tree: ast.AST) -> set[str]:
    """Names that a test reads and neither binds nor has from Python: no program puts its own `abs` under a test."""
    read, bound = set[str](), set[str](dir(builtins)) | {"math", "_assertion"}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                read.add(name)
            case ast.Name(id=name) | ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.alias(name=name, asname=other):
                bound.add((other or name).partition(".")[0])
            case ast.ExceptHandler(name=str() as name):
                bound.add(name)
    return read - bound


def run_case(case: dict[str, Any], program: Program, entry_point: str, verdicts: Verdicts) -> None:
    """Run a test that is arguments and what they give."""
    with verdicts.assertion(f"{entry_point} gives what is expected"):
        given = Remote(program, entry_point)(*case["arguments"])
        assert same(given, case["expected"]), f"gave {given!r:.80}"


def same(given: Any, expected: Any) -> bool:
    """Equal as JSON sees it: a tuple is a list; a float may be off by its last digits."""
    if isinstance(given, list | tuple) and isinstance(expected, list | tuple):
        return len(given) == len(expected) and all(map(same, given, expected))
    if isinstance(given, dict) and isinstance(expected, dict):
        return given.keys() == expected.keys() and all(same(given[key], expected[key]) for key in expected)
    if isinstance(given, bool) or isinstance(expected, bool):
        return given is expected
    numbers = isinstance(given, int | float) and isinstance(expected, int | float)
    if numbers and (isinstance(given, float) or isinstance(expected, float)):
        return math.isclose(given, expected, rel_tol=1e-9, abs_tol=1e-12)
    return type(given) is type(expected) and given == expected


def main() -> None:
    job = json.loads(sys.argv[1])
    calls, answers = os.fdopen(job["calls"], "wb", buffering=0), os.fdopen(job["answers"], "rb")
    tests = json.load(sys.stdin)
    program = Program(calls, answers)
    verdicts = Verdicts(program)
    sys.set_int_max_str_digits(0)
    limit(**job["limits"])
    if job["confined"]:
        confine(readable_paths())
    sys.argv = ["tests.py"]
    for number, test in enumerate(tests["tests"]):
        verdicts.begin(number)
        try:
            if isinstance(test, str):
                run_code(f"{tests['setup']}\n{test}", program, tests["entry_point"], verdicts)
            else:
                run_case(test, program, tests["entry_point"], verdicts)
        except Exception as error:  # noqa: BLE001 - whatever a test raises is its failure
            verdicts.give(_said(error))
    if verdicts.count == 0 and any(has_assertions(test) for test in tests["tests"]):
        # A program that gives an empty list to `for x in f(): assert …` would get no score instead of 0.
        verdicts.give("no assertion was reached")
