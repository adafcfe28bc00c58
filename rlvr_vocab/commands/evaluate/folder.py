"""The folder of an evaluation: what was asked decides whether results in it are those of the same question."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr_vocab.atomic_file import read_json, read_json_if_there, write_json_whole
from rlvr_vocab.config.values import as_typed
from rlvr_vocab.errors import UserError
from rlvr_vocab.evaluation.sampling import SamplingSettings
from rlvr_vocab.record.files import EVALUATION_RESULTS, EVALUATION_SETTINGS
from rlvr_vocab.rewards.reward import RewardSpec
from rlvr_vocab.vocab.layout import LAYOUT_FILE
from rlvr_vocab.vocab.peft.adapter_base import find_base, folder_with, is_adapter
from rlvr_vocab.vocab.peft.weights_fingerprint import weights_fingerprint

RESULTS, SETTINGS, SUMMARY = EVALUATION_RESULTS, EVALUATION_SETTINGS, "summary.json"
# What belongs to a checkpoint beside its weights and changes what it is asked or how its answers read.
_READ_BESIDE = (LAYOUT_FILE, "tokenizer.json", "chat_template.jinja", "generation_config.json")


def asked_of(
    checkpoint: Path,
    base: Path | None,
    rows: Sequence[Mapping[str, Any]],
    sampling: SamplingSettings,
    backend: str,
    grader: RewardSpec,
) -> dict[str, Any]:
    """Everything that results depend on, as plain values; the number of samples is not among it: more may be asked."""
    under = find_base(checkpoint, base) if is_adapter(checkpoint) else checkpoint
    return {
        "weights": weights_fingerprint(checkpoint),
        "base_weights": None if under is checkpoint else weights_fingerprint(under),
        "files": {name: _file_hash(checkpoint, base, name) for name in _READ_BESIDE},
        "problems": len(rows),
        "problems_sha256": _sha256([[row["prompt"], row["solution"]] for row in rows]),
        "grader": {"name": grader.name, "params": dict(grader.params)},
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_new_tokens": sampling.max_new_tokens,
        "seed": sampling.seed,
        "batch_size": sampling.batch_size,
        "backend": backend,
    }


def require_same(folder: Path, asked: Mapping[str, Any]) -> None:
    """Raises UserError where the folder holds results of another question; nothing is written.

    Settings without results bind nobody: a process that was killed has left them before its first answer.
    """
    results = folder / RESULTS
    if not results.is_file() or not results.stat().st_size:
        if (folder / SUMMARY).exists():
            raise UserError(f"out={folder}: holds a {SUMMARY} without its {RESULTS}; choose another out, or delete it")
        return
    if not (folder / SETTINGS).is_file():
        raise UserError(
            f"out={folder}: holds a {RESULTS} without its {SETTINGS}, so nobody knows of what; "
            "choose another out, or delete it"
        )
    there = read_json(folder / SETTINGS)
    others = [key for key in asked if there.get(key) != asked[key]]
    if others:
        words = ", ".join(_in_words(key, there.get(key), asked[key]) for key in others)
        raise UserError(f"out={folder}: holds an evaluation with {words}; choose another out, or delete it")


def write_asked(folder: Path, asked: Mapping[str, Any], **more: Any) -> None:
    """Write down what is asked, and what of it does not decide, before the first result."""
    write_json_whole(folder / SETTINGS, {**asked, **more}, "out")


def take_back_summary(folder: Path) -> None:
    """Remove what was said of the results, which are about to become others."""
    (folder / SUMMARY).unlink(missing_ok=True)


def earlier_differences(folder: Path) -> dict[str, Any]:
    """What a summary that was not taken back says of the differences to another checkpoint: the results are the same.

    So a checkpoint that is looked at alone keeps what was found when it was one of several.
    """
    summary = read_json_if_there(folder / SUMMARY) or {}
    return {name: summary[name] for name in ("difference_to", "differences") if name in summary}


def _in_words(key: str, there: Any, now: Any) -> str:
    if isinstance(now, int | float | str) and not key.endswith(("weights", "sha256")):
        return f"{key}={as_typed(there)} (now {as_typed(now)})"
    what = {"problems_sha256": "problems", "weights": "weights", "base_weights": "weights under the adapter"}
    return f"other {what.get(key, key)}"


def _file_hash(checkpoint: Path, base: Path | None, name: str) -> str | None:
    path = folder_with(name, checkpoint, base) / name
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def _sha256(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, ensure_ascii=True).encode()).hexdigest()
