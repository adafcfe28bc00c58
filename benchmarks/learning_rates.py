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
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from quickstart_runs import Run, compare, summands, take

FORMS = ("baseline", "independent", "shared", "low_rank")
CONTROL = "frozen"
RATES = ("1.3e-4", "2e-4", "3e-4", "4.5e-4")


def run_of(form: str, rate: str, seed: int) -> Run:
    words = ["model.reasoning_vocab_size=0"]
    if form != "baseline":
        words = ["model.reasoning_vocab_size=full", f"model.reasoning_rows={form}"]
    return Run(f"{form}_{rate}", (*words, f"training.learning_rate={rate}"), seed)


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
    search = {
        form: {rate: [run_of(form, rate, seed) for seed in arguments.search_seeds] for rate in arguments.rates}
        for form in arguments.forms
    }
    the_same = (arguments.out, arguments.jobs, arguments.samples, arguments.words)
    by_seed = zip(*(runs for rates in search.values() for runs in rates.values()), strict=True)
    take([run for runs in by_seed for run in runs], *the_same)
    curve = accuracy_by_rate(search, reported_problems(arguments), arguments.out)
    best = {form: max(points, key=lambda rate: points[rate]) for form, points in curve.items()}
    for form, points in curve.items():
        shown = "  ".join(f"{rate} {accuracy:.1%}" for rate, accuracy in points.items())
        print(f"{form:<12} best {best[form]}:  {shown}", flush=True)
    draw(curve, arguments.out / "learning_rates.png")
    if "baseline" in best:
        best[CONTROL] = best["baseline"]
    reported = {form: [run_of(form, rate, seed) for seed in arguments.seeds] for form, rate in best.items()}
    take([run for runs in zip(*reported.values(), strict=True) for run in runs], *the_same)
    for form in best:
        if "baseline" in best and form != "baseline":
            print(f"\n{form} at {best[form]} against the baseline at {best['baseline']}", flush=True)
            arms, name = [*reported["baseline"], *reported[form]], f"baseline_and_{form}"
            compare(arms, arguments.out, name, "key=model.reasoning_vocab_size")


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
    search: Mapping[str, Mapping[str, Sequence[Run]]], reported: frozenset[tuple[str, ...]], out: Path
) -> dict[str, dict[str, float]]:
    return {
        form: {rate: mean(run.accuracy(out, reported) for run in runs) for rate, runs in rates.items()}
        for form, rates in search.items()
    }


def draw(curve: dict[str, dict[str, float]], file: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    for form, points in curve.items():
        axes.plot([float(rate) for rate in points], [100 * share for share in points.values()], "o-", label=form)
    rates = sorted({rate for points in curve.values() for rate in points}, key=float)
    axes.set(xscale="log", xlabel="learning rate", ylabel="right answers, %")
    axes.set_xticks([float(rate) for rate in rates], rates)
    axes.minorticks_off()
    axes.legend()
    figure.savefig(file, dpi=150)


if __name__ == "__main__":
    main()
