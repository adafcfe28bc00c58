"""A reward for programs: which of the row's tests does the code in the answer pass?"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Annotated, Any, cast

from pydantic import Field

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.reward import THINK_TAGS, Score, Tags, after_thinking, reward, turn_text
from rlvr_vocab.sandbox.confinement import CannotConfine
from rlvr_vocab.sandbox.run import Limits, ProgramTests, TimeBudget, case_test, probe, run_tests
from rlvr_vocab.text import short_text
from rlvr_vocab.verify.worker_pool import usable_cores

# A line that opens a block of code, alone, quoted or as an item of a list: its fence, and what follows it.
_FENCE = re.compile(r"\s*(?:(?:[-*+]|\d+[.)])\s+|>\s*)*(`{3,}(?=[^`]*$)|~{3,})(.*)")
_MARGIN = " \t>"
_PYTHON = re.compile(r"[\s{.]*(?:i?python|py)[\d.]*(?![\w-])", re.IGNORECASE)
_DEFINES = re.compile(r"^[ \t]*(?:def|class|import|from)\b|\b(?:input|print)\(", re.MULTILINE)


@reward(grades=True, skip_gold_check="a made-up turn holds no program", runs_programs=True, reads_thought="nothing")
def code_tests(
    completions: Sequence[Any],
    tests: Sequence[Any],
    entry_point: Sequence[str | None] | None = None,
    test_setup_code: Sequence[str | None] | None = None,
    *,
    seconds: Annotated[float, Field(ge=0.1)] = 10.0,
    memory_mb: Annotated[int, Field(ge=64)] = 1024,
    partial: bool = True,
    allow_unsafe: bool = False,
    think_tags: Tags = THINK_TAGS,
    **columns: Any,
) -> list[Score]:
    """The part of its tests that the program in the last code block of the answer passes.

    Programs run in processes that Linux confines. `docs/rewards.md` describes the columns and settings.

    >>> turn = "```python\\ndef double(n):\\n    return n + n\\n```"
    >>> code_tests([turn], tests=[["assert double(4) == 8", "assert double(3) == 5"]])
    [0.5]
    """
    limits = Limits(seconds=seconds, memory=memory_mb * 2**20)
    budget = TimeBudget(seconds, usable_cores())
    if not allow_unsafe:
        try:
            probe()
        except CannotConfine as error:
            raise UserError(
                f"code_tests: programs cannot be confined here: {error}; on a machine that you can do without, "
                "params: {allow_unsafe: true} runs them all the same"
            ) from error

    def score(row: int) -> Score:
        function, setup, *others = (
            None if column is None else column[row]
            for column in (entry_point, test_setup_code, columns.get("fn_name"), columns.get("metadata"))
        )
        parsed = _tests_of(tests[row], _function_name(function, *others), setup)
        if isinstance(parsed, str):
            return Score(None, parsed)
        program = program_of(turn_text(completions[row]), think_tags)
        if program is None:
            return Score(0.0, "no code block in the answer")
        result = run_tests(program, parsed, limits, confined=not allow_unsafe, budget=budget)
        if result.total == 0:
            return Score(None, result.failure or "its tests assert nothing, or ask the program nothing")
        part = result.passed / result.total
        counted = f"{result.passed} of {result.total} tests passed"
        reason = f"{counted}; {result.failure}" if result.failure else counted
        return Score(part if partial else float(part == 1.0), reason, timed_out=result.timed_out)

    with ThreadPoolExecutor(usable_cores()) as threads:
        return list(threads.map(score, range(len(completions))))


def program_of(turn: str, think_tags: tuple[str, str] = THINK_TAGS) -> str | None:
    """The last block of Python in the answer, else the last block without a language; None for unclosed thinking."""
    named, unnamed, opened = None, None, None
    lines = (after_thinking(turn, think_tags) or "").splitlines(keepends=True)
    for place, line in enumerate(lines):
        if opened is None:
            if found := _FENCE.match(line.rstrip("\r\n")):
                opened, (fence, language) = place, found.groups()
        elif (closing := line.strip(_MARGIN + "\r\n")).startswith(fence) and not closing.strip(fence[0]):
            program = _unindented(lines[opened + 1 : place])
            if _PYTHON.match(language):
                named = program
            elif not language.strip() and (unnamed is None or _DEFINES.search(program)):
                unnamed = program
            opened = None
    return unnamed if named is None else named


def _unindented(lines: list[str]) -> str:
    """A block as it would stand at the left edge, where the first line of a program is."""
    first = next((line for line in lines if line.strip(_MARGIN + "\r\n")), "")
    width = len(first) - len(first.lstrip(_MARGIN))
    return "".join(line[min(width, len(line) - len(line.lstrip(_MARGIN))) :] for line in lines)


def _function_name(*named: Any) -> str | None:
    """The function that a row tests, by name, as `Solution().name`, or in LiveCodeBench's JSON."""
    for cell in named:
        name = cell
        with suppress(ValueError, TypeError):  # it is no JSON
            name = json.loads(cell)
        name = str(name.get("func_name") if isinstance(name, dict) else name).rpartition(".")[2]
        if cell and name.isidentifier() and name != "None":
            return name
    return None


def _tests_of(given: Any, entry_point: str | None, setup: str | None) -> ProgramTests | str:
    if isinstance(given, str) and given.lstrip().startswith(("{", "[")):
        try:
            given = json.loads(given)
        except ValueError as error:
            return f"the row's tests are no JSON: {error}"
    pieces: Any = [given] if isinstance(given, str | dict) else given
    match pieces:
        case [{"inputs": list() as inputs, "outputs": list() as outputs, **rest}] if len(inputs) == len(outputs):
            pairs = [{"input": asked, "output": expected} for asked, expected in zip(inputs, outputs, strict=True)]
            return _pairs(pairs, cast("str | None", rest.get("fn_name")) or entry_point)
        case [str(), *_] if all(isinstance(piece, str) for piece in pieces):
            return ProgramTests(code=tuple(pieces), setup=setup or "", entry_point=entry_point)
        case [{"input": _, "output": _}, *_] if all(
            isinstance(p, dict) and {"input", "output"} <= p.keys() for p in pieces
        ):
            return _pairs(pieces, entry_point)
    return f"the row's tests cannot be read: {short_text(given)}" if given else "the row has no tests"


def _pairs(pairs: list[dict[str, Any]], name: str | None) -> ProgramTests | str:
    kinds = {pair.get("testtype") for pair in pairs}
    if name is not None and "stdin" not in kinds:
        try:
            cases = [_case(pair["input"], pair["output"]) for pair in pairs]
        except ValueError as error:
            return f"the row's tests of {name} need lists of arguments as input, or each as JSON on a line: {error}"
        is_wrapped = all(isinstance(expected, list) and len(expected) == 1 for _, expected in cases)  # as in APPS
        tests = (case_test(given, expected, *(expected if is_wrapped else ())) for given, expected in cases)
        return ProgramTests(code=tuple(tests), entry_point=name)
    scripts = tuple((_lines(pair["input"]), _lines(pair["output"])) for pair in pairs)
    if "functional" in kinds or not all(isinstance(text, str) for script in scripts for text in script):
        return "the row's tests name no function (column entry_point, fn_name or metadata), and are no standard input"
    return ProgramTests(scripts=scripts)


def _case(given: Any, expected: Any) -> tuple[list[Any], Any]:
    """Arguments and what they give; LiveCodeBench writes both as JSON, an argument a line."""
    if isinstance(given, str):
        given = [json.loads(line) for line in given.splitlines() if line.strip()]
        with suppress(ValueError):  # a text that is not quoted is what is expected
            expected = json.loads(expected) if isinstance(expected, str) else expected
    elif not isinstance(given, list):
        raise ValueError(short_text(given))
    return given, expected


def _lines(text: Any) -> Any:
    """Standard input or output, which may come as a list of its lines."""
    is_lines = isinstance(text, list) and all(isinstance(line, str) for line in text)
    return "\n".join(line.removesuffix("\n") for line in text) if is_lines else text
