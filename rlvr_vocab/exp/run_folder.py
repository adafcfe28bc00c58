"""The folder of a run: what it was asked for, where it ran, and what came of it."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from rlvr_vocab.exp.hub_names import names_on_hub
from rlvr_vocab.exp.recorded_config import config_yaml
from rlvr_vocab.exp.typed_sections import RunSettings

_PACKAGES = (
    "rlvr-vocab",
    "torch",
    "transformers",
    "trl",
    "accelerate",
    "peft",
    "datasets",
    "mpmath",
    "sympy",
    "latex2sympy2-extended",
    "bitsandbytes",
    "unsloth",
    "vllm",
)
CONFIG, ENVIRONMENT, SUMMARY = "config.yaml", "environment.json", "summary.json"


def start_run_folder(settings: RunSettings) -> None:
    """Make the folder and write down configuration and environment; `overwrite` clears an earlier run first."""
    folder = settings.output_dir
    if settings.overwrite and (folder / CONFIG).is_file():
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).write_text(config_yaml(settings.resolved), encoding="utf-8")  # marks the folder as a run
    write_json(folder / ENVIRONMENT, {**environment(), "names_on_hub": names_on_hub(settings.resolved)})


def environment() -> dict[str, Any]:
    """Versions, commit, hardware and command line."""
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "commit": _commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor_cores": os.cpu_count(),
        "gpus": gpus,
        "versions": {package: found for package in _PACKAGES if (found := _version(package)) is not None},
    }


def recorded_names_on_hub(folder: Path) -> tuple[str, ...]:
    """The names that were on the hub when the run started; none where it wrote nothing of it down."""
    path = folder / ENVIRONMENT
    return tuple(json.loads(path.read_text(encoding="utf-8")).get("names_on_hub", ())) if path.is_file() else ()


def read_summary(folder: Path) -> dict[str, Any] | None:
    path = folder / SUMMARY
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the source tree; None outside a git checkout."""
    root = Path(__file__).parents[2]
    answer = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return answer.stdout.strip() or None
