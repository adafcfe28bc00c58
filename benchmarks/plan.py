"""Forecasts of `rlvr-vocab plan` against what runs take: peak memory by phase, and seconds of a step after `calibrate`.

    python benchmarks/plan.py OUT MODEL [MODEL …] [--only shared] [--steps 4]

Each setting is planned with `calibrate=true`, then run. MODEL is a folder. A setting that is in OUT is not run again,
and what was found stands in OUT/plan.json. The settings are none of those that the constants of `rlvr_vocab/plan/` were
read off (LoRA, four and eight completions at a time, 24 and 32 tokens).
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from recipe_runs import PROGRAM

from rlvr_vocab.record.files import METRICS, SUMMARY
from rlvr_vocab.record.forecast import measured_in
from rlvr_vocab.record.metrics import read_metrics

_FULL = "model.reasoning_vocab_size=full"
_SMALL = ("training.per_device_train_batch_size=2", "training.gradient_accumulation_steps=4")
SETTINGS = {
    "n = 0": (),
    "independent": (_FULL, "model.reasoning_rows=independent"),
    "shared": (_FULL, "model.reasoning_rows=shared"),
    "low_rank": (_FULL,),
    "frozen": (_FULL, "model.reasoning_rows=frozen"),
    "checkpointing": ("training.gradient_checkpointing=true",),
    "bf16": ("training.bf16=true", _FULL),
    "beta": ("training.beta=0.04",),
    "LoRA": ("model.lora.enabled=true", "model.lora.r=8"),
    "4 bit": ("model.model_kwargs.load_in_4bit=true",),
    "long": ("training.max_completion_length=160", "training.per_device_train_batch_size=4"),
    "short": ("training.max_completion_length=12", *_SMALL),
}
_OF_ALL = (
    *("dataset=arithmetic", "logging.enabled=false", "report=false", "dataset.max_eval_samples=4"),
    *("training.per_device_train_batch_size=6", "training.gradient_accumulation_steps=1", "training.num_generations=6"),
    *("training.max_completion_length=40", "training.gradient_checkpointing=false", "training.bf16=false"),
    *("training.kl_log_steps=0", "training.logging_steps=1", "training.eval_steps=null", "training.save_strategy=no"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--only", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--steps", type=int, default=4)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "plan.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    print("| model | setting | peak: forecast, measured, GiB | ratio | in | step: forecast, measured, s | ratio |")
    print("|---|---|---|---|---|---|---|")
    for model in arguments.models:
        for setting in arguments.only:
            name = f"{Path(model).name}, {setting}"
            if name not in found:
                found[name] = one(arguments.out, model, setting, arguments.steps)
                file.write_text(json.dumps(found, indent=2) + "\n")
            print(row(Path(model).name, setting, found[name]), flush=True)


def one(out: Path, model: str, setting: str, steps: int) -> dict[str, Any]:
    """Forecast and outcome of one setting; group sizes follow the number of completions at a time."""
    words = [*_OF_ALL, *SETTINGS[setting], f"model.name={model}", f"training.max_steps={steps}"]
    at_once = [word.rpartition("=")[2] for word in words if "per_device_train_batch_size" in word][-1]
    words.append(f"training.num_generations={max(2, int(at_once))}")
    folder = out / f"{Path(model).name}_{setting.replace(' ', '_')}"
    shutil.rmtree(folder, ignore_errors=True)
    forecast_file = out / "forecast.json"
    rlvr_vocab("plan", *words, "gpu=cpu", "calibrate=true", f"out={forecast_file}")
    rlvr_vocab("train", *words, f"output_dir={folder}")
    calibrated = json.loads(forecast_file.read_text())
    planned = json.loads((folder / "forecast.json").read_text())  # nothing measured went into its memory
    measured = measured_in(read_metrics(folder / METRICS))
    summary = json.loads((folder / SUMMARY).read_text())
    forecast_file.unlink()
    shutil.rmtree(folder)
    return {
        "memory": {phase: sum(parts.values()) / 2**30 for phase, parts in planned["memory"].items()},
        "measured_memory": summary["peak_memory"],
        "phase": planned["peak_phase"],
        "seconds": sum(calibrated["step_seconds"].values()),
        "measured_seconds": sum(measured.seconds.values()),
    }


def row(model: str, setting: str, found: dict[str, Any]) -> str:
    phases = {phase: peak for phase, peak in found["measured_memory"].items() if phase in found["memory"]}
    highest = max(phases, key=lambda phase: phases[phase])
    forecast, measured = found["memory"][found["phase"]], phases[highest]
    where = highest if highest == found["phase"] else f"{found['phase']}, measured in {highest}"
    seconds, took = found["seconds"], found["measured_seconds"]
    return (
        f"| {model} | {setting} | {forecast:.2f}, {measured:.2f} | {forecast / measured:.2f} | {where} "
        f"| {seconds:.1f}, {took:.1f} | {seconds / took:.2f} |"
    )


def rlvr_vocab(*words: str) -> None:
    subprocess.run([*PROGRAM, *words], check=True, stdout=sys.stderr)


if __name__ == "__main__":
    main()
