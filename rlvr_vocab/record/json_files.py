"""The JSON files in the folder of a run, and the types of what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlvr_vocab.atomic_file import read_json_if_there
from rlvr_vocab.record.files import ENVIRONMENT, PROBLEMS, SUMMARY

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
        "accuracy_before": (*_NUMBER, None),
        "accuracy_after": (*_NUMBER, None),
        "held_out_problems": int,
        "train_problems": int,
        "reward_failures": dict,
        "sample": ({"problem": str, "solution": str, "stretches": [list]}, None),
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
}
# Those without which the outcome of a run cannot be shown; the others came later.
SUMMARY_KEYS = _KINDS[SUMMARY].keys() - {"train_problems", "reward_failures", "findings"}


def read_record(folder: Path, name: str) -> dict[str, Any] | None:
    """The content of a JSON file in the folder of a run; None where it is not there.

    Raises:
        UserError: it holds something else.
    """
    return read_json_if_there(folder / name, _KINDS[name])


def is_finished(summary: Mapping[str, Any] | None) -> bool:
    """Whether the summary of a run says that it has ended; whether its files are whole is asked in runs/finished.py."""
    return summary is not None and bool(summary.get("finished"))
