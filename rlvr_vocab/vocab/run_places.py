"""Where a run puts its checkpoints, seen from one of them; needs no torch."""

from __future__ import annotations

import re
from pathlib import Path

INITIAL_MODEL, FINAL_ADAPTER, FINAL_MODEL = "initial_model", "final_adapter", "final_model"
METRICS, COMPLETIONS, SUMMARY = "metrics.jsonl", "completions", "summary.json"
STEP_FILES = "step_*.parquet"
_HOLDS_AN_ADAPTER = re.compile(rf"checkpoint-\d+|{FINAL_ADAPTER}")


def step_files(folder: Path) -> list[Path]:
    """The files of all steps in a folder of completions, in the order of the steps."""
    return sorted(folder.glob(STEP_FILES), key=lambda file: (len(file.stem), file.stem))


def is_step_file(file: Path) -> bool:
    return file.match(f"{COMPLETIONS}/{STEP_FILES}")


def runs_around(checkpoint: Path) -> tuple[Path, ...]:
    """The folders that may be that of the run which wrote the checkpoint: the one around it, or around its stage."""
    folder = checkpoint.parent if checkpoint.name else checkpoint.absolute().parent
    return (folder, folder.parent.parent) if folder.parent.name == "stages" else (folder,)


def initial_models_of(adapter: Path) -> list[Path]:
    """Where the model under an adapter lies if a run put the adapter where it is; none where no run would put one."""
    place = adapter.resolve()
    if not _HOLDS_AN_ADAPTER.fullmatch(place.name):
        return []
    return [run / INITIAL_MODEL for run in runs_around(place)]
