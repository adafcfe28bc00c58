"""Programs and their tests: what passes, what is counted, and how values cross."""

import time

import pytest

from rlvr_vocab.sandbox.confinement import CannotConfine
from rlvr_vocab.sandbox.program import NotPlain, decoded, encoded
from rlvr_vocab.sandbox.run import Limits, ProgramTests, Result, TimeBudget, case_test, probe, run_tests

ADD = "def add(a, b):\n    return a + b\n"

try:
    probe()
except CannotConfine as error:
    pytest.skip(f"programs cannot be confined here: {error}", allow_module_level=True)


def passed(source, tests, seconds=5.0):
    result = run_tests(source, tests, Limits(seconds=seconds))
    return result.passed, result.total


def code(*pieces, **settings):
    return ProgramTests(code=pieces, **settings)


def scripts(*pairs):
    return ProgramTests(scripts=pairs)


CHECK = "def check(candidate):\n    for n in range({}):\n        assert candidate(n, 1) == (n + 1 if n < 3 else 0)"
CHECKS = [CHECK.format(times) + "\n    assert candidate(1, 1) == 2" for times in (3, 5)]
PRINTS = ("print(add(3, 6), end='')\nassert add(3, 6) == 9", "print([0, 1, 1, ''])\nassert add(2, 2) == 5")
GIVEN = ([[1, 2], 3], [[[1], [2]], [1, 2]], [[0.1, 0.2], 0.3], [[1, 1], True], [[1, 1], 2.0])
CASES = code(*(case_test(*case) for case in GIVEN), entry_point="add")
TWO = code("assert add(1, 2) == 3", "assert add(1, 1) == 2")
RAISES, HANGS = "def f(n): return 1 // (3 - n)", "def f(n):\n    while n > 2: pass\n    return n"
COUNTED = [
    (ADD, code(CHECKS[0], entry_point="add"), (2, 2)),
    (ADD, code(CHECKS[1], entry_point="add"), (1, 2)),  # in a loop it must hold each time
    (ADD, code(*PRINTS), (1, 2)),  # output is no verdict
    (ADD, CASES, (4, 5)),
    ("print(2 * int(input()))", scripts(("3\n", "6"), ("4\n", "8  \n\n"), ("5\n", "11\n")), (2, 3)),
    ("print('x' * 3_000_000)", scripts(("", "x" * 3_000_000)), (1, 1)),
    ("import os\nos.write(1, b'\\xff')", scripts(("", "\ufffd")), (0, 1)),
    *((source, TWO, (0, 2)) for source in ("def add(a, b) return", "1 / 0", "def other(): pass")),
    # A piece that does not come to its end has the share of all its assertions.
    (HANGS, code("assert f(0) == 0", "assert f(3) == 0", "assert f(0) == 0"), (1, 3)),
    (HANGS, code("assert f(1) == 1\nassert f(2) == 2\nassert f(3) == 3"), (2, 3)),
    (RAISES, code("x = f(2)\nassert x == 1\ny = f(3)\nassert y == 1\nassert f(2)"), (1, 3)),
    (RAISES, code("for n in range(9):\n    x = f(n)\n    assert x < 2"), (0, 1)),
    (RAISES, code("def same(n, x):\n    assert f(n) == x\nsame(2, 1)\nsame(3, 1)"), (0, 1)),
    ("def f(n): return [n] * n", code("for x in f(5000):\n    assert x == 5000\nassert f(1) == 1"), (1, 2)),
    ("def f(n): return n", code("if f(1) == 1:\n    assert f(2) == 2\nelse:\n    assert f(3) == 4"), (1, 1)),
    # Values and changes in place cross.
    ("def f(a, b): a *= 2; b.clear()", code("a, b = [1], {1: 2}\nf(a, b)\nassert (a, b) == ([1, 1], {})"), (1, 1)),
    ("def f(q): q.append(1)", code("import collections\nq = collections.deque()\nf(q)\nassert list(q) == [1]"), (1, 1)),
    ("def f(a): a[0] = 1", code("import numpy\na = numpy.zeros(2)\nf(a)\nassert a.tolist() == [1, 0]"), (1, 1)),
    ("def f(n): return n + 1", code("assert f(10**6000) == 10**6000 + 1"), (1, 1)),
    ("import numpy\ndef f(n): return numpy.int64(n), numpy.float32(0.5)", code("assert f(4) == (4, 0.5)"), (1, 1)),
    ("import numpy\ndef f(): return numpy.longdouble([0.5])", code("assert list(f()) == [0.5]"), (1, 1)),
    ("import numpy\ndef f(): return numpy.array([(1, 0.5)], 'i,f')", code("assert f()['f0'] == 1"), (1, 1)),
    ("def f(n: int): return f.__annotations__['n'] is int", code("assert f(1)"), (1, 1)),
]


@pytest.mark.parametrize(("source", "tests", "share"), COUNTED)
def test_a_program_has_the_share_of_the_assertions_that_hold(source, tests, share):
    assert passed(source, tests, seconds=1.0 if source == HANGS or "5000" in str(tests) else 5.0) == share


def test_the_first_failure_is_named_and_so_is_being_late():
    tests = code("assert add(1, 2) == 3", "assert add(1, 2) == 4", "assert add('a', 'b') == 'ab'")
    assert run_tests(ADD, tests, Limits()) == Result(2, 3, "not so: add(1, 2) == 4")
    assert run_tests(HANGS, code("assert f(3)"), Limits(1.0)) == Result(0, 1, "not done after 1 s", timed_out=True)


NO_ERROR = "try:\n    f(1)\nexcept ValueError:\n    pass\nelse:\n    {}"


@pytest.mark.parametrize(
    "test",
    [
        NO_ERROR.format("assert False"),
        "try:\n    f(1)\n    assert False\nexcept ValueError:\n    pass",
        "import pytest\nwith pytest.raises(ValueError, match='no'):\n    f(1)",
        "try:\n    f(1)\nexcept (Own, KeyError) as error:\n    assert str(error) == 'no'\nelse:\n    assert False",
    ],
)
def test_a_test_may_ask_for_an_error_alone(test):
    right = "class Own(ValueError): pass\ndef f(n): raise Own('no')"
    assert passed(right, code(test)) == (1, 1)
    assert passed("class Own(ValueError): pass\ndef f(n): return n", code(test))[0] == 0
    assert passed("class Own(Exception): pass\ndef f(n): raise TypeError", code(test))[0] == 0


@pytest.mark.parametrize(
    ("test", "reason"),
    [
        ("assert f( == 1", "not valid Python: SyntaxError"),
        ("assert f(1 / 0) == 1", "before it asks the program: ZeroDivisionError"),
        ("assert f(1) == 1\nassert f(lambda: 1) == 1", "a value of function"),
        ("def test_f():\n    assert f(1) == 1", ""),
        ("def check(candidate):\n    assert candidate(1) == 1", ""),
    ],
)
def test_a_test_that_is_broken_judges_no_program(test, reason):
    for source in ("def f(n): return n", "def f(n): return 0"):
        result = run_tests(source, ProgramTests(code=("assert f(1) == 1", test)[reason == "" :]), Limits(5.0))
        assert result.total == 0 and reason in result.failure, result


IDIOMS = {
    "dataclass": "from dataclasses import dataclass\nimport typing as t\n@dataclass\nclass P:\n    x: t.List[int]\n"
    "print(P([int(input())]).x[0] * 2)",
    "pickle": "import pickle\nclass A: pass\na = A()\na.x = int(input())\nprint(pickle.loads(pickle.dumps(a)).x * 2)",
    "/dev/stdin": "print(int(open('/dev/stdin').read()) * 2)",
    "a thread": "import sys, threading\nfrom functools import cache\nsys.setrecursionlimit(10**7)\n"
    "threading.stack_size(2**27)\n@cache\ndef add(n): return n and add(n - 1) + 1\n"
    "def main():\n    print(add(50_000) // 50_000 * int(input()) * 2)\n    sys.exit()\n"
    "thread = threading.Thread(target=main)\nthread.start()\nthread.join()",
    "a deep stack": "from resource import *\nsetrlimit(RLIMIT_STACK, (RLIM_INFINITY, getrlimit(RLIMIT_STACK)[1]))\n"
    "print(int(input()) * 2)",
}


@pytest.mark.parametrize("idiom", IDIOMS)
def test_idioms_of_contests_run(idiom):
    assert passed(IDIOMS[idiom], scripts(("21\n", "42"))) == (1, 1)


OBJECTS = {
    "class P:\n    x: int\n    y: int = 0": ("P(3) == P(3)", "f(P, 3) == P(3, 0)", "str(P(3)) == 'P(x=3, y=0)'"),
    "class P(NamedTuple):\n    x: int": ("P(3).x == 3", "P(3) == (3,)", "f(P, 3) == P(3)"),
    "class P(Enum):\n    ONE = 1": ("P.ONE is f(P, 1)", "P.ONE == P(1)", "P(1).name == 'ONE'", "{P.ONE: 2}[P(1)] == 2"),
    "def P(n):\n    yield from range(n)": ("list(P(3)) == [0, 1, 2]", "sum(P(4)) == 6", "next(P(2)) == 0", "1 in P(2)"),
    "class P:\n    def __init__(self, n): self.n = n\n    def __getitem__(self, i): return self.n + i\n"
    "    def __len__(self): return self.n\n    def __enter__(self): return self.n\n    def __exit__(self, *e): pass\n"
    "    def __add__(self, other): return P(self.n + other.n)\n    def __eq__(self, other): return self.n == other.n": (
        "P(3)[1] == 4", "len(P(3)) == 3", "P(1) + P(2) == P(3)", "isinstance(P(1), P)", "not P(0)", "used(P(4)) == 4",
        "changed(P(1)).n == 5",
    ),
    "class P:\n    def __init__(self, n): self.n = n\n    def __neg__(self): return -self.n\n"
    "    def __int__(self): return self.n\n    def __iadd__(self, other): return P(self.n + other.n)": (
        "-P(3) == -3", "int(P(3)) == 3", "__import__('operator').iadd(P(3), P(2)).n == 5",
    ),
    "P = print": ("printed(lambda: P('hi')) == 'hi\\n'",),
    "P = Counter": ("P('aab').most_common(1) == [('a', 2)]", "P('a') == {'a': 1}"),
    "def P(d): return d + timedelta(1)": ("P(date(2024, 2, 28)) == date(2024, 2, 29)",),
    "P = numpy.cumsum": ("(P(numpy.ones(2)) == [1, 2]).all()", "np.allclose(P([1]), [1])", "P([1]).shape == (1,)"),
}  # fmt: skip


@pytest.mark.parametrize("definition", OBJECTS)
def test_objects_of_a_program_behave_in_its_tests_as_in_one_process(definition):
    imports = (
        "from collections import Counter\nfrom dataclasses import dataclass\nfrom datetime import date, timedelta\n"
    )
    imports += "from enum import Enum\nfrom fractions import Fraction\nfrom typing import NamedTuple\nimport numpy\n"
    decorator = "@dataclass\n" if definition.startswith("class P:\n    x") else ""
    source = f"{imports}{decorator}{definition}\ndef f(g, *arguments): return g(*arguments)"
    setup = (
        f"import contextlib, io, numpy\n{imports}def used(p):\n    with p as x: return x\n"
        "def changed(p):\n    p.n = 5\n    return p\ndef printed(run):\n    text = io.StringIO()\n"
        "    with contextlib.redirect_stdout(text): run()\n    return text.getvalue()\n"
    )
    tests = tuple(f"assert {test}" for test in OBJECTS[definition])
    result = run_tests(source, ProgramTests(code=tests, setup=setup), Limits(5.0))
    assert (result.passed, result.total) == (len(tests), len(tests)), result


def test_a_batch_of_endless_programs_ends_and_a_program_ends_with_its_first_endless_test():
    begun, budget = time.monotonic(), TimeBudget(2.0, cores=1)
    tests = ProgramTests(scripts=(("", ""),) * 12)
    results = [run_tests("while True: pass", tests, Limits(2.0), budget=budget) for _ in range(6)]
    assert time.monotonic() - begun < 2.0 * (1.5 + 6 / 10) + 2
    assert all((result.passed, result.total, result.timed_out) == (0, 12, True) for result in results)
    assert "2 s" in results[0].failure and "0.2 s" in results[-1].failure


def test_time_that_a_program_leaves_is_there_for_others():
    budget = TimeBudget(2.0, cores=0)
    for _ in range(12):
        with budget.allot() as seconds:
            pass
    assert seconds == pytest.approx(2.0, abs=0.2)


VALUES = [None, True, 0, -(10**40), 1.5, "é\0\ud800", 2j, b"\xff", [1, (2, {3})], {(1, 2): [None]}, frozenset("a"), {}]


@pytest.mark.parametrize("value", VALUES)
def test_a_value_crosses_as_it_is(value):
    there = decoded(encoded(value))
    assert there == value and type(there) is type(value)


def test_what_is_no_plain_value_does_not_cross():
    with pytest.raises(NotPlain, match="function is not a plain value"):
        encoded([test_what_is_no_plain_value_does_not_cross])
    for text in ([1], {"object": 1}, {"system": [1]}):
        with pytest.raises(NotPlain):
            decoded(text)
