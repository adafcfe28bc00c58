"""The process of a program's tests: it runs them and calls the program in the program's own process.

    python -I -S -c '…; main()' JOB < TESTS

The program cannot read expected values or write verdicts: it receives arguments and returns plain values. Verdicts go
to a separate file, one line of JSON for each test at its start and at each change: `[test, passed, total, failure]`, or
`[reason]` if the tests cannot judge any program.
"""

from __future__ import annotations

import ast
import builtins
import functools
import json
import math
import os
import symtable
import sys
from collections import deque
from contextlib import contextmanager, suppress

from rlvr_vocab.sandbox.confinement import confine, limit, readable_paths
from rlvr_vocab.sandbox.program import decoded, encoded

TYPE_CHECKING = False  # without an import, which would take longer than the rest
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import IO, Any, NoReturn

LONGEST_ANSWER = 16 * 2**20
_PYTHONS = frozenset(dir(builtins))
# Modules that public tests use without importing them, and that programs do not provide.
_MODULES = {name: name for name in ("collections", "itertools", "math", "numpy", "re")}
_MODULES |= {"np": "numpy", "pd": "pandas"}
# Errors that would end a `map` in a test; plain Exception comes last.
_NOT_RAISED = (StopIteration, StopAsyncIteration, Exception, BaseException)


class ProgramEnded(BaseException):
    """The program's process has ended or sent an invalid answer; a test cannot expect this error."""


class CannotAsk(BaseException):
    """The test cannot judge any program; the message gives the reason."""


class Program:
    """A proxy of the program for its tests."""

    def __init__(self, calls: IO[bytes], answers: IO[bytes]) -> None:
        self._calls, self._answers = calls, answers
        self._remotes: dict[str | int, Remote] = {}
        self.num_asked, self.ended = 0, ""  # the reason for which it no longer answers
        self.raises: dict[str, type[Exception]] = {}  # classes of its exceptions beside Python's own

    def remote(self, name: str | int) -> Remote:
        """The proxy of an object in the program, by name or number; the same one each time."""
        return self._remotes.setdefault(name, Remote(self, name))

    def ask(self, **call: Any) -> tuple[Any, Any]:
        """The value of a call and its arguments after the call; raises the program's exception, or ProgramEnded."""
        self.num_asked += 1
        answer: Any = None
        with suppress(OSError, ValueError, RecursionError, MemoryError):
            self._calls.write(json.dumps(call).encode("ascii") + b"\n")
            line = self._answers.readline(LONGEST_ANSWER)
            answer = json.loads(line) if line.endswith(b"\n") else None
        if isinstance(answer, dict):
            sys.stdout.write(str(answer.get("printed", "")))
        match answer:
            case {"refused": [[str() as kind, *_], str() as text]}:
                self.end(f"{kind}: {text}")
            case {"raised": [[str() as kind, *kinds], str() as text]}:
                raise self._exception([kind, *kinds], text)
            case {"value": value}:
                with suppress(Exception):  # a program may write anything instead of a value
                    return decoded(value, self.remote), decoded(answer.get("arguments"), self.remote)
                self.end("the program gave no value")
        self.end("the program has ended")

    def end(self, reason: str) -> NoReturn:
        self.ended = self.ended or reason
        raise ProgramEnded(self.ended)

    def _exception(self, kinds: list[str], text: str) -> BaseException:
        """The exception that the program raised, derived from all its classes that exist here."""
        own = [self.raises[kind] for kind in kinds if kind in self.raises]
        for base in [known for kind in kinds if isinstance(known := getattr(builtins, kind, None), type)]:
            if issubclass(base, BaseException) and base not in _NOT_RAISED:
                with suppress(TypeError):  # a few need more arguments than a message
                    return type(kinds[0], (*own, base), {})(text)
        return type(kinds[0], (*own, Exception), {})(text)


class Remote:
    """A function, class or object of the program. No plain value is equal to it."""

    def __init__(self, program: Program, name: str | int) -> None:
        self.__dict__.update(_program=program, _name=name)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        sent = {"arguments": encoded(list(arguments), _name_of), "named": encoded(named, _name_of)}
        value, changed = self._program.ask(target=self._name, **sent)
        _change(arguments, changed)
        return value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__enter__", "__exit__"):
            raise AttributeError(name)
        return self._program.ask(target=self._name, attribute=name)[0]

    def __iter__(self) -> Iterator[Any]:
        iterator, following = self._program.remote("builtins.iter")(self), self._program.remote("builtins.next")
        while (item := following(iterator, iterator)) is not iterator:
            yield item

    def __enter__(self) -> Any:
        return self.__getattr__("__enter__")()

    def __exit__(self, *raised: Any) -> None:
        self.__getattr__("__exit__")(None, None, None)

    def __instancecheck__(self, value: Any) -> Any:
        return self._program.remote("builtins.isinstance")(value, self)


def _forwarded(function: str, *, among_objects: bool) -> Callable[..., Any]:
    def method(self: Remote, *others: Any) -> Any:
        # The program must not decide how its own object compares with an expected value.
        if among_objects and not isinstance(others[0], Remote):
            return NotImplemented
        return self._program.remote(function)(self, *others)

    return method


for _names, _module, _among_objects in (
    ("len bool str repr hash next setattr abs int float round divmod", "builtins", False),
    ("getitem setitem delitem neg pos invert index", "operator", False),
    ("eq ne lt le gt ge add sub mul truediv floordiv mod pow matmul iadd isub imul", "operator", True),
):
    for _name in _names.split():
        setattr(Remote, f"__{_name}__", _forwarded(f"{_module}.{_name}", among_objects=_among_objects))


def _name_of(value: Any) -> str | int:
    if isinstance(value, Remote):
        return value._name
    name = getattr(value, "__name__", "")
    if name and getattr(builtins, name, None) is value:
        return f"builtins.{name}"
    raise CannotAsk(f"a test gives the program a value of {type(value).__name__}, which cannot be sent to it")


def _change(arguments: tuple[Any, ...], after: Any) -> None:
    """Update the arguments in place to the content of the program's copies."""
    for ours, theirs in zip(arguments, after if isinstance(after, list) else (), strict=False):
        if type(ours) is type(theirs) and isinstance(ours, list | dict | set | deque):
            ours.clear()
            (ours.update if isinstance(ours, dict | set) else ours.extend)(theirs)
        elif type(ours) is type(theirs) and type(ours).__name__ == "ndarray":
            ours[...] = theirs


class Test:
    """A test in Python, with its score so far, which is reported at each change.

    An assertion passes if it was reached and held each time. For a test that ends normally the total is the number of
    assertions reached. Until then the total is all of them, and an assertion that may be reached again is not passed.
    """

    def __init__(
        self, text: str, entry_point: str | None, program: Program, report: Callable[[int, int, str], None]
    ) -> None:
        tree = ast.parse(text)
        nodes = [*ast.walk(tree)]
        asserted = [node for node in nodes if isinstance(node, ast.Assert)]
        can_hold = [node for node in asserted if not isinstance(node.test, ast.Constant) or node.test.value]
        repeating = [node for node in nodes if isinstance(node, ast.For | ast.While) or _is_helper(node)]
        self._repeated = {_place(n) for around in repeating for n in ast.walk(around) if isinstance(n, ast.Assert)}
        # `raise`, `assert False`, `pytest.raises`, `np.testing.assert_equal`: no error means that the program is right.
        self._only_raises = not can_hold and any(word in ast.unparse(tree) for word in ("raise", "assert", "fail"))
        self._count = len(can_hold) or int(self._only_raises)
        self._names = _free_names(text)
        kinds = [node.type for node in nodes if isinstance(node, ast.ExceptHandler) and node.type is not None]
        calls = [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("raises")]
        caught = (each for kind in [*kinds, *(kind for call in calls for kind in call.args)] for each in ast.walk(kind))
        self._exceptions = self._names & {each.id for each in caught if isinstance(each, ast.Name)}
        self._code = compile(ast.fix_missing_locations(_Guarded().visit(tree)), "tests.py", "exec", dont_inherit=True)
        self._entry_point, self._program, self._report = entry_point, program, report
        self._reached: dict[str, str] = {}  # assertions and their failures; empty if the assertion held each time
        self._report_unfinished()

    def run(self, scope: dict[str, Any]) -> None:
        """Run the test with the names of the program; CannotAsk where it fails for every program."""
        program = self._program
        self._asked_before = program.num_asked
        program.raises = {name: type(name, (Exception,), {}) for name in self._exceptions}
        names = {name: program.remote(name) for name in self._names - _MODULES.keys()} | program.raises
        if tested := self._entry_point:
            names |= dict.fromkeys((tested, "candidate"), program.remote(tested))
        try:
            modules = {name: __import__(_MODULES[name]) for name in self._names & _MODULES.keys()}
            scope = {**names, **modules, **scope, "_assertion": self._assertion}
            exec(self._code, scope)
            if tested and "check" in scope and not isinstance(scope["check"], Remote):
                scope["check"](scope[tested])
        except CannotAsk:
            raise
        except BaseException as error:
            if program.num_asked == self._asked_before:
                raise CannotAsk(f"a test fails before it asks the program: {_described(error)}") from error
            return self._report_unfinished(program.ended or _described(error))
        failures = [*self._reached.values()]
        if program.ended:
            self._report_unfinished(program.ended)
        elif program.num_asked == self._asked_before:
            self._report(0, 0, "")
        elif failures:
            self._report(failures.count(""), len(failures), next(filter(None, failures), ""))
        elif self._only_raises:
            self._report(1, 1, "")
        else:  # else a program that returns an empty list to `for x in f(): assert …` would get no score
            self._report_unfinished("no assertion was reached")

    def _report_unfinished(self, failure: str = "") -> None:
        held = sum(not failed and place not in self._repeated for place, failed in self._reached.items())
        total = max(self._count, held + 1) if self._count else 0
        self._report(held, total, next(filter(None, self._reached.values()), failure))

    @contextmanager
    def _assertion(self, place: str, source: str) -> Iterator[None]:
        """Around an assertion: record an exception as its failure and go on to the next assertion."""
        failed = ""
        try:
            yield
        except Exception as error:
            if self._program.num_asked == self._asked_before:
                raise
            is_assertion = isinstance(error, AssertionError)
            failed = (str(error)[:200] or f"not so: {source}") if is_assertion else _described(error)
        failed = failed or self._program.ended  # ProgramEnded also reaches `except: assert True`
        if place not in self._reached or (failed and not self._reached[place]):
            self._reached[place] = failed
            self._report_unfinished()


class _Guarded(ast.NodeTransformer):
    """Wraps every assertion in a `with`."""

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        place, source = ast.Constant(_place(node)), ast.Constant(ast.unparse(node.test)[:200])
        call = ast.Call(ast.Name("_assertion", ast.Load()), [place, source], [])
        return ast.copy_location(ast.With([ast.withitem(call)], [node]), node)


def _place(node: ast.Assert) -> str:
    return f"{node.lineno}:{node.col_offset}"


def _is_helper(node: ast.AST) -> bool:
    """Whether the node defines a function other than HumanEval's `check(candidate)`."""
    if not isinstance(node, ast.FunctionDef):
        return False
    return (node.name, [argument.arg for argument in node.args.args]) != ("check", ["candidate"])


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".removesuffix(": ")


def _free_names(text: str) -> set[str]:
    """Global names that a test reads without binding them, Python's own excluded."""
    tables = [symtable.symtable(text, "tests.py", "exec")]
    bound = {symbol.get_name() for symbol in tables[0].get_symbols() if symbol.is_local()}
    for table in tables:
        tables += table.get_children()
    return {each.get_name() for table in tables for each in table.get_symbols() if each.is_global()} - bound - _PYTHONS


def _gives(function: Remote, case: str) -> bool:
    """Whether a function returns an accepted value. JSON turns integer keys into strings: both are tried."""
    arguments, *accepted = json.loads(case)
    if (whole := _with_whole_keys(arguments)) != arguments:
        with suppress(Exception):  # the function may need string keys
            given = function(*whole)
            if any(same(given, expected) for expected in accepted):
                return True
    given = function(*arguments)
    if not any(same(given, expected) for expected in accepted):
        raise AssertionError(f"gave {given!r:.80}")
    return True


def _with_whole_keys(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_whole_keys(item) for item in value]
    if not isinstance(value, dict):
        return value
    are_whole = all(key.removeprefix("-").isdecimal() for key in value)
    return {int(key) if are_whole else key: _with_whole_keys(item) for key, item in value.items()}


def same(given: Any, expected: Any) -> bool:
    """Equality as in JSON: a tuple equals a list, keys are strings; the last digits of a float may differ."""
    if isinstance(given, list | tuple) and isinstance(expected, list | tuple):
        return len(given) == len(expected) and all(map(same, given, expected))
    if isinstance(given, dict) and isinstance(expected, dict):
        given = {json.dumps(k) if k is None or isinstance(k, int | float) else k: item for k, item in given.items()}
        return given.keys() == expected.keys() and all(same(given[key], expected[key]) for key in expected)
    if isinstance(given, bool) or isinstance(expected, bool):
        return given is expected
    numbers = isinstance(given, int | float) and isinstance(expected, int | float)
    if numbers and (isinstance(given, float) or isinstance(expected, float)):
        return math.isclose(given, expected, rel_tol=1e-9, abs_tol=1e-12)
    return type(given) is type(expected) and given == expected


def main() -> None:
    job = json.loads(sys.argv[1])
    calls, answers = job["calls"]
    program = Program(os.fdopen(calls, "wb", buffering=0), os.fdopen(answers, "rb"))
    verdicts = os.fdopen(job["verdicts"], "wb", buffering=0)
    asked = json.load(sys.stdin)
    sys.set_int_max_str_digits(0)
    limit(**job["limits"])
    if job["confined"]:
        confine(readable_paths())
    sys.argv = ["tests.py"]

    def write(*line: Any) -> None:
        verdicts.write(json.dumps(line).encode("ascii") + b"\n")

    entry_point = asked["entry_point"]
    scope = {"_gives": functools.partial(_gives, program.remote(entry_point or ""))}
    try:
        tests = [
            Test(f"{asked['setup']}\n{test}", entry_point, program, functools.partial(write, number))
            for number, test in enumerate(asked["tests"])
        ]
        for each in tests:
            each.run(scope)
    except CannotAsk as error:
        write(str(error))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        write(f"a test is not valid Python: {_described(error)}")
