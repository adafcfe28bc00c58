"""A reward for programs: which of the row's tests does the code in the answer pass?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.parameters import number, shown, switch, whole_number
from rlvr_vocab.rewards.reward import Score, reward
from rlvr_vocab.rewards.turns import THINK_TAGS, after_thinking, turn_text
from rlvr_vocab.sandbox.confinement import CannotConfine
from rlvr_vocab.sandbox.run import Limits, ProgramTests, probe, run_tests
from rlvr_vocab.verify.worker_pool import usable_cores

_FENCE = "```"
_PYTHON = ("", "python", "python3", "py")


@reward(
    grades=True, not_for_golds="a made-up turn holds no program", columns=("entry_point", "test_setup_code"),
)  # fmt: skip
def code_tests(
    completions: Sequence[Any],
    tests: Sequence[Any],
    entry_point: Sequence[str | None] | None = None,
    test_setup_code: Sequence[str | None] | None = None,
    seconds: float = 10.0,
    memory_mb: int = 1024,
    partial: bool = True,
    allow_unsafe: bool = False,
    think_tags: tuple[str, str] = THINK_TAGS,
    **_columns: Any,
) -> list[Score]:
    """The part of its tests that the program in the last code block of the answer passes.

    The program runs in a process of its own which Linux confines (see `sandbox.confinement`): it reads nothing but
    Python's own files, writes nothing, starts nothing, sends nothing. The tests run in another one; what they expect
    never gets to the program.

    Args:
        completions: assistant turns, as strings or lists of messages.
        tests: a row's tests, also as JSON text: Python with assertions, or a list of such pieces (MBPP's `test_list`,
            HumanEval's `test` with `entry_point`); `{"input": …, "output": …}` pairs of standard input and output; or
            APPS's `{"inputs": […], "outputs": […], "fn_name": …}`, pairs of both too where there is no `fn_name`.
        entry_point: a column: the function that is tested, where the tests do not say.
        test_setup_code: a column: Python that goes before the assertions.
        seconds: for all tests of a program, and for each pair of standard input and output.
        memory_mb: of address space.
        partial: False gives 1 for all tests and else 0.
        allow_unsafe: run programs where the system cannot confine them. They may then do all that you may.
        think_tags: what opens and closes the thinking.

    Returns:
        From 0 to 1 per completion; None where the row's tests cannot be read.

    Raises:
        UserError: a parameter is no value that there can be, or the system cannot confine a program.

    Example:
        >>> turn = "```python\\ndef double(n):\\n    return n + n\\n```"
        >>> code_tests([turn], tests=[["assert double(4) == 8", "assert double(3) == 5"]])
        [0.5]
    """
    limits = Limits(
        seconds=number("code_tests", "seconds", seconds, least=0.1),
        memory=whole_number("code_tests", "memory_mb", memory_mb, least=64) * 2**20,
    )
    whole = not switch("code_tests", "partial", partial)
    if not switch("code_tests", "allow_unsafe", allow_unsafe):
        _require_confinement()

    def score(row: int) -> Score:
        parsed = _tests_of(tests[row], _cell(entry_point, row), _cell(test_setup_code, row))
        if isinstance(parsed, str):
            return Score(None, parsed)
        program = program_of(turn_text(completions[row]), think_tags)
        if program is None:
            return Score(0.0, "no code block in the answer")
        result = run_tests(program, parsed, limits, confined=not allow_unsafe)
        if result.total == 0:
            return Score(None, "its tests assert nothing")
        part = result.passed / result.total
        words = f"{result.passed} of {result.total} tests passed"
        reason = f"{words}; {result.failure}" if result.failure else words
        return Score(float(part == 1.0) if whole else part, reason, timed_out=result.timed_out)

    with ThreadPoolExecutor(usable_cores()) as threads:
        return list(threads.map(score, range(len(completions))))


def program_of(turn: str, think_tags: tuple[str, str] = THINK_TAGS) -> str | None:
    """The last block of Python in the answer of a turn; None where there is none, or the thinking was never closed."""
    program, opened = None, None
    lines = (after_thinking(turn, think_tags) or "").splitlines(keepends=True)
    for place, line in enumerate(lines):  # no regular expression: blocks that never close would take quadratic time
        mark = line.strip()
        if opened is None and mark.startswith(_FENCE):
            opened = place
        elif opened is not None and mark == _FENCE:
            language = lines[opened].strip().removeprefix(_FENCE).strip().partition(" ")[0]
            if language.lower() in _PYTHON:
                program = "".join(lines[opened + 1 : place])
            opened = None
    return program


def _require_confinement() -> None:
    try:
        probe()
    except CannotConfine as error:
        raise UserError(
            f"code_tests: programs cannot be confined here: {error}; on a machine that you can do without, "
            "params: {allow_unsafe: true} runs them all the same"
        ) from error


def _cell(column: Sequence[str | None] | None, row: int) -> str | None:
    return None if column is None else column[row]


def _tests_of(given: Any, entry_point: str | None, setup: str | None) -> ProgramTests | str:
    """The tests of a row; a reason where it has none that can be read."""
    if isinstance(given, str) and given.lstrip().startswith(("{", "[")):
        try:
            given = json.loads(given)
        except ValueError as error:
            return f"the row's tests are no JSON: {error}"
    pieces: Any = [given] if isinstance(given, str | dict) else given
    match pieces:
        case [{"inputs": list() as inputs, "outputs": list() as outputs, **rest}] if len(inputs) == len(outputs):
            name: Any = rest.get("fn_name") or entry_point
            pairs = [{"input": asked, "output": told} for asked, told in zip(inputs, outputs, strict=True)]
            return _pairs(pairs, name)
        case [str(), *_] if all(isinstance(piece, str) for piece in pieces):
            return ProgramTests(code=tuple(pieces), setup=setup or "", entry_point=entry_point)
        case [{"input": _, "output": _}, *_] if all(
            isinstance(p, dict) and {"input", "output"} <= p.keys() for p in pieces
        ):
            return _pairs(pieces, entry_point)
    return f"the row's tests cannot be read: {shown(given)}" if given else "the row has no tests"


def _pairs(pairs: list[dict[str, Any]], name: str | None) -> ProgramTests | str:
    if name is not None:
        cases = [{"arguments": pair["input"], "expected": pair["output"]} for pair in pairs]
        if not all(isinstance(case["arguments"], list) for case in cases):
            return f"the row's tests of {name} need lists of arguments as input"
        return ProgramTests(cases=tuple(cases), entry_point=name)
    if not all(isinstance(pair[side], str) for pair in pairs for side in ("input", "output")):
        return "the row's tests name no function, and their input and output are no text"
    return ProgramTests(scripts=tuple((pair["input"], pair["output"]) for pair in pairs))
