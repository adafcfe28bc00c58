"""The folder of a run: what it was asked for, where it ran, and what came of it."""

from __future__ import annotations

import json
import logging
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

from rlvr_vocab.atomic_file import json_text, write_whole
from rlvr_vocab.config.recorded import config_yaml
from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.files import (
    CHANGES,
    CONFIG,
    ENVIRONMENT,
    FINAL_ADAPTER,
    FINAL_MODEL,
    INITIAL_MODEL,
    SUMMARY,
)
from rlvr_vocab.record.json_files import read_record
from rlvr_vocab.record.manifest import MANIFEST
from rlvr_vocab.runs.hub_names import names_on_hub
from rlvr_vocab.runs.output_folder import CLEARED, WITHOUT_A_NAME, belongs_to_no_run, changes_of
from rlvr_vocab.secret_words import without_secrets

logger = logging.getLogger(__name__)

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


def start_run_folder(settings: RunSettings) -> None:
    """Make the folder and write down configuration and environment; `overwrite` clears an earlier run first."""
    folder = settings.output_dir
    if (folder / CLEARED).exists():  # by a start that was killed
        shutil.rmtree(folder / CLEARED)
    here = environment()
    if (folder / CONFIG).is_file():
        if settings.overwrite:
            _clear(folder)
        else:
            _remove_halves(folder)
            _compare_threads(folder, here)
            _write_down_changes(settings)
            (folder / MANIFEST).unlink(missing_ok=True)  # of a finished run: from here on this is none
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / CONFIG, config_yaml(settings.resolved))  # marks the folder as a run
    write_json(folder / ENVIRONMENT, {**here, "names_on_hub": names_on_hub(settings.resolved)})


def results_file(folder: Path, when: str) -> Path:
    """Where a run keeps what it measured on its held-out problems."""
    return folder / "evaluation" / f"{when}.jsonl"


def _reopen(folder: Path) -> None:
    """A finished run that is to be trained further is finished no more; what it came to keeps another name."""
    summary = read_record(folder, SUMMARY)
    if summary is None:
        return
    for path in (results_file(folder, "after"), folder / SUMMARY):
        if path.exists():
            path.rename(path.with_stem(f"{path.stem}_{summary['steps']}_steps"))


def _clear(folder: Path) -> None:
    """Remove an earlier run. Killed in the middle, it is a run that is not finished, and then one without a checkpoint.

    Its mark goes last, so that what is left is still known as a run's.
    """
    cleared = folder / CLEARED
    cleared.mkdir()
    of_the_run = [path for path in folder.iterdir() if not belongs_to_no_run(path)]
    for path in sorted(of_the_run, key=_turn_to_go):
        path.rename(cleared / path.name)
    shutil.rmtree(cleared)


def _turn_to_go(path: Path) -> tuple[bool, bool, bool, str]:
    """The outcome first, then checkpoints, the configuration last."""
    is_checkpoint = path.name == "stages" or path.name.startswith("checkpoint-")
    return path.name == CONFIG, path.name not in (MANIFEST, SUMMARY), not is_checkpoint, path.name


def _remove_halves(folder: Path) -> None:
    """What a killed process had not finished of the folders that appear whole."""
    for name in (INITIAL_MODEL, FINAL_ADAPTER, FINAL_MODEL):
        for path in folder.glob(f".*{name}.*"):
            shutil.rmtree(path)


def _compare_threads(folder: Path, here: dict[str, Any]) -> None:
    """Warn where a run goes on with another number of threads: on a CPU they add up in another order."""
    try:
        before = (read_record(folder, ENVIRONMENT) or {}).get("threads")
    except UserError as error:
        logger.warning("%s: it is written anew, what the run began with is not known", error)
        return
    if before not in (None, here["threads"]) and not here["gpus"]:
        logger.warning(
            "the run began with %s threads and goes on with %s: its last digits will be others; OMP_NUM_THREADS=%s "
            "keeps them",
            *(before, here["threads"], before),
        )


def _write_down_changes(settings: RunSettings) -> None:
    """What is to be otherwise from here on; a finished run is taken up again by it."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    changes = [{"at": now, "key": key, "from": there, "to": here} for key, there, here in changes_of(settings)]
    if changes or settings.resume not in WITHOUT_A_NAME:
        _reopen(settings.output_dir)
    if not changes:
        return
    with (settings.output_dir / CHANGES).open("a", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(change, default=str)}\n" for change in changes)


def environment() -> dict[str, Any]:
    """Versions, commit, hardware and command line."""
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
    """The names that were on the hub when the run started; none where it wrote nothing of it down."""
    return tuple((read_record(folder, ENVIRONMENT) or {}).get("names_on_hub", ()))


def write_json(path: Path, content: dict[str, Any]) -> None:
    write_whole(path, json_text(content))


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
