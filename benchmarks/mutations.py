"""Which single changes of the code the tests notice: python benchmarks/mutations.py COPY --number 10 --seed 1

COPY is a clone of the repository that the changes are made in, one at a time. A change is drawn at random from the
rooms below: a comparison, an `and` or `or`, a `not`, a plus or minus, a whole number, a call that writes to disk. For
each one a line says what was changed, which tier of tests failed first, and after how many seconds.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOMS = ("vocab", "training/checkpointing", "rewards", "verify", "config")
SWAPPED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip
TIERS = {"make test": "not slow", "make test-slow": "slow"}


def changes(tree: ast.Module) -> Iterator[tuple[ast.expr | ast.stmt, ast.AST]]:
    """(node, what stands in its place) for every change that can be made."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED:
            yield node, ast.Compare(node.left, [SWAPPED[type(node.ops[0])](), *node.ops[1:]], node.comparators)
        elif isinstance(node, ast.BoolOp):
            yield node, ast.BoolOp(SWAPPED[type(node.op)](), node.values)
        elif isinstance(node, ast.BinOp) and type(node.op) in SWAPPED:
            yield node, ast.BinOp(node.left, SWAPPED[type(node.op)](), node.right)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node, node.operand
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield node, ast.Constant(node.value + 1)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and "sync" in ast.unparse(node.value.func):
            yield node, ast.Pass()


def replaced(source: str, node: ast.expr | ast.stmt, by: ast.AST) -> str:
    """The source with the text of one node replaced; columns count bytes."""
    content, lines = source.encode(), source.encode().splitlines(keepends=True)
    assert node.end_lineno is not None and node.end_col_offset is not None
    start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
    text = "pass" if isinstance(by, ast.Pass) else f"({ast.unparse(by)})"
    return (content[:start] + text.encode() + content[end:]).decode()


def first_failure(copy: Path, tier: str) -> tuple[str, float]:
    """The first test of a tier that fails, empty for none, and how long it took."""
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-n", "2", "-m", TIERS[tier]],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy.resolve()), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    said = failed[0].split(" - ")[0] if failed else f"pytest ended with {done.returncode}"
    return "" if done.returncode == 0 else said, time.monotonic() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("copy", type=Path)
    parser.add_argument("--number", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    files = [path for room in ROOMS for path in sorted((asked.copy / "rlvr_vocab" / room).rglob("*.py"))]
    sizes = [len(path.read_text(encoding="utf-8")) for path in files]
    draw = random.Random(asked.seed)
    for number in range(asked.number):
        path = draw.choices(files, sizes)[0]
        source = path.read_text(encoding="utf-8")
        possible = list(changes(ast.parse(source)))
        if not possible:
            continue
        node, by = draw.choice(possible)
        where = f"{path.relative_to(asked.copy)}:{node.lineno}"
        print(f"{number + 1}  {where}  {ast.unparse(node)}  ->  {ast.unparse(by)}", flush=True)
        path.write_text(replaced(source, node, by), encoding="utf-8")
        try:
            for tier in TIERS:
                failed, seconds = first_failure(asked.copy, tier)
                print(f"   {tier}: {failed or 'nothing noticed'} ({seconds:.0f} s)", flush=True)
                if failed:
                    break
        finally:
            path.write_text(source, encoding="utf-8")


if __name__ == "__main__":
    main()
