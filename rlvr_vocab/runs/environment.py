"""Where a run takes place: versions, hardware and commit, and which names stand for something on the hub there."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePath
from typing import Any

from rlvr_vocab.record.files import ENVIRONMENT, read_record
from rlvr_vocab.secrets import without_secrets

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
    "vllm",
)
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+")
_FILES = (".csv", ".tsv", ".json", ".jsonl", ".parquet")


def environment() -> dict[str, Any]:
    """Versions, commit, hardware and command line."""
    import torch  # the checks of a command line, which come by here, must answer without it

    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": [without_secrets(word) for word in sys.argv],
        "commit": _commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor_cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpus": gpus,
        "versions": {package: found for package in _PACKAGES if (found := _version(package)) is not None},
    }


def recorded_names_on_hub(folder: Path) -> tuple[str, ...]:
    """The names that were on the hub when the run started; none for a run that recorded none."""
    return tuple((read_record(folder, ENVIRONMENT) or {}).get("names_on_hub", ()))


def names_on_hub(config: Mapping[str, Any]) -> list[str]:
    """The names of the configuration that stand for something on the hub, seen from today's folder.

    `customers/tickets` may be either: only the folder and the machine that a run starts on can tell.
    """
    return sorted({name for name in _names(config) if _is_hub_name(name)})


def without_folder(name: str, on_hub: Collection[str]) -> str:
    """The name; of a path only its last part, since the rest tells of somebody's machine."""
    return name if name in on_hub else re.split(r"[/\\]", name.rstrip("/\\"))[-1]


def _names(config: Mapping[str, Any]) -> Iterator[str]:
    yield config["model"]["name"]
    yield config["dataset"]["name"]
    for stage in config.get("stages") or []:
        if "name" in stage.get("dataset", {}):
            yield stage["dataset"]["name"]


def _is_hub_name(name: str) -> bool:
    is_file = PurePath(name).suffix.lower() in _FILES or Path(name).exists()
    return _HUB_NAME.fullmatch(name) is not None and not is_file


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
