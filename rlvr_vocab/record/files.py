"""Names of the files and folders of a run, and the run folder around a checkpoint; needs no torch."""

from __future__ import annotations

import re
from pathlib import Path

INITIAL_MODEL, FINAL_ADAPTER, FINAL_MODEL = "initial_model", "final_adapter", "final_model"
METRICS, COMPLETIONS, SUMMARY = "metrics.jsonl", "completions", "summary.json"
CONFIG, ENVIRONMENT, PROBLEMS, CHANGES = "config.yaml", "environment.json", "problems.json", "changes.jsonl"
STAGE_RECORD, WANDB = "stage.json", "wandb.json"
# In the folder of an evaluation by `rlvr-vocab evaluate`, beside its summary.json.
EVALUATION_RESULTS, EVALUATION_SETTINGS = "results.jsonl", "settings.json"
STEP_FILES = "step_*.parquet"
_HOLDS_AN_ADAPTER = re.compile(rf"checkpoint-\d+|{FINAL_ADAPTER}")


def step_files(folder: Path) -> list[Path]:
    """The files of all steps in a folder of completions, in the order of the steps."""
    return sorted(folder.glob(STEP_FILES), key=lambda file: (len(file.stem), file.stem))


def is_step_file(file: Path) -> bool:
    return file.match(f"{COMPLETIONS}/{STEP_FILES}")


def parents_of(checkpoint: Path) -> tuple[Path, ...]:
    """The folder that a checkpoint is in by its name, and, where a link leads to it, the one that it really lies in."""
    named = () if checkpoint.name in ("", "..") else (checkpoint.parent,)
    really = checkpoint.resolve().parent
    return named if named and named[0].absolute() == really else (*named, really)


def runs_around(checkpoint: Path) -> tuple[Path, ...]:
    """The folders that may be that of the run which wrote the checkpoint: the one around it, or around its stage."""
    return tuple(each for folder in parents_of(checkpoint) for each in (folder, *_around_stage(folder)))


def run_folder_of(checkpoint: Path) -> Path | None:
    """The folder of the run that wrote the checkpoint: the one around it, or around its stage, with a `config.yaml`."""
    return next((each for each in runs_around(checkpoint) if (each / CONFIG).is_file()), None)


def _around_stage(folder: Path) -> tuple[Path, ...]:
    return (folder.parent.parent,) if folder.parent.name == "stages" else ()


def initial_models_of(adapter: Path) -> list[Path]:
    """Where the base of an adapter may lie if a run wrote the adapter; none where no run writes one."""
    place = adapter.resolve()
    if not _HOLDS_AN_ADAPTER.fullmatch(place.name):
        return []
    return [run / INITIAL_MODEL for run in runs_around(place)]
