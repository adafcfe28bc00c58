"""The positive control of `rlvr-vocab probe`: models whose answers follow the choice of one id and nothing else.

    python benchmarks/planted_channel.py [--bits 0 0.25 0.5 1] [--seeds 0 1 2] [key=value ...]

For each number of bits and each seed `rlvr-vocab train experiment=planted_channel` and a probe of it; what is finished
is taken as it is. Further words go to the probe.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from rlvr_vocab.record.files import PROBE, PROBE_FOLDER, SUMMARY


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bits", nargs="+", type=float, default=[0, 0.25, 0.5, 1])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("out/planted_channel"))
    arguments, words = parser.parse_known_args()
    print("| bits | seed | verdict | redrawn | permuted | transplanted | bits used, less bias | towards the donor |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for bits in arguments.bits:
        for seed in arguments.seeds:
            run = arguments.out / f"{bits:g}_bits_seed{seed}"
            if not (run / SUMMARY).exists():
                recipe = ["experiment=planted_channel", f"warmup.planted_bits={bits}", f"seed={seed}"]
                rlvr_vocab("train", *recipe, f"output_dir={run}", "report=false")
            rlvr_vocab("probe", f"run={run}", "arms=[transplanted]", *words)
            found = json.loads((run / PROBE_FOLDER / PROBE).read_text(encoding="utf-8"))
            print(f"| {bits:g} | {seed} | {found['verdict']} | {' | '.join(figures(found))} |", flush=True)


def rlvr_vocab(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "rlvr_vocab.cli", *words], check=True, stdout=sys.stderr)


def figures(found: dict[str, Any]) -> list[str]:
    accuracy = {each["arm"]: f"{100 * each['value']:.1f}" for each in found["arms"]}
    used, bias, pull = found["used"]["interval"], found["used"]["bias"], found["contrasts"]["donor"]
    return [
        *(accuracy[arm] for arm in ("redrawn", "permuted", "transplanted")),
        f"{used['estimate'] - bias:.3f} ({used['low'] - bias:.3f} to {used['high'] - bias:.3f})",
        f"{pull['difference']:+.2f} nats ({pull['low']:+.2f} to {pull['high']:+.2f})",
    ]


if __name__ == "__main__":
    main()
