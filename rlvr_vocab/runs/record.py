"""Reads a run from its folder: facts, rows, summary, damage, or what a checkpoint in it was trained with; no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rlvr_vocab.atomic_file import read_json_if_there
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
from rlvr_vocab.record.inventory import RunInventory
from rlvr_vocab.record.metrics import RewardFact, RunFacts, RunRecord, read_metrics, split_evaluations
from rlvr_vocab.rewards.build import logged_names
from rlvr_vocab.rewards.reward import RewardSpec
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout


def run_record(folder: Path) -> RunRecord:
    """What the run in a folder has logged so far.

    Raises:
        UserError: it is no run, or a file of it cannot be read.
    """
    rows, evaluations = split_evaluations(read_metrics(folder / METRICS))
    facts = run_facts(read_recorded(folder, resolve=True), folder)
    damage = tuple(RunInventory.of(folder).damage())
    summary = read_record(folder, SUMMARY)
    if summary is not None and "finished" not in summary:
        raise UserError(f"{folder / SUMMARY} is damaged: it does not say whether the run is finished")
    return RunRecord(folder, facts, rows, evaluations, summary, damage)


def run_facts(config: Mapping[str, Any], folder: Path) -> RunFacts:
    """The facts of a run, and of each of its stages, from its resolved configuration and its folder."""
    stages = [
        replace(_facts(_of_stage(config, stage), folder, stage["name"]), stage=stage["name"])
        for stage in config.get("stages") or []
    ]
    return replace(_facts(config, folder), stages=tuple(stages))


def _arithmetic_digits(generator: Mapping[str, Any]) -> int | None:
    """None where more of them would change nothing."""
    digits: int | None = None if generator.get("terms") else generator.get("digits")
    return digits


def _of_stage(config: Mapping[str, Any], stage: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with what a stage sets over it."""
    over = {key: {**config[key], **stage[key]} for key in ("training", "dataset") if stage.get(key)}
    return {**config, **over, "rewards": stage.get("rewards") or config.get("rewards")}


def _facts(config: Mapping[str, Any], folder: Path, stage: str = "") -> RunFacts:
    model, training = config["model"], config["training"]
    dataset, warmup = config["dataset"], config.get("warmup") or {}
    rewards = read(RewardSettings, config.get("rewards") or {"functions": []}, "rewards")
    opened, closed = model["think_tags"]
    return RunFacts(
        exp_name=config["exp_name"],
        seed=config["seed"],
        model=model["name"],
        dataset=config["dataset"]["name"],
        reasoning_vocab_size=_reasoning_tokens(model["reasoning_vocab_size"], folder),
        reasoning_mode=model["reasoning_mode"],
        reasoning_copies=_copies_of_a_token(model, folder),
        pure_bf16=bool(model.get("pure_bf16")),
        think_tags=(opened, closed),
        rewards=tuple(
            RewardFact(name, each.weight, each.adaptive is not None, each.name, _more(each), each.full_mark)
            for name, each in zip(logged_names(rewards.functions), rewards.functions, strict=True)
        ),
        max_steps=training.get("max_steps"),
        completions_per_step=_completions_per_step(training),
        together=_together(training),
        longest_completion=_longest_completion(folder, stage),
        arithmetic_digits=_arithmetic_digits(dataset.get("generator") or {}),
        warmup_steps=warmup.get("max_steps") or 0,
        warmup_until=warmup.get("until_accuracy"),
        **{name: training[name] for name in _TRAINING},
    )


_TRAINING = (
    "num_generations",
    "max_completion_length",
    "temperature",
    "learning_rate",
    "lr_scheduler_type",
    "beta",
    "max_grad_norm",
    "use_vllm",
    "gradient_accumulation_steps",
    "entropy_coef",
)


def _completions_per_step(grpo: Mapping[str, Any]) -> float:
    size, batches, updates = (
        grpo[name] for name in ("per_device_train_batch_size", "gradient_accumulation_steps", "num_iterations")
    )
    return float(size * batches / updates)


def _together(grpo: Mapping[str, Any]) -> tuple[str, int]:
    """The key that decides how many completions are drawn together, and its value."""
    names = ("generation_batch_size", "steps_per_generation", "gradient_accumulation_steps")
    name = next((name for name in names if grpo.get(name) is not None), names[-1])
    return name, grpo[name]


def _longest_completion(folder: Path, stage: str) -> int | None:
    """Tokens that the model's context leaves beside the longest prompt; None where the run has not begun."""
    config = read_json_if_there(folder / INITIAL_MODEL / "config.json") or {}
    context = (config.get("text_config") or config).get("max_position_embeddings")
    try:
        accounts = (read_record(folder, PROBLEMS) or {}).get("training") or []
    except UserError:  # ends no training for a line of advice; the command doctor names it
        return None
    prompts = [each.get("longest_prompt", 0) for each in accounts if each.get("stage", "") == stage]
    return context - max(prompts, default=0) if isinstance(context, int) else None


def _more(function: RewardSpec) -> dict[str, Any]:
    """The settings of a function beside its name and its weight, where they are not the defaults."""
    plain = asdict(RewardSpec(function.name, function.weight))
    return {key: value for key, value in asdict(function).items() if value != plain[key]}


def _reasoning_tokens(asked: int | str, folder: Path) -> int:
    """The number of reasoning tokens: that of the initial model where there is one, else the one asked for."""
    path = folder / INITIAL_MODEL
    if (path / LAYOUT_FILE).is_file():
        return VocabLayout.load(path).size
    return asked if isinstance(asked, int) else 0


def _copies_of_a_token(model: Mapping[str, Any], folder: Path) -> float:
    """How many reasoning tokens there are for each standard one; before the run has begun, of those that have any."""
    path = folder / INITIAL_MODEL
    if (path / LAYOUT_FILE).is_file():
        layout = VocabLayout.load(path)
        return layout.size / layout.standard_size
    asked = model["reasoning_vocab_size"] != 0 or model["source_ids"] is not None
    return float(model["reasoning_multiplicity"]) if asked else 0.0


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
