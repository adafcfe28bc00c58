"""From settings to the small dataclasses that the rooms take: the one place where configuration is translated."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rlvr_vocab.data import ArithmeticTask, Columns, ProblemSource, PromptStyle, Split
from rlvr_vocab.errors import UserError
from rlvr_vocab.exp.typed_sections import DatasetSettings, ModelSettings, RunSettings
from rlvr_vocab.rewards.build import RewardSpec
from rlvr_vocab.vocab.expand import Expansion

# Arguments of `from_pretrained` that say where a base model comes from; the others are for loading it to train.
_SOURCE_ARGUMENTS = (
    "revision",
    "token",
    "trust_remote_code",
    "cache_dir",
    "local_files_only",
    "force_download",
    "proxies",
    "subfolder",
)


def problem_source(dataset: DatasetSettings) -> ProblemSource:
    generator = dataset.generator
    return ProblemSource(
        name=dataset.name,
        columns=Columns(dataset.columns.problem, dataset.columns.answer, dataset.columns.reasoning),
        subset=dataset.subset,
        split=dataset.split,
        eval_split=dataset.eval_split,
        answer_format=dataset.answer_format,
        generator=None if generator is None else ArithmeticTask(generator.digits, generator.num_problems),
    )


def prompt_style(dataset: DatasetSettings) -> PromptStyle:
    turns = tuple((turn.problem, turn.answer) for turn in dataset.examples or ())
    return PromptStyle(dataset.system_prompt, turns)


def problem_split(dataset: DatasetSettings, seed: int) -> Split:
    return Split(
        eval_fraction=0.0 if dataset.eval_split is not None else dataset.eval_fraction,
        max_train_samples=dataset.max_train_samples,
        max_eval_samples=dataset.max_eval_samples,
        seed=seed,
    )


def expansion(model: ModelSettings, seed: int, open_thinking: str = "auto") -> Expansion:
    return Expansion(
        size=None if model.reasoning_vocab_size == "full" else model.reasoning_vocab_size,
        multiplicity=model.reasoning_multiplicity,
        source_ids=model.source_ids,
        mode=model.reasoning_mode,
        preserve_odds=model.preserve_odds,
        think_tags=model.think_tags,
        init_noise=model.init_noise,
        open_thinking=open_thinking,  # type: ignore[arg-type]  # checked when the settings were read
        chat_template=_template_text(model.chat_template),
        seed=seed,
    )


def source_kwargs(model: ModelSettings) -> dict[str, Any]:
    return {key: value for key, value in model.from_pretrained_kwargs.items() if key in _SOURCE_ARGUMENTS}


def loading_kwargs(model: ModelSettings) -> dict[str, Any]:
    """How the expanded checkpoint is loaded to train: float32 weights unless `pure_bf16` says otherwise."""
    passed = {
        key: value for key, value in model.from_pretrained_kwargs.items() if key not in _SOURCE_ARGUMENTS
    }
    return {**passed, "dtype": model.dtype if model.pure_bf16 else "float32"}


def reward_specs(settings: RunSettings) -> list[RewardSpec]:
    return [
        RewardSpec(function.name, function.weight, function.params) for function in settings.rewards.functions
    ]


def cache_folder() -> Path:
    """Where models made on this machine are kept: `RLVR_VOCAB_CACHE`, else the user's cache folder."""
    given = os.environ.get("RLVR_VOCAB_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlvr-vocab"


def _template_text(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"model.chat_template={path} cannot be read: {error}") from error
