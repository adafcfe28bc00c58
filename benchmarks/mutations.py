"""Which single changes of the code the tests notice: python benchmarks/mutations.py COPY --number 10 --seed 1

COPY is a clone in which the changes are made, one at a time. A change is drawn at random from PACKAGES:
a comparison, an `and` or `or`, a `not`, a plus or minus, a whole number, a call that writes to disk. For each one a
line says what was changed, which test of `make test` failed first, and after how many seconds. What that tier does not
notice goes through `make test-slow` together; each change then meets alone the tests that failed.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("vocab", "training", "rewards", "verify", "config")
SWAPPED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip


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


def failures(copy: Path, *words: str) -> tuple[list[str], float]:
    """The tests that fail, and how long they took."""
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", *words],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy.resolve()), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    failed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    assert failed or done.returncode == 0, done.stdout[-2000:]
    return failed, time.monotonic() - begun


@dataclass(frozen=True)
class Change:
    """One place of a file, and what is put there."""

    path: Path
    node: ast.expr | ast.stmt
    by: ast.AST

    def __str__(self) -> str:
        return f"{self.path}:{self.node.lineno}  {ast.unparse(self.node)}  ->  {ast.unparse(self.by)}"


@contextmanager
def made(drawn: Sequence[Change]) -> Iterator[None]:
    """The changes are in the code; two of one file only where they do not move each other."""
    before = {change.path: change.path.read_text(encoding="utf-8") for change in drawn}
    try:
        for change in sorted(drawn, key=lambda each: (each.node.lineno, each.node.col_offset), reverse=True):
            source = change.path.read_text(encoding="utf-8")
            change.path.write_text(replaced(source, change.node, change.by), encoding="utf-8")
        yield
    finally:
        for path, source in before.items():
            path.write_text(source, encoding="utf-8")


def draw(copy: Path, number: int, seed: int) -> list[Change]:
    files = [path for name in PACKAGES for path in sorted((copy / "rlvr_vocab" / name).rglob("*.py"))]
    sources = [path.read_text(encoding="utf-8") for path in files]
    chance, drawn = random.Random(seed), list[Change]()
    while len(drawn) < number:
        [(path, source)] = chance.choices(list(zip(files, sources, strict=True)), [len(source) for source in sources])
        possible = list(changes(ast.parse(source)))
        if possible:
            drawn.append(Change(path, *chance.choice(possible)))
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("copy", type=Path)
    parser.add_argument("--number", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    missed = []
    for number, change in enumerate(draw(asked.copy, asked.number, asked.seed), start=1):
        with made([change]):
            failed, seconds = failures(asked.copy, "-x", "-m", "not slow")
        print(
            f"{number}  {change}\n   make test: {failed[0] if failed else 'nothing noticed'} ({seconds:.0f} s)",
            flush=True,
        )
        missed += [] if failed else [change]
    if not missed:
        return
    with made(missed):
        failed, seconds = failures(asked.copy, "-m", "slow")
    print(f"make test-slow with those that are left: {len(failed)} tests failed ({seconds:.0f} s)", flush=True)
    for change in missed if failed else ():
        with made([change]):
            alone, seconds = failures(asked.copy, *failed)
        print(f"   {change}: {alone[0] if alone else 'nothing noticed'}", flush=True)


if __name__ == "__main__":
    main()
