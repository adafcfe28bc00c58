"""Every form of the reasoning rows on the quickstart, each at its own best learning rate, against the baseline.

    python benchmarks/learning_rates.py OUT [--jobs 2] [--forms shared low_rank] [--rates 2e-4 3e-4]

First each form trains at each rate, with seeds of their own; the best rate is chosen by answers to problems that no
such run has trained on and no reported figure is measured on. Then each form trains at its best rate with the seeds
that are reported, and `rlvr-vocab compare` says how far it lies from the baseline; `frozen` trains at the baseline's.
Stopped and started again it goes on: a run whose answers are there is not taken again. Models that are warmed up alike
are warmed up once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

FORMS = ("baseline", "independent", "shared", "low_rank")
CONTROL = "frozen"
RATES = ("1.3e-4", "2e-4", "3e-4", "4.5e-4")
PROGRAM = [sys.executable, "-m", "rlvr_vocab.cli"]


@dataclass(frozen=True)
class Run:
    form: str
    rate: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.form}_{self.rate}_seed{self.seed}"

    @property
    def words(self) -> list[str]:
        vocabulary = ["model.reasoning_vocab_size=0"]
        if self.form != "baseline":
            vocabulary = ["model.reasoning_vocab_size=full", f"model.reasoning_rows={self.form}"]
        return [*vocabulary, f"training.learning_rate={self.rate}", f"seed={self.seed}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--forms", nargs="+", default=FORMS)
    parser.add_argument("--rates", nargs="+", default=RATES)
    parser.add_argument("--search-seeds", nargs="+", type=int, default=[5, 6])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, of one thread each")
    parser.add_argument("words", nargs="*", help="further key=value for every run")
    arguments = parser.parse_intermixed_args()
    search = [
        Run(form, rate, seed) for seed in arguments.search_seeds for rate in arguments.rates for form in arguments.forms
    ]
    take(search, arguments)
    reported = reported_problems(arguments)
    curve = accuracy_by_rate(search, reported, arguments.out)
    best = {form: max(curve[form], key=lambda rate: curve[form][rate]) for form in arguments.forms}
    for form, points in curve.items():
        shown = "  ".join(f"{rate} {accuracy:.1%}" for rate, accuracy in points.items())
        print(f"{form:<12} best {best[form]}:  {shown}", flush=True)
    if "baseline" in best:
        best[CONTROL] = best["baseline"]
    final = [Run(form, rate, seed) for seed in arguments.seeds for form, rate in best.items()]
    take(final, arguments)
    draw(curve, arguments.out / "learning_rates.png")
    for form in best:
        if form != "baseline":
            compare(best, form, arguments)


def take(runs: Iterable[Run], arguments: argparse.Namespace) -> None:
    """Train and evaluate what is not there, several at a time."""
    missing = [run for run in runs if not answers(run, arguments.out).is_file()]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for run in pool.map(lambda run: train_and_evaluate(run, arguments), missing):
            print(f"{run.name}: {accuracy(answers(run, arguments.out)):.1%}", flush=True)


def train_and_evaluate(run: Run, arguments: argparse.Namespace) -> Run:
    folder = arguments.out / run.name
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    arguments.out.mkdir(parents=True, exist_ok=True)
    train = ["quickstart", f"output_dir={folder}", f"exp_name={run.name}", *run.words, *arguments.words]
    evaluate = ["evaluate", f"checkpoint={folder}/final_model", "dataset=arithmetic", f"samples={arguments.samples}"]
    with (arguments.out / f"{run.name}.log").open("w") as log:
        for words in ([*train, "report=false", "training.eval_steps=null", "overwrite=true"], evaluate):
            subprocess.run([*PROGRAM, *words], stdout=log, stderr=log, env=environment, check=True)
    return run


def answers(run: Run, out: Path) -> Path:
    return out / run.name / "final_model" / "evaluation" / "arithmetic" / "results.jsonl"


def rows(results: Path) -> list[dict]:
    return [json.loads(line) for line in results.read_text().splitlines()]


def accuracy(results: Path, without: frozenset[tuple[str, ...]] = frozenset()) -> float:
    """The mean over problems of the share of right answers."""
    right = defaultdict(list)
    for row in rows(results):
        if summands(row["prompt"]) not in without:
            right[row["prompt"]].append(row["score"] >= row["threshold"])
    return mean(map(mean, right.values()))


def summands(prompt: str) -> tuple[str, ...]:
    """Of 3+4= and of 4+3= alike."""
    return tuple(sorted(prompt.rstrip("=").split("+")))


def reported_problems(arguments: argparse.Namespace) -> frozenset[tuple[str, ...]]:
    """The problems that reported figures are measured on."""
    from rlvr_vocab.config.load import read_settings
    from rlvr_vocab.config.problem_source import problem_source, problem_split
    from rlvr_vocab.data.load import read_problems

    found = set()
    for seed in arguments.seeds:
        settings = read_settings("quickstart", [f"seed={seed}", *arguments.words])
        divided = read_problems(problem_source(settings.dataset), problem_split(settings.dataset, seed))
        found.update(summands(problem.text) for problem in divided.reserved)
    return frozenset(found)


def accuracy_by_rate(
    search: Iterable[Run], reported: frozenset[tuple[str, ...]], out: Path
) -> dict[str, dict[str, float]]:
    by_rate = defaultdict(lambda: defaultdict(list))
    for run in search:
        by_rate[run.form][run.rate].append(accuracy(answers(run, out), reported))
    return {form: {rate: mean(of_seeds) for rate, of_seeds in rates.items()} for form, rates in by_rate.items()}


def draw(curve: dict[str, dict[str, float]], file: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    for form, points in curve.items():
        axes.plot([float(rate) for rate in points], [100 * share for share in points.values()], "o-", label=form)
    axes.set(xscale="log", xlabel="learning rate", ylabel="right answers, %, to problems kept for the choice")
    axes.legend()
    figure.savefig(file, dpi=150)


def compare(best: dict[str, str], form: str, arguments: argparse.Namespace) -> None:
    arms = [Run(each, best[each], seed) for each in ("baseline", form) for seed in arguments.seeds]
    folders = ",".join(str(arguments.out / run.name) for run in arms)
    key, out = "model.reasoning_vocab_size", arguments.out / f"baseline_and_{form}"
    words = [f"runs=[{folders}]", f"key={key}", "evaluation=arithmetic", f"out={out}"]
    print(f"\n{form} at {best[form]} against the baseline at {best['baseline']}", flush=True)
    subprocess.run([*PROGRAM, "compare", *words], check=True)


if __name__ == "__main__":
    main()
