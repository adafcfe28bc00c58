"""Reasoning vocabularies of several kinds, each at its own best learning rate, against the baseline.

    python benchmarks/learning_rates.py OUT [--recipe short_thoughts] [--jobs 2] [--arms baseline replace]
        [--controls frozen] [--rates 1e-4 2e-4] [key=value ...]

First each arm trains at each rate, with seeds of their own; the best rate is chosen by answers to problems that no
such run has trained on and no reported figure is measured on. Where one rate is given it is taken. Then each arm trains
at its best rate with the seeds that are reported, and `rlvr-vocab compare` says how far it lies from the baseline; a
control trains at the rate of the arm that it is a control of. Stopped and started again it goes on: a run whose answers
are there is not taken again.
Models that are warmed up alike are warmed up once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from recipe_runs import PROGRAM, Run, compare, problem_of, take

BASELINE = "baseline"
ARMS = {
    BASELINE: ("model.reasoning_vocab_size=0",),
    "independent": ("model.reasoning_rank=null",),
    "low_rank": (),
    "replace": ("model.reasoning_mode=replace",),
    "three_copies": ("model.reasoning_multiplicity=3",),
}
# The arm whose rate a control trains at, and its words.
CONTROLS = {
    "frozen": (BASELINE, ("model.reasoning_rank=0",)),
    "placebo": ("low_rank", ()),
    "three_placebo": ("three_copies", ARMS["three_copies"]),
    "long_thoughts": (  # for short_thoughts alone: the whole partial sums, and room for them
        BASELINE,
        (*ARMS[BASELINE], "dataset.generator.partial_sums=whole", "training.max_completion_length=20"),
    ),
}
PLACEBO = (sys.executable, str(Path(__file__).parent / "probe_controls" / "placebo.py"))
RATES = ("1.3e-4", "2e-4", "3e-4", "4.5e-4")


def run_of(arm: str, rate: str, seed: int, recipe: str) -> Run:
    words = ARMS[arm] if arm in ARMS else CONTROLS[arm][1]
    program = PLACEBO if "placebo" in arm else PROGRAM
    return Run(f"{arm}_{rate}", (*words, f"training.learning_rate={rate}"), seed, recipe, program)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--recipe", default="quickstart")
    parser.add_argument("--arms", nargs="+", default=[BASELINE, "independent", "low_rank"], choices=ARMS)
    parser.add_argument("--controls", nargs="*", default=["frozen"], choices=CONTROLS)
    parser.add_argument("--rates", nargs="+", default=RATES)
    parser.add_argument("--search-seeds", nargs="+", type=int, default=[5, 6])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, of one thread each")
    parser.add_argument("words", nargs="*", help="further key=value for every run")
    arguments = parser.parse_intermixed_args()
    for control in arguments.controls:
        if CONTROLS[control][0] not in arguments.arms:
            parser.error(f"--controls {control} trains at the rate of {CONTROLS[control][0]}: name that in --arms")
    the_same = (arguments.out, arguments.jobs, arguments.samples, arguments.words)
    best = dict.fromkeys(arguments.arms, arguments.rates[0]) if len(arguments.rates) == 1 else best_rates(arguments)
    best |= {control: best[CONTROLS[control][0]] for control in arguments.controls}
    reported = {
        arm: [run_of(arm, rate, seed, arguments.recipe) for seed in arguments.seeds] for arm, rate in best.items()
    }
    take([run for runs in zip(*reported.values(), strict=True) for run in runs], *the_same)
    for arm in best:
        if BASELINE in best and arm != BASELINE:
            print(f"\n{arm} at {best[arm]} against the baseline at {best[BASELINE]}", flush=True)
            key = "dataset.generator.partial_sums" if arm == "long_thoughts" else "model.reasoning_vocab_size"
            compare([*reported[BASELINE], *reported[arm]], arguments.out, f"{BASELINE}_and_{arm}", f"key={key}")


def best_rates(arguments: argparse.Namespace) -> dict[str, str]:
    """The best rate of each arm, and a picture of all."""
    search = {
        arm: {
            rate: [run_of(arm, rate, seed, arguments.recipe) for seed in arguments.search_seeds]
            for rate in arguments.rates
        }
        for arm in arguments.arms
    }
    by_seed = zip(*(runs for rates in search.values() for runs in rates.values()), strict=True)
    tried = [run for runs in by_seed for run in runs]
    take(tried, arguments.out, arguments.jobs, arguments.samples, arguments.words)
    curve = accuracy_by_rate(search, reported_problems(arguments), arguments.out)
    best = {arm: max(points, key=lambda rate: points[rate]) for arm, points in curve.items()}
    for arm, points in curve.items():
        shown = "  ".join(f"{rate} {accuracy:.1%}" for rate, accuracy in points.items())
        print(f"{arm:<12} best {best[arm]}:  {shown}", flush=True)
    draw(curve, arguments.out / "learning_rates.png")
    return best


def reported_problems(arguments: argparse.Namespace) -> frozenset[tuple[str, ...]]:
    """The problems that reported figures are measured on."""
    from rlvr_vocab.config.load import read_settings
    from rlvr_vocab.config.sections import problem_source, problem_split
    from rlvr_vocab.data.load import read_problems

    found = set()
    for seed in arguments.seeds:
        words = [f"experiment={arguments.recipe}", f"seed={seed}", *arguments.words]
        settings = read_settings("train", words)
        divided = read_problems(problem_source(settings.dataset), problem_split(settings.dataset, seed))
        found.update(problem_of(problem.text) for problem in divided.reserved)
    return frozenset(found)


def accuracy_by_rate(
    search: Mapping[str, Mapping[str, Sequence[Run]]], reported: frozenset[tuple[str, ...]], out: Path
) -> dict[str, dict[str, float]]:
    return {
        arm: {rate: mean(run.accuracy(out, reported) for run in runs) for rate, runs in rates.items()}
        for arm, rates in search.items()
    }


def draw(curve: dict[str, dict[str, float]], file: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    for arm, points in curve.items():
        axes.plot([float(rate) for rate in points], [100 * share for share in points.values()], "o-", label=arm)
    rates = sorted({rate for points in curve.values() for rate in points}, key=float)
    axes.set(xscale="log", xlabel="learning rate", ylabel="right answers, %")
    axes.set_xticks([float(rate) for rate in rates], rates)
    axes.minorticks_off()
    axes.legend()
    figure.savefig(file, dpi=150)


if __name__ == "__main__":
    main()
