"""Scores of programs: which block is run, and how a row's tests may be written."""

import json
from pathlib import Path

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.library import code
from rlvr_vocab.rewards.library.code import code_tests, program_of
from rlvr_vocab.sandbox.confinement import CannotConfine
from rlvr_vocab.sandbox.run import probe
from tests.conftest import SHARED

# Problems in the forms of MBPP, of HumanEval and of standard input and output, with programs that look right.
PROGRAMS = Path(__file__).parent / "programs.jsonl"
TURN = "<think>```python\n1\n```</think>Here it is:\n\n```python\ndef double(n):\n    return n + n\n```\nIt adds."


try:
    probe()
except CannotConfine as error:
    pytest.skip(f"programs cannot be confined here: {error}", allow_module_level=True)


@pytest.mark.parametrize(
    ("turn", "program"),
    [
        (TURN, "def double(n):\n    return n + n\n"),
        ("```py\nx = 1\n```\n```Python3\nx = 2\n```\n```json\n{}\n```", "x = 2\n"),
        ("~~~\nx\n~~~ and `x`", None),
        ("<think>```python\nx = 1\n```", None),
        ("  ```python\n  x = '''```'''\n  ```", "x = '''```'''\n"),
        ("````python\nx = '''\n```\n'''\n````", "x = '''\n```\n'''\n"),
        ("1. So:\n\n   ```python\n   if x:\n       y = 1\n   ```", "if x:\n    y = 1\n"),
        ("> ```python\n> x = 1\n>\n> y = 2\n> ```", "x = 1\n\ny = 2\n"),
        ("```python\nx = 1\n```\nOutput:\n```\n1\n```\n```text\n1\n```", "x = 1\n"),
        ("```\nprint(1)\n```\nOutput:\n```\n1\n```", "print(1)\n"),
        *(
            (f"```{is_python}\nx = 1\n```", "x = 1\n")
            for is_python in ("python3.11", "{.python .numbered}", "python:a.py")
        ),
        *((f"```{other}\nx = 1\n```", None) for other in ("pycon", "python-repl", "bash")),
    ],
)
def test_the_program_is_the_last_block_of_python_in_the_answer(turn, program):
    assert program_of(turn) == program


@pytest.mark.parametrize(
    ("tests", "columns", "score"),
    [
        ("def check(candidate):\n    assert candidate(2) == 4", {"entry_point": ["double"]}, 1.0),
        (["assert double(N) == 8"], {"test_setup_code": ["N = 4"]}, 1.0),
        ([{"input": [1], "output": 2}, {"input": [2], "output": 5}], {"entry_point": ["double"]}, 0.5),
        ({"inputs": [[1], [2]], "outputs": [2, 4], "fn_name": "double"}, {}, 1.0),
        ({"inputs": ["1", "2"], "outputs": ["", "no"]}, {}, 0.5),
        (None, {}, None),
        ({"inputs": [[1]], "outputs": [2]}, {}, None),
        (["assert double( == 8"], {}, None),
        ({"inputs": [["1", "2"]], "outputs": [[""]]}, {}, 1.0),
        ({"inputs": [[1], [2]], "outputs": [[2], [4, 4]], "fn_name": "double"}, {}, 0.0),
        ([{"input": "1", "output": "2", "testtype": "functional"}], {"metadata": ['{"func_name": "double"}']}, 1.0),
        ([{"input": "1", "output": "2", "testtype": "functional"}], {}, None),
        ([{"input": "1", "output": "", "testtype": "stdin"}], {"fn_name": ["double"]}, 1.0),
        ("def check(candidate):\n    assert candidate(2) == 4", {"entry_point": ["Solution().double"]}, 1.0),
    ],
)
def test_tests_are_written_as_data_sets_write_them(tests, columns, score):
    for given in [tests] if tests is None or isinstance(tests, str) else [tests, json.dumps(tests)]:
        [found] = code_tests.explain([TURN], tests=[given], **columns)
        assert found.value == score, found.reason


@pytest.mark.parametrize(
    ("program", "case"),
    [
        ("class Solution:\n    def f(self, xs: List[int]) -> int:\n        return sum(xs)", ([[1, 2]], 3)),
        ("class Solution:\n    @staticmethod\n    def f(xs): return sum(xs)", ([[1, 2]], [3])),
        ("def f(d): return {n: d[n] + 1 for n in d}", ([{"1": 1, "2": 4}], {"1": 2, "2": 5})),
        ("def f(d): return d[1]", ([{"1": {"-2": "x"}}], {"-2": "x"})),
        ("def f(d): return d['1']", ([{"1": 2}], 2)),
        ("def f(xs): return xs.pop()", ([[1, 2]], [2])),
        ("def f(): return {True: 1, None: 2.5}", ([], {"true": 1, "null": 2.5})),
    ],
)
def test_a_function_is_tested_with_arguments_as_json_has_them(program, case):
    tests = {"inputs": [case[0]], "outputs": [case[1]], "fn_name": "f"}
    [right, wrong] = code_tests.explain([f"```python\n{program}\n```"] * 2, tests=[tests, {**tests, "outputs": ["no"]}])
    assert right.value == 1.0, right.reason
    assert wrong.value == 0.0


CASES = SHARED / "cases"


@pytest.mark.slow
@pytest.mark.skipif(not CASES.exists(), reason="the shared cases are not here")
@pytest.mark.parametrize("name", ["programs_honest", "programs_paid_wrongly", "code_tests"])
def test_shared_cases_score_what_is_fair(name):
    limits = {"seconds": 2.5, "memory_mb": 512} if name == "programs_paid_wrongly" else {}
    for row in map(json.loads, (CASES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()):
        fair = row.get("fair") or [row["expect"]]
        columns = row.get("columns") or {key: row[key] for key in ("tests", "fn_name", "test_setup_code") if key in row}
        [score] = code_tests.explain([row["completion"]], **{key: [value] for key, value in columns.items()}, **limits)
        is_free = name == "code_tests" and fair == [None]
        assert is_free or any(score.value == pytest.approx(value, abs=0.05) for value in fair), (row["name"], score)


@pytest.mark.slow
def test_right_programs_are_right_and_plausible_wrong_ones_are_wrong():
    turns, columns, right = [], {"tests": [], "entry_point": [], "test_setup_code": []}, []
    for row in map(json.loads, PROGRAMS.read_text(encoding="utf-8").splitlines()):
        program = row["code"] if "code" in row else row["prompt"] + row["canonical_solution"]
        for text in [program, *row["wrong"]]:
            turns.append(f"```python\n{text}\n```")
            right.append(text is program)
            columns["tests"].append(row.get("tests") or row.get("test_list") or row["test"])
            columns["entry_point"].append(row.get("entry_point"))
            columns["test_setup_code"].append(row.get("test_setup_code"))
    scores = code_tests(turns, seconds=5.0, **columns)
    assert sum(right) == 36 and len(right) == 85
    assert [turn for turn, score, is_right in zip(turns, scores, right, strict=True) if (score == 1) != is_right] == []


def test_a_score_is_the_share_of_tests_with_its_reason_or_all_or_nothing():
    tests = [["assert double(4) == 8", "assert double(3) == 5"]] * 2
    part, none = code_tests.explain([TURN, "It is 8."], tests=tests)
    assert (part.value, part.reason) == (0.5, "1 of 2 tests passed; not so: double(3) == 5")
    assert none.value == 0.0 and code_tests([TURN], tests=tests[:1], partial=False) == [0.0]


def test_a_system_that_cannot_confine_is_refused_unless_it_may_do_without(monkeypatch):
    def refuse():
        raise CannotConfine("the kernel has no Landlock")

    monkeypatch.setattr(code, "probe", refuse)
    with pytest.raises(UserError, match="cannot be confined here: the kernel has no Landlock"):
        code_tests([], tests=[])
    assert code_tests([TURN], tests=["assert double(1) == 2"], allow_unsafe=True) == [1.0]
