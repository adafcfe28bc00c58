"""The files and folders of a run: names, JSON files, and the run folder around a checkpoint; needs no torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlvr_vocab.files import read_json_if_there

INITIAL_MODEL, FINAL_ADAPTER, FINAL_MODEL = "initial_model", "final_adapter", "final_model"
METRICS, COMPLETIONS, SUMMARY = "metrics.jsonl", "completions", "summary.json"
CONFIG, ENVIRONMENT, PROBLEMS, CHANGES = "config.yaml", "environment.json", "problems.json", "changes.jsonl"
STAGE_RECORD, WANDB = "stage.json", "wandb.json"
# What `rlvr-vocab probe` finds, in the run's folder or in one of several runs.
PROBE_FOLDER, PROBE, PROBE_PAGE = "probe", "probe.json", "probe.html"
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


# In `problems.json`: whether any prompt has the system prompt of the configuration, rather than one of its own.
SYSTEM_PROMPT_USED = "system_prompt_used"
# What a summary holds of the held-out problems, with `_before` and `_after` behind the name.
MEASURED = ("accuracy", "reward", "reward_std", "format")
_NUMBER = (int, float)
# What those who read a file of a run take its values for.
_KINDS: dict[str, dict[str, Any]] = {
    SUMMARY: {
        "exp_name": str,
        "reasoning_vocab_size": int,
        "finished": bool,
        "steps": int,
        "steps_without_signal": int,
        "seconds": _NUMBER,
        "grpo_seconds": _NUMBER,
        **{f"{name}_{when}": (*_NUMBER, None) for name in MEASURED for when in ("before", "after")},
        "grader": ({"name": str}, None),
        "held_out_problems": int,
        "train_problems": int,
        "reward_failures": dict,
        "sample": ({"problem": str, "solution": (str, None), "stretches": [list]}, None),
        "peak_memory": dict,
        "forecast": [{"name": str, "forecast": _NUMBER, "measured": _NUMBER}],
        "findings": [{"title": str, "step": (int, None)}],
    },
    ENVIRONMENT: {
        "command": list,
        "commit": (str, None),
        "processor_cores": (int, None),
        "gpus": list,
        "threads": int,
        "versions": dict,
        "names_on_hub": [str],
    },
    PROBLEMS: {"held_out": dict, "training": [dict]},
    PROBE: {"verdict": str, "sentence": str},
}
# Those without which the outcome of a run cannot be shown; the others came later.
_LATER = {
    *("train_problems", "reward_failures", "findings", "grader", "peak_memory", "forecast"),
    *(f"{name}_{when}" for name in MEASURED[1:] for when in ("before", "after")),
}
SUMMARY_KEYS = _KINDS[SUMMARY].keys() - _LATER


def read_record(folder: Path, name: str) -> dict[str, Any] | None:
    """The content of a JSON file in the folder of a run; None where it is not there.

    Raises:
        UserError: it holds something else.
    """
    return read_json_if_there(folder / name, _KINDS[name])


def is_finished(summary: Mapping[str, Any] | None) -> bool:
    """Whether the summary of a run says that it has ended."""
    return summary is not None and bool(summary.get("finished"))
