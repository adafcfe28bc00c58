"""What `rlvr-vocab probe` says where the answer is known: channels that were planted, and copies that can mean nothing.

    python benchmarks/probe_controls OUT [--arms planted_1 placebo] [--seeds 0 1 2] [--probes 1] [key=value ...]

`planted_B` is a run of `planted_channel.py` with B bits; the others are quickstarts: `placebo`, by `placebo.py`,
`frozen`, and `low_rank`, which is no control. `--probes 8` probes each run eight times, every time with thoughts of its
own. What is finished is taken as it is; further words go to the probes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr_vocab.record.files import PROBE, PROBE_FOLDER, SUMMARY

PROGRAM = ["-m", "rlvr_vocab.cli"]
PLANTED = "planted_"
QUICKSTARTS = {
    "placebo": [str(Path(__file__).with_name("placebo.py")), "quickstart"],
    "frozen": [*PROGRAM, "quickstart", "model.reasoning_rank=0"],
    "low_rank": [*PROGRAM, "quickstart"],
}
COLUMNS = (
    "run",
    "probe",
    "verdict",
    "redrawn less permuted",
    "transplanted",
    "bits used, less bias, by own ids",
    "by own and redrawn ids",
    "towards the donor",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--arms", nargs="+", default=[f"{PLANTED}{bits}" for bits in (0, 0.25, 0.5, 1)])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--probes", type=int, default=1)
    arguments, words = parser.parse_known_args()
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
    for arm in arguments.arms:
        for seed in arguments.seeds:
            run = trained(arm, seed, arguments.out)
            for number in range(arguments.probes):
                found = probed(run, number, words)
                print(f"| {' | '.join((run.name, str(number), *figures(found)))} |", flush=True)


def trained(arm: str, seed: int, out: Path) -> Path:
    run = out / f"{arm}_seed{seed}"
    if not (run / SUMMARY).exists():
        planted = [str(Path(__file__).with_name("planted_channel.py")), arm.removeprefix(PLANTED)]
        program = QUICKSTARTS.get(arm, planted)
        python(*program, f"seed={seed}", f"output_dir={run}", "training.eval_steps=null", "report=false")
    return run


def probed(run: Path, number: int, words: Sequence[str]) -> Mapping[str, Any]:
    """What the probe with that number finds; all but the first have a copy of the run, where their answers are kept."""
    if number:
        copy = run.with_name(f"{run.name}_probe{number}")
        if not copy.exists():
            shutil.copytree(run, copy, ignore=shutil.ignore_patterns(PROBE_FOLDER, "completions", "initial_model"))
        run = copy
    python(*PROGRAM, "probe", f"run={run}", f"seed={42 + number}", *words)
    found: Mapping[str, Any] = json.loads((run / PROBE_FOLDER / PROBE).read_text(encoding="utf-8"))
    return found


def python(*words: str) -> None:
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    subprocess.run([sys.executable, *words], check=True, stdout=sys.stderr, env=environment)


def figures(found: Mapping[str, Any]) -> list[str]:
    primary, pull = found["primary"], found["contrasts"]["donor"]
    transplanted = next(each["value"] for each in found["arms"] if each["arm"] == "transplanted")
    used, bias = found["used"], found["used"]["bias"]
    bits = (tuple(used[name][end] - bias for end in ("estimate", "low", "high")) for name in ("own", "redrawn"))
    points = (100 * primary[name] for name in ("difference", "low", "high"))
    return [
        found["verdict"],
        "{:+.1f} points ({:+.1f} to {:+.1f})".format(*points),
        f"{100 * transplanted:.1f} %",
        *("{:.3f} ({:.3f} to {:.3f})".format(*each) for each in bits),
        f"{pull['difference']:+.2f} nats ({pull['low']:+.2f} to {pull['high']:+.2f})",
    ]


if __name__ == "__main__":
    main()
