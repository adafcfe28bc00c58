"""Runs of a recipe side by side, of one thread each, trained and evaluated once however often it is asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

PROGRAM = (sys.executable, "-m", "rlvr_vocab.cli")
EVALUATION = "reported"  # what the answers that are compared are called, whatever the problem set


@dataclass(frozen=True)
class Run:
    """A run in `out/<recipe>/<name>`: the name of its arm, the words of the arm, its seed, its recipe, the program."""

    arm: str
    words: tuple[str, ...]
    seed: int
    recipe: str = "quickstart"
    program: tuple[str, ...] = PROGRAM

    @property
    def name(self) -> str:
        return f"{self.arm}_seed{self.seed}"

    def folder(self, out: Path) -> Path:
        return out / self.recipe / self.name

    def answers(self, out: Path) -> Path:
        return self.folder(out) / "final_model" / "evaluation" / EVALUATION / "results.jsonl"

    def accuracy(self, out: Path, without: frozenset[tuple[str, ...]] = frozenset()) -> float:
        """The mean over held-out problems of the share of right answers."""
        right = defaultdict(list)
        for row in map(json.loads, self.answers(out).read_text().splitlines()):
            if problem_of(row["prompt"]) not in without:
                right[row["prompt"]].append(row["score"] >= row["threshold"])
        return mean(map(mean, right.values()))


def problem_of(prompt: str) -> tuple[str, ...]:
    """The prompt, but the same of 3+4= and of 4+3=; a longer sum has an order, which its working goes by."""
    terms = prompt.rstrip("=").split("+")
    return tuple(sorted(terms) if len(terms) == 2 else terms)


def take(runs: Iterable[Run], out: Path, jobs: int, samples: int, words: Sequence[str] = ()) -> None:
    """Train and evaluate what is not there, several at a time."""
    missing = [run for run in runs if not run.answers(out).is_file()]
    with ThreadPoolExecutor(jobs) as pool:
        for run in pool.map(lambda run: _train_and_evaluate(run, out, samples, words), missing):
            print(f"{run.name}: {run.accuracy(out):.1%}", flush=True)


def _train_and_evaluate(run: Run, out: Path, samples: int, words: Sequence[str]) -> Run:
    folder = run.folder(out)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    folder.parent.mkdir(parents=True, exist_ok=True)
    named = [f"experiment={run.recipe}", f"output_dir={folder}", f"exp_name={run.name}", f"seed={run.seed}"]
    train = ["train", *named, *run.words, *words]
    evaluate = ["evaluate", f"checkpoint={folder}/final_model", f"samples={samples}", f"out={run.answers(out).parent}"]
    with folder.with_name(f"{run.name}.log").open("w") as log:
        trained = [*run.program, *train, "report=false", "training.eval_steps=null", "overwrite=true"]
        for command in (trained, [*PROGRAM, *evaluate]):
            subprocess.run(command, stdout=log, stderr=log, env=environment, check=True)
    return run


def compare(runs: Sequence[Run], out: Path, name: str, *words: str) -> None:
    """What `rlvr-vocab compare` says of them, under `out/name`."""
    folders = ",".join(str(run.folder(out)) for run in runs)
    told = [f"runs=[{folders}]", f"evaluation={EVALUATION}", f"out={out / name}", *words]
    subprocess.run([*PROGRAM, "compare", *told], check=True)
