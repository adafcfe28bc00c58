"""Whether `code_tests` takes the right programs of a problem set for right and wrong ones for wrong, and how fast.

    python benchmarks/code_tests.py FILE [FILE ...] [--shown 10]

FILE has a problem a line, as JSON or gzipped JSON, in the form of MBPP (`code`, `test_list`, `test_setup_code`), of
HumanEval (`prompt`, `canonical_solution`, `test`, `entry_point`), or with `tests` as the reward takes them, such as
tests/rewards/programs.jsonl. A row may have wrong programs of its own under `wrong`. Without, three are made of the
right one: its function returns None, returns what it was first given, or returns its result changed (one more, not so,
turned round, …). A right program below 1 and a wrong one at 1 are listed with what the reward says of them; a wrong one
at 1 may be the tests' fault.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr_vocab.rewards.library.code import code_tests
from rlvr_vocab.verify.worker_pool import usable_cores

# Around what a function returns: as few values as possible stay as they were.
CHANGED = """
def _changed(value):
    if isinstance(value, bool): return not value
    if isinstance(value, (int, float, complex)): return value + 1
    if isinstance(value, str): return value[::-1] + "x"
    if isinstance(value, (list, tuple)): return type(value)([*value, 0]) if len(value) < 2 else value[:-1]
    return None
"""


@dataclass(frozen=True)
class Problem:
    """name: of the row; right, wrong: programs; tests, setup, entry_point: cells of the reward's columns."""

    name: str
    right: str
    wrong: dict[str, str]
    tests: Any
    setup: str | None
    entry_point: str | None


def problems(path: Path) -> Iterator[Problem]:
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    for line in content.splitlines():
        yield problem(json.loads(line))


def problem(row: dict[str, Any]) -> Problem:
    right = row["code"] if "code" in row else row["prompt"] + row["canonical_solution"]
    tests = next(row[name] for name in ("tests", "test_list", "test") if name in row)
    own = {f"wrong {number}": program for number, program in enumerate(row.get("wrong", ()), start=1)}
    entry_point = row.get("entry_point")
    wrong = own or {way: altered(right, way, entry_point) for way in ("None", "first argument", "changed")}
    return Problem(str(row.get("task_id", "")), right, wrong, tests, row.get("test_setup_code"), entry_point)


def altered(program: str, way: str, entry_point: str | None) -> str:
    """The program with the function that is tested, else its last one, returning something else."""
    tree = ast.parse(program)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    named = [function for function in functions if function.name == entry_point]
    function = (named or functions)[-1]
    first = function.args.args[0].arg if function.args.args else "None"
    name = function.name
    ways = {
        "None": f"def {name}(*arguments): return None",
        "first argument": f"def {name}({first}=None, *arguments): return {first}",
        "changed": f"{CHANGED}\n_right = {name}\ndef {name}(*arguments): return _changed(_right(*arguments))",
    }
    return f"{program}\n\n{ways[way]}\n"


def scored(found: list[Problem], programs: list[str]) -> list[Any]:
    turns = [f"```python\n{program}\n```" for program in programs]
    columns = {
        "tests": [each.tests for each in found],
        "test_setup_code": [each.setup for each in found],
        "entry_point": [each.entry_point for each in found],
    }
    return list(code_tests.explain(turns, **columns))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--shown", type=int, default=10, help="how many surprises are listed of each kind")
    options = parser.parse_args()
    found = [each for path in options.files for each in problems(path)]
    begun = time.monotonic()
    right = scored(found, [each.right for each in found])
    surprises = [(each.name, score) for each, score in zip(found, right, strict=True) if score.value != 1]
    print(f"{len(found)} problems; right programs that score 1: {len(found) - len(surprises)}")
    show(surprises, options.shown)
    count = len(found)
    for kind in sorted({kind for each in found for kind in each.wrong}):
        of_kind = [each for each in found if kind in each.wrong]
        scores = scored(of_kind, [each.wrong[kind] for each in of_kind])
        count += len(scores)
        surprises = [
            (each.name, score)
            for each, score in zip(of_kind, scores, strict=True)
            if score.value is None or score.value == 1
        ]
        mean = sum(score.value or 0 for score in scores) / len(scores)
        print(f"{kind}: {len(scores) - len(surprises)} of {len(scores)} below 1, on average {mean:.3f}")
        show(surprises, options.shown)
    seconds = time.monotonic() - begun
    print(f"{count} completions in {seconds:.1f} s on {usable_cores()} cores: {count / seconds:.1f} a second")


def show(surprises: list[tuple[str, Any]], most: int) -> None:
    for name, score in surprises[:most]:
        print(f"  {name}: {score.value}  {score.reason}")


if __name__ == "__main__":
    main()
