"""Reads a run from its folder: facts, rows, summary and damage, or the run around a checkpoint; no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import read_recorded
from rlvr_vocab.config.sections import RewardSettings, RunSettings
from rlvr_vocab.config.values import leaves, read
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.files import (
    INITIAL_MODEL,
    METRICS,
    PROBLEMS,
    SUMMARY,
    SYSTEM_PROMPT_USED,
    parents_of,
    read_record,
    run_folder_of,
)
from rlvr_vocab.record.manifest import damage_of_run
from rlvr_vocab.record.metrics import RewardFact, RunFacts, RunRecord, read_metrics, split_evaluations
from rlvr_vocab.rewards.build import logged_names
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout


def run_record(folder: Path) -> RunRecord:
    """The facts, rows, summary and damage of the run in a folder; UserError for a file that cannot be read."""
    rows, evaluations = split_evaluations(read_metrics(folder / METRICS))
    facts = run_facts(read_recorded(folder, resolve=True), folder)
    summary = read_record(folder, SUMMARY)
    if summary is not None and "finished" not in summary:
        raise UserError(f"{folder / SUMMARY} is damaged: it has no field 'finished'")
    return RunRecord(folder, facts, rows, evaluations, summary, damage_of_run(folder))


def run_facts(config: Mapping[str, Any], folder: Path) -> RunFacts:
    """The facts of a run, and of each of its stages, from its resolved configuration and its folder."""
    stages = []
    for stage in config.get("stages") or ():
        over = {key: {**config[key], **stage[key]} for key in ("training", "dataset") if stage.get(key)}
        rewards = stage.get("rewards") or config.get("rewards")
        stages.append(replace(_facts({**config, **over, "rewards": rewards}, folder), stage=stage["name"]))
    return replace(_facts(config, folder), stages=tuple(stages))


def _facts(config: Mapping[str, Any], folder: Path) -> RunFacts:
    training, initial_model = config["training"], folder / INITIAL_MODEL
    rewards, batch = _rewards(config), training["per_device_train_batch_size"]
    opened, closed = config["model"]["think_tags"]
    size = config["model"]["reasoning_vocab_size"]
    if (initial_model / LAYOUT_FILE).is_file():
        size = VocabLayout.load(initial_model).size
    return RunFacts(
        exp_name=config["exp_name"],
        seed=config["seed"],
        model=config["model"]["name"],
        dataset=config["dataset"]["name"],
        reasoning_vocab_size=size if isinstance(size, int) else 0,
        think_tags=(opened, closed),
        rewards=tuple(
            RewardFact(name, each.weight, each.adaptive is not None, each.full_mark)
            for name, each in zip(logged_names(rewards.functions), rewards.functions, strict=True)
        ),
        max_steps=training.get("max_steps"),
        completions_per_step=batch * training["gradient_accumulation_steps"] / training["num_iterations"],
        **{name: training[name] for name in ("num_generations", "max_completion_length", "learning_rate", "use_vllm")},
    )


def _rewards(config: Mapping[str, Any]) -> RewardSettings:
    return read(RewardSettings, config.get("rewards") or {"functions": []}, "rewards")


@dataclass(frozen=True)
class RunOfCheckpoint:
    """The run that a checkpoint belongs to, and the sampling settings of its stage; without a run, the defaults."""

    folder: Path | None = None
    settings: RunSettings | None = None
    system_prompt: str | None = None
    max_new_tokens: int = 1024
    temperature: float = 1.0


def run_of_checkpoint(checkpoint: Path) -> RunOfCheckpoint:
    """Read `config.yaml` of the checkpoint's run; UserError if that is not the configuration of a run."""
    folder = run_folder_of(checkpoint)
    if folder is None:
        return RunOfCheckpoint()
    settings = read_settings("train", [f"config={folder}"])
    generation = stage_of(checkpoint, settings).model.generation_kwargs
    system_prompt = settings.dataset.system_prompt if system_prompt_used(folder) else None
    return RunOfCheckpoint(folder, settings, system_prompt, generation["max_new_tokens"], generation["temperature"])


def stage_of(checkpoint: Path, settings: RunSettings) -> RunSettings:
    """The settings of the stage that a checkpoint belongs to; outside a stage folder, those of the last stage."""
    for folder in map(Path.absolute, parents_of(checkpoint)):
        if folder.parent.name == "stages":
            name = folder.name.partition("_")[2]
            return next((stage.run for stage in settings.stages if stage.name == name), settings)
    return settings.stages[-1].run if settings.stages else settings


def system_prompt_used(folder: Path) -> bool:
    """Whether the prompts of a run used the system prompt of its configuration."""
    return bool((read_record(folder, PROBLEMS) or {}).get(SYSTEM_PROMPT_USED, True))


def configuration_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted key -> value, with the defaults of every reward filled in, however they were recorded."""
    return dict(leaves({**config, "rewards": asdict(_rewards(config))}))


def default_keys() -> dict[str, Any]:
    """The keys of a run with their default values."""
    return configuration_keys(read_settings("train", []).resolved)
