"""The settings of `rlvr-vocab score`: three uses, and no key that the one meant would not read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlvr_vocab.checks.run import (
    check_dataset,
    check_model,
    check_positive,
    check_rewards,
    check_serving_temperature,
)
from rlvr_vocab.config.resolution import settle_reward_functions
from rlvr_vocab.config.sections import DatasetSettings, ModelSettings, ScoreSettings
from rlvr_vocab.config.values import read, read_section
from rlvr_vocab.data.paths import check_file
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.files import STEP_FILES, step_files
from rlvr_vocab.runs.folder import check_new_file
from rlvr_vocab.vocab.layout import LAYOUT_FILE

_OF_COMPLETIONS = ("completion_column", "prompt_column", "solution_column", "solution_format")
_OF_A_MODEL = ("samples", "batch_size")
# What an expanded model does not settle.
_STILL_OPEN = ("model.name", "model.generation_kwargs.", "model.model_kwargs.")
_SAMPLING = ("max_new_tokens", "temperature")


def read_score(config: dict[str, Any], given: frozenset[str]) -> ScoreSettings:
    """Sections without a name are None: their other keys are defaults that nothing reads.

    Raises:
        UserError: a key was given that has nothing to apply to, or a value has the wrong type.
    """
    settle_reward_functions(config)
    sections: dict[str, Any] = {"model": None, "dataset": None}
    if config["model"]["name"] is not None:
        sections["model"] = read(ModelSettings, config["model"], "model")
    if config["dataset"]["name"] is not None:
        sections["dataset"] = read(DatasetSettings, config["dataset"], "dataset")
    settings = read_section(ScoreSettings, config, ready=sections)
    for fault in _keys_without_use(settings, given):
        raise UserError(fault)
    return settings


def expanded_folder(model: ModelSettings) -> Path | None:
    """The folder of a model that has its reasoning vocabulary already; None for a base model."""
    folder = Path(model.name).expanduser()
    return folder if (folder / LAYOUT_FILE).is_file() else None


def _keys_without_use(settings: ScoreSettings, given: frozenset[str]) -> Iterator[str]:
    """A line for each key that was given and that nothing would read."""
    expanded = None if settings.model is None else expanded_folder(settings.model)
    for key in sorted(given):
        if settings.dataset is None and key.startswith("dataset."):
            yield f"{key} has no problem set to apply to: choose one with dataset=… or dataset.name=…"
        if settings.model is None and (key.startswith("model.") or key in _OF_A_MODEL):
            yield f"{key} has no model to apply to: choose one with model=… or model.name=…"
        if settings.completions is None and key in _OF_COMPLETIONS:
            yield f"{key} has no completions to apply to: give completions=FILE"
        if expanded is not None and key.startswith("model.") and not key.startswith(_STILL_OPEN):
            yield f"{key}: the model in {expanded} is expanded already, which settles it; leave it out"


def check_score(settings: ScoreSettings) -> None:
    """Refuse what cannot be scored before anything heavy loads.

    Raises:
        UserError: the first thing that is wrong.
    """
    _check_what_is_scored(settings)
    check_rewards(settings.rewards)
    check_positive(
        {"samples": settings.samples, "batch_size": settings.batch_size, "max_samples": settings.max_samples}
    )
    if settings.show < 0:
        raise UserError(f"show={settings.show}: must be 0 or above")
    if settings.completions is not None:
        check_completions(settings.completions)
    if settings.dataset is not None:
        check_dataset(settings.dataset)
    if settings.model is not None:
        _check_sampling_model(settings.model)
    if settings.out is not None:
        check_new_file(settings.out, "out", _files_read(settings))


def _check_what_is_scored(settings: ScoreSettings) -> None:
    if settings.completions is not None and (settings.dataset is not None or settings.model is not None):
        other = "dataset" if settings.dataset is not None else "model"
        raise UserError(f"completions=… and {other}=… are two things to score: give one")
    if settings.completions is None and settings.dataset is None:
        if settings.model is not None:
            raise UserError(f"model.name={settings.model.name} needs problems to answer: choose them with dataset=…")
        raise UserError(
            "nothing to score: give completions=FILE, dataset=… for its gold answers, or model=… dataset=… for samples"
        )
    if settings.think_tags is not None and settings.model is not None:
        raise UserError("think_tags is for completions and gold answers; a model has model.think_tags")


def _check_sampling_model(model: ModelSettings) -> None:
    check_model(model)
    for key, value in model.generation_kwargs.items():
        where = f"model.generation_kwargs.{key}"
        if key not in _SAMPLING:
            raise UserError(f"{where}={value}: samples are drawn as in training, with {' and '.join(_SAMPLING)} alone")
        read(int if key == "max_new_tokens" else float, value, where)
    check_positive({"model.generation_kwargs.max_new_tokens": model.generation_kwargs["max_new_tokens"]})
    check_serving_temperature(model.generation_kwargs["temperature"])


def _files_read(settings: ScoreSettings) -> list[str]:
    named = [settings.completions] if settings.completions is not None else []
    names = [settings.dataset.name, settings.dataset.eval_split or ""] if settings.dataset is not None else []
    return [*map(str, named), *filter(None, names)]


def check_completions(path: Path) -> None:
    """Raises UserError where nothing at the path can hold completions; nothing is read."""
    if not path.is_dir():
        check_file(path)
    elif not step_files(path):
        inside = [path / "completions", *sorted(path.glob("*.jsonl")), path / "evaluation"]
        nearest = next((each for each in inside if each.exists()), None)
        hint = f"; did you mean {nearest}?" if nearest is not None else ""
        raise UserError(f"completions={path}: a folder without {STEP_FILES} files of a run{hint}")
