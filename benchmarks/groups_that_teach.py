"""Dynamic sampling and curricula on the quickstart, against a run without, after the same number of sampled tokens.

    python benchmarks/groups_that_teach.py OUT [--jobs 2] [--studies easy hard curriculum]

`easy` and `hard` warm the model up so far, or so little, that most groups are all right or all wrong. `curriculum` has
few problems, so that each comes back. The learning rate is constant: arms that take fewer steps are not further down a
schedule for it. Stopped and started again it goes on.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean

from recipe_runs import Run, compare, take

COMMON = (
    *("model.reasoning_vocab_size=0", "training.lr_scheduler_type=constant_with_warmup", "training.warmup_ratio=null"),
    *("training.warmup_steps=10", "training.learning_rate=1e-4", "training.max_steps=1000"),
    "training.max_tokens=500_000",
)
DYNAMIC = ("training.dynamic_sampling=true",)
FEW = ("dataset.generator.num_problems=1000", "dataset.eval_fraction=0.5")
# study: the words of all its runs, those of each arm; the first is the baseline.
STUDIES = {
    "easy": (("warmup.until_accuracy=0.85",), {"plain": (), "dynamic": DYNAMIC}),
    "hard": (("warmup.until_accuracy=0.04",), {"plain": (), "dynamic": DYNAMIC}),
    "curriculum": (FEW, {"none": (), "skip_solved": ("dataset.curriculum.skip_solved=2",)}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--studies", nargs="+", choices=STUDIES, default=list(STUDIES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, of one thread each")
    parser.add_argument("words", nargs="*", help="further key=value for every run")
    arguments = parser.parse_intermixed_args()
    for study in arguments.studies:
        words, arms = STUDIES[study]
        runs = {
            arm: [Run(f"{study}_{arm}", (*COMMON, *words, *own), seed) for seed in arguments.seeds]
            for arm, own in arms.items()
        }
        by_seed = zip(*runs.values(), strict=True)
        take(
            [run for each in by_seed for run in each], arguments.out, arguments.jobs, arguments.samples, arguments.words
        )
        for arm, taken in runs.items():
            print(f"{study} {arm}: {in_short([run.folder(arguments.out) for run in taken])}", flush=True)
        baseline, *others = runs
        for arm in others:
            compare([*runs[baseline], *runs[arm]], arguments.out, f"{study}_{arm}")


def in_short(folders: list[Path]) -> str:
    """Means over the runs of an arm."""
    rows = [[json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()] for folder in folders]
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in folders]
    flat = mean(row["frac_reward_zero_std"] for run in rows for row in run)
    thrown = mean(sum(row.get("dynamic/tokens_thrown_away", 0) for row in run) / run[-1]["num_tokens"] for run in rows)
    steps, tokens = mean(map(len, rows)), mean(run[-1]["num_tokens"] for run in rows)
    before = mean(each["accuracy_before"] for each in summaries)
    return (
        f"{steps:.0f} steps, {tokens:,.0f} tokens, {thrown:.0%} of them thrown away, {flat:.0%} of the groups "
        f"trained on without spread, accuracy before {before:.1%}"
    )


if __name__ == "__main__":
    main()
