"""Programs and their tests: what passes, what is counted, and how values cross."""

import pytest

from rlvr_vocab.sandbox.confinement import CannotConfine
from rlvr_vocab.sandbox.run import Limits, ProgramTests, probe, run_tests
from rlvr_vocab.sandbox.values import NotPlain, decoded, encoded

ADD = "def add(a, b):\n    return a + b\n"

try:
    probe()
except CannotConfine as error:
    pytest.skip(f"programs cannot be confined here: {error}", allow_module_level=True)


def passed(source, tests, seconds=5.0):
    result = run_tests(source, tests, Limits(seconds=seconds))
    return result.passed, result.total


def test_each_assertion_counts_and_the_first_failure_is_told():
    tests = ProgramTests(code=("assert add(1, 2) == 3", "assert add(1, 2) == 4", "assert add('a', 'b') == 'ab'"))
    result = run_tests(ADD, tests, Limits())
    assert (result.passed, result.total, result.failure) == (2, 3, "not so: add(1, 2) == 4")


def test_a_check_function_counts_the_assertions_that_it_reaches():
    check = "def check(candidate):\n    for n in range(5):\n        assert candidate(n, 1) == (n + 1 if n < 3 else 0)"
    assert passed(ADD, ProgramTests(code=(check,), entry_point="add")) == (3, 5)


def test_arguments_and_what_they_give():
    cases = ({"arguments": [1, 2], "expected": 3}, {"arguments": [[1], [2]], "expected": [1, 2]})
    off = ({"arguments": [0.1, 0.2], "expected": 0.3}, {"arguments": [1, 1], "expected": True})
    off = (*off, {"arguments": [1, 1], "expected": 2.0})
    assert passed(ADD, ProgramTests(cases=cases + off, entry_point="add")) == (4, 5)


def test_standard_input_and_output():
    pairs = (("3\n", "6"), ("4\n", "8  \n\n"), ("5\n", "11\n"))
    assert passed("print(2 * int(input()))", ProgramTests(scripts=pairs)) == (2, 3)


def test_setup_goes_before_the_tests():
    assert passed(ADD, ProgramTests(code=("assert add(ONE, 1) == 2",), setup="ONE = 1")) == (1, 1)


def test_objects_of_the_program_are_called_by_its_tests():
    source = "class Stack:\n    def __init__(self): self.items = []\n    def push(self, x): self.items.append(x)"
    test = "s = Stack()\ns.push(4)\nassert s.items == [4]"
    assert passed(source, ProgramTests(code=(test,))) == (1, 1)


def test_an_argument_that_is_changed_in_place_is_changed():
    source = "def double(items):\n    items *= 2\ndef forget(seen):\n    seen.clear()"
    test = "a, b = [1], {1: 2}\ndouble(a)\nforget(b)\nassert a == [1, 1]\nassert b == {}"
    assert passed(source, ProgramTests(code=(test,))) == (2, 2)


def test_exceptions_of_the_program_reach_its_tests():
    test = "try:\n    f(1)\nexcept ValueError as error:\n    assert str(error) == 'no'\nelse:\n    assert False"
    assert passed("def f(x):\n    raise ValueError('no')", ProgramTests(code=(test,))) == (1, 1)


@pytest.mark.parametrize("source", ["def add(a, b) return", "1 / 0", "def other(): pass", "import nothing_of_the_name"])
def test_a_program_that_does_not_load_passes_nothing(source):
    assert passed(source, ProgramTests(code=("assert add(1, 2) == 3", "assert add(1, 1) == 2"))) == (0, 2)


def test_tests_that_were_not_reached_in_time_failed():
    source = "def f(n):\n    while n: pass\n    return 0"
    result = run_tests(
        source, ProgramTests(code=("assert f(0) == 0", "assert f(1) == 0", "assert f(0) == 0")), Limits(1.0)
    )
    assert (result.passed, result.total, result.timed_out) == (1, 3, True)


def test_numbers_of_any_length_cross():
    tests = ("import math\nassert f(3000) == math.factorial(3000)", "assert g(10**6000) == 10**6000 + 1")
    source = "import math\nf = math.factorial\ndef g(n): return n + 1"
    assert passed(source, ProgramTests(code=tests)) == (2, 2)


def test_numbers_of_numpy_are_numbers():
    source = "import numpy\ndef f(n): return numpy.int64(n), numpy.bool_(True), numpy.float32(0.5)"
    assert passed(source, ProgramTests(code=("assert f(4) == (4, True, 0.5)",))) == (1, 1)


def test_an_error_that_a_test_expects_is_one_of_the_program():
    test = "try:\n    f(1)\n    found = False\nexcept Exception:\n    found = True\nassert found"
    source = "class Own(Exception): pass\ndef f(n): raise Own('no')"
    assert passed(source, ProgramTests(code=(test,))) == (1, 1)


def test_packages_of_this_environment_may_be_used():
    source = "import numpy\ndef f(n):\n    return int(numpy.arange(n).sum())"
    assert passed(source, ProgramTests(code=("assert f(4) == 6",))) == (1, 1)


VALUES = [None, True, 0, -(10**40), 1.5, "é\0\ud800", 2j, b"\xff", [1, (2, {3})], {(1, 2): [None]}, frozenset("a"), {}]


@pytest.mark.parametrize("value", VALUES)
def test_a_value_crosses_as_it_is(value):
    there = decoded(encoded(value))
    assert there == value and type(there) is type(value)


def test_what_is_no_plain_value_does_not_cross():
    with pytest.raises(NotPlain, match="function is no plain value"):
        encoded([test_what_is_no_plain_value_does_not_cross])
    for text in ([1], {"object": 1}, {"system": [1]}):
        with pytest.raises(NotPlain):
            decoded(text)
