"""Forecasts of runs against measured figures: peak memory by phase, and seconds of a step.

    python benchmarks/plan.py OUT MODEL [MODEL …] [--only low_rank] [--seed 0] [--steps 4] [key=value …]

Each setting is run, and its forecast is the one that it writes before it trains. MODEL is a folder. How many
completions there are at a time, in how many batches and how long they may be is drawn by the seed, for each model and
setting apart: with a seed that nobody has used these are settings that nobody has seen. A setting that is in OUT is not
run again, and what was found stands in OUT/plan.json.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from recipe_runs import PROGRAM

from rlvr_vocab.plan.forecast import FORECAST, measured_figures
from rlvr_vocab.record.files import METRICS, SUMMARY
from rlvr_vocab.record.metrics import read_metrics

_FULL = "model.reasoning_vocab_size=full"
SETTINGS = {
    "n = 0": (),
    "independent": (_FULL, "model.reasoning_rank=null"),
    "low_rank": (_FULL,),
    "frozen": (_FULL, "model.reasoning_rank=0"),
    "checkpointing": ("training.gradient_checkpointing=true",),
    "bf16": ("training.bf16=true", _FULL),
    "beta": ("training.beta=0.04",),
    "LoRA": ("model.lora.enabled=true", "model.lora.r=8"),
    "4 bit": ("model.model_kwargs.load_in_4bit=true",),
    "long": (),
    "short": (),
}
_LENGTHS = {"long": (130, 220), "short": (6, 16)}  # of completions; of the other settings:
_USUAL_LENGTHS = (24, 90)
_OF_ALL = (
    *("dataset=arithmetic", "logging.enabled=false", "report=false", "dataset.max_eval_samples=4"),
    *("training.gradient_checkpointing=false", "training.bf16=false"),
    *("training.kl_log_steps=0", "training.logging_steps=1", "training.eval_steps=null", "training.save_strategy=no"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("models", nargs="+", help="folders, and further key=value for every run")
    parser.add_argument("--only", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=4)
    arguments = parser.parse_intermixed_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "plan.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    models = [word for word in arguments.models if "=" not in word]
    words = [word for word in arguments.models if "=" in word]
    print("| model | setting | completions | peak: forecast, measured, GiB | ratio | in | step: the same, s | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for model in models:
        for setting in arguments.only:
            name = ", ".join((Path(model).name, setting, f"seed {arguments.seed}", *words))
            if name not in found:
                found[name] = one(arguments, model, setting, words)
                file.write_text(json.dumps(found, indent=2) + "\n")
            print(row(Path(model).name, setting, found[name]), flush=True)


def drawn(model: str, setting: str, seed: int) -> dict[str, int]:
    """Sizes of a setting: completions at a time, which are a group, batches, and the length of completions."""
    chance = random.Random(f"{seed} {model} {setting}")
    return {
        "per_device_train_batch_size": chance.randint(3, 10),
        "gradient_accumulation_steps": chance.choice((1, 1, 2)),
        "max_completion_length": chance.randint(*_LENGTHS.get(setting, _USUAL_LENGTHS)),
    }


def one(arguments: argparse.Namespace, model: str, setting: str, further: list[str]) -> dict[str, Any]:
    """Forecast and outcome of one setting."""
    sizes = drawn(Path(model).name, setting, arguments.seed)
    words = [*_OF_ALL, *SETTINGS[setting], *(f"training.{name}={size}" for name, size in sizes.items())]
    words += [f"training.num_generations={sizes['per_device_train_batch_size']}", f"model.name={model}"]
    words += [f"training.max_steps={arguments.steps}", *further]
    folder = arguments.out / "run"
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([*PROGRAM, "train", *words, f"output_dir={folder}"], check=True, stdout=sys.stderr)
    planned = json.loads((folder / FORECAST).read_text())
    measured = measured_figures(read_metrics(folder / METRICS))
    summary = json.loads((folder / SUMMARY).read_text())
    shutil.rmtree(folder)
    return {
        "sizes": sizes,
        "memory": {phase: sum(parts.values()) / 2**30 for phase, parts in planned["memory"].items()},
        "measured_memory": summary["peak_memory"],
        "phase": planned["peak_phase"],
        "seconds": sum(planned["step_seconds"].values()),
        "measured_seconds": measured["seconds, step"],
    }


def row(model: str, setting: str, found: dict[str, Any]) -> str:
    phases = {phase: peak for phase, peak in found["measured_memory"].items() if phase in found["memory"]}
    highest = max(phases, key=lambda phase: phases[phase])
    forecast, measured = found["memory"][found["phase"]], phases[highest]
    more = round(100 * (measured / phases[found["phase"]] - 1))
    where = found["phase"] + (f", {highest} took {more} % more" if more else "")
    seconds, took = found["seconds"], found["measured_seconds"]
    at_once, batches, length = found["sizes"].values()
    completions = f"{batches} × {at_once} of {length}" if batches > 1 else f"{at_once} of {length}"
    return (
        f"| {model} | {setting} | {completions} | {forecast:.2f}, {measured:.2f} | {forecast / measured:.2f} | {where} "
        f"| {seconds:.1f}, {took:.1f} | {seconds / took:.2f} |"
    )


if __name__ == "__main__":
    main()
