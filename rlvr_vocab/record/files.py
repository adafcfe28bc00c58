"""Names of the files and folders of a run, and the run folder around a checkpoint; needs no torch."""

from __future__ import annotations

import re
from pathlib import Path

INITIAL_MODEL, FINAL_ADAPTER, FINAL_MODEL = "initial_model", "final_adapter", "final_model"
METRICS, COMPLETIONS, SUMMARY = "metrics.jsonl", "completions", "summary.json"
CONFIG, ENVIRONMENT, PROBLEMS, CHANGES = "config.yaml", "environment.json", "problems.json", "changes.jsonl"
STAGE_RECORD, TRACKERS, TENSORBOARD = "stage.json", "trackers.json", "tensorboard"
# Written by `rlvr-vocab probe` into the run's folder, or into one of several runs.
PROBE_FOLDER, PROBE, PROBE_PAGE = "probe", "probe.json", "probe.html"
THOUGHT_READING = "thought_reading.json"  # whether the rewards read the thought, measured at the end of a run
# Of a comparison by `rlvr-vocab compare`.
COMPARISON = "comparison.json"
# In the folder of an evaluation by `rlvr-vocab evaluate`, beside its summary.json.
EVALUATION_RESULTS, EVALUATION_SETTINGS = "results.jsonl", "settings.json"
STEP_FILES = "step_*.parquet"
# In `problems.json`: whether any prompt has the system prompt of the configuration, rather than one of its own.
SYSTEM_PROMPT_USED = "system_prompt_used"
# Figures of the held-out problems in `summary.json`, each with `_before` and `_after` behind its name.
MEASURED = ("accuracy", "reward", "reward_std", "format")
_HOLDS_AN_ADAPTER = re.compile(rf"checkpoint-\d+|{FINAL_ADAPTER}")


def step_files(folder: Path) -> list[Path]:
    """The files of all steps in a folder of completions, in the order of the steps."""
    return sorted(folder.glob(STEP_FILES), key=lambda file: (len(file.stem), file.stem))


def parents_of(checkpoint: Path) -> tuple[Path, ...]:
    """The folder of a checkpoint by its name, and, where a link leads to it, the folder that it really lies in."""
    named = () if checkpoint.name in ("", "..") else (checkpoint.parent,)
    really = checkpoint.resolve().parent
    return named if named and named[0].absolute() == really else (*named, really)


def _runs_around(checkpoint: Path) -> list[Path]:
    """Candidates for the run that wrote the checkpoint: the folder around it, or around its stage."""
    found = [checkpoint]  # where a script saves its model into the folder of the run
    for folder in parents_of(checkpoint):
        found += [folder, folder.parent.parent] if folder.parent.name == "stages" else [folder]
    return found


def run_folder_of(checkpoint: Path) -> Path | None:
    """The folder of the run that wrote the checkpoint, by its `config.yaml`; None without one."""
    return next((each for each in _runs_around(checkpoint) if (each / CONFIG).is_file()), None)


def initial_models_of(adapter: Path) -> list[Path]:
    """Where the base of an adapter may lie if a run wrote the adapter."""
    place = adapter.resolve()
    return [run / INITIAL_MODEL for run in _runs_around(place)] if _HOLDS_AN_ADAPTER.fullmatch(place.name) else []
