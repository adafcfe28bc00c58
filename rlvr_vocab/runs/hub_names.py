"""Which names of a run's models and problem sets are on the hub, and how one that is not may be shown to others."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+")
_FILES = (".csv", ".tsv", ".json", ".jsonl", ".parquet")


def names_on_hub(config: Mapping[str, Any]) -> list[str]:
    """The names of the configuration that stand for something on the hub, seen from today's folder.

    `customers/tickets` may be either: only the folder and the machine that a run starts on can tell.
    """
    return sorted({name for name in _names(config) if _is_hub_name(name)})


def without_folder(name: str, on_hub: Collection[str]) -> str:
    """A path by its last part: where it lies on somebody's machine is nobody else's business."""
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
