"""Reads a run from its folder: facts, rows, summary, damage, or what a checkpoint in it was trained with; no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import read_recorded
from rlvr_vocab.config.sections import EvaluationSettings, RewardSettings
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
    """What the run in a folder has logged so far.

    Raises:
        UserError: it is no run, or a file of it cannot be read.
    """
    rows, evaluations = split_evaluations(read_metrics(folder / METRICS))
    facts = run_facts(read_recorded(folder, resolve=True), folder)
    damage = tuple(chain(*damage_of_run(folder)))
    summary = read_record(folder, SUMMARY)
    if summary is not None and "finished" not in summary:
        raise UserError(f"{folder / SUMMARY} is damaged: it does not say whether the run is finished")
    return RunRecord(folder, facts, rows, evaluations, summary, damage)


def run_facts(config: Mapping[str, Any], folder: Path) -> RunFacts:
    """The facts of a run, and of each of its stages, from its resolved configuration and its folder."""
    stages = [
        replace(_facts(_of_stage(config, stage), folder), stage=stage["name"]) for stage in config.get("stages") or []
    ]
    return replace(_facts(config, folder), stages=tuple(stages))


def _of_stage(config: Mapping[str, Any], stage: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with what a stage sets over it."""
    over = {key: {**config[key], **stage[key]} for key in ("training", "dataset") if stage.get(key)}
    return {**config, **over, "rewards": stage.get("rewards") or config.get("rewards")}


def _facts(config: Mapping[str, Any], folder: Path) -> RunFacts:
    training = config["training"]
    rewards = read(RewardSettings, config.get("rewards") or {"functions": []}, "rewards")
    opened, closed = config["model"]["think_tags"]
    return RunFacts(
        exp_name=config["exp_name"],
        seed=config["seed"],
        model=config["model"]["name"],
        dataset=config["dataset"]["name"],
        reasoning_vocab_size=_reasoning_tokens(config["model"]["reasoning_vocab_size"], folder),
        think_tags=(opened, closed),
        rewards=tuple(
            RewardFact(name, each.weight, each.adaptive is not None, each.full_mark)
            for name, each in zip(logged_names(rewards.functions), rewards.functions, strict=True)
        ),
        max_steps=training.get("max_steps"),
        completions_per_step=_completions_per_step(training),
        **{name: training[name] for name in _TRAINING},
    )


_TRAINING = ("num_generations", "max_completion_length", "learning_rate", "use_vllm")


def _completions_per_step(training: Mapping[str, Any]) -> float:
    size, batches, updates = (
        training[name] for name in ("per_device_train_batch_size", "gradient_accumulation_steps", "num_iterations")
    )
    return float(size * batches / updates)


def _reasoning_tokens(asked: int | str, folder: Path) -> int:
    """The number of reasoning tokens: that of the initial model where there is one, else the one asked for."""
    path = folder / INITIAL_MODEL
    if (path / LAYOUT_FILE).is_file():
        return VocabLayout.load(path).size
    return asked if isinstance(asked, int) else 0


DEFAULT_MAX_NEW_TOKENS, DEFAULT_TEMPERATURE = 1024, 1.0


@dataclass(frozen=True)
class RunOfCheckpoint:
    """The run around a checkpoint; without one, None and the defaults.

    Attributes:
        dataset: what decides, with `seed`, which problems were held out.
        training_sets: what each stage trained on, the name of the stage first, and so for a run in one piece.
        warmed_up: whether the run began with supervised steps on problems of `dataset`.
        rewards: of its last stage, which with `evaluation` decide what grades answers.
    """

    folder: Path | None = None
    seed: int | None = None
    dataset: Mapping[str, Any] | None = None
    training_sets: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    warmed_up: bool = False
    rewards: RewardSettings | None = None
    evaluation: EvaluationSettings | None = None
    system_prompt: str | None = None
    max_new_tokens: int = DEFAULT_MAX_NEW_TOKENS
    temperature: float = DEFAULT_TEMPERATURE


def run_of_checkpoint(checkpoint: Path) -> RunOfCheckpoint:
    """Read `config.yaml` beside the checkpoint's folder.

    Raises:
        UserError: If it is not the configuration of a run.
    """
    folder = run_folder_of(checkpoint)
    if folder is None:
        return RunOfCheckpoint()
    config = read_recorded(folder, resolve=True)
    stage, evaluation = stage_of(checkpoint, config.get("stages") or []), config.get("evaluation") or {}
    generation = {
        name: stage.get("generation", {}).get(name, config["model"]["generation_kwargs"][name])
        for name in ("max_new_tokens", "temperature")
    }
    return RunOfCheckpoint(
        folder=folder,
        seed=config["seed"],
        dataset=config["dataset"],
        training_sets=tuple(
            (each["name"], {**config["dataset"], **each.get("dataset", {})})
            for each in config.get("stages") or [{"name": ""}]
        ),
        warmed_up=(config.get("warmup") or {}).get("max_steps", 0) > 0,
        rewards=read(RewardSettings, _last_rewards(config), "rewards"),
        evaluation=read(EvaluationSettings, {"grader": None, "threshold": None} | evaluation, "evaluation"),
        system_prompt=config["dataset"]["system_prompt"] if asked_under_it(folder) else None,
        **generation,
    )


def asked_under_it(folder: Path) -> bool:
    """Whether the problems of a run were asked under the system prompt of its configuration."""
    return bool((read_record(folder, PROBLEMS) or {}).get(SYSTEM_PROMPT_USED, True))


def _last_rewards(config: Mapping[str, Any]) -> Mapping[str, Any]:
    last: Mapping[str, Any] = (config.get("stages") or [{}])[-1]
    return last.get("rewards") or config.get("rewards") or {"functions": []}


def stage_of(checkpoint: Path, stages: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """What the stage of a checkpoint sets over the run: its own stage's folder tells, else it is past the last one."""
    for folder in map(Path.absolute, parents_of(checkpoint)):
        if folder.parent.name == "stages":
            name = folder.name.partition("_")[2]
            return next((stage for stage in stages if stage["name"] == name), {})
    return stages[-1] if stages else {}


def configuration_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted key -> value; rewards with what a function leaves to its defaults, however they were recorded."""
    rewards = read(RewardSettings, config.get("rewards") or {"functions": []}, "rewards")
    return dict(leaves({**config, "rewards": asdict(rewards)}))


def default_keys() -> dict[str, Any]:
    """The keys of a run for which nothing was set."""
    return configuration_keys(read_settings("train", []).resolved)
