"""From the words of a command to typed settings, without importing torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import DictConfig, OmegaConf

from rlvr_vocab.config.command_settings import COMMANDS
from rlvr_vocab.config.compose import CommandLine, Composed, as_mapping, compose, compose_section, parse_command_line
from rlvr_vocab.config.recorded import escaped
from rlvr_vocab.config.sections import (
    RewardSettings,
    RunSettings,
    StageKeys,
    StageSettings,
    grpo_arguments,
    stage_error_context,
)
from rlvr_vocab.config.trl_fields import GrpoFields, trl_values
from rlvr_vocab.config.values import as_typed, keys_of, leaves, read, refuse_impossible_values, single_values
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.reward import RewardSpec, allow, is_user_code, require_allowed
from rlvr_vocab.secrets import is_secret, variable_with

# model.generation_kwargs.<key> -> the same thing as training.<key>
SHARED_KEYS = {"max_new_tokens": "max_completion_length", "temperature": "temperature"}
# Sections of a command that are not used unless their `name` is given.
_OPTIONAL_SECTIONS = {"check": ("model",), "score": ("model", "dataset")}
# Keys by which code of a model's folder or of the hub runs; so does an attention that the hub holds.
_BRING_CODE = ("trust_remote_code", "use_kernels")
Run = TypeVar("Run", bound=RunSettings)


def read_settings(command: str, argv: Sequence[str]) -> Any:
    """The settings of one command, as `settings_of` reads them, from its words, e.g. ["model=tiny", "seed=3"]."""
    return settings_of(parse_command_line(command, argv))


def settings_of(line: CommandLine) -> Any:
    """The settings of a command, of the type that its row in COMMANDS names.

    Raises:
        UserError: an unknown key or choice, a value of the wrong type or out of its bounds, a secret.
    """
    for word in line.overrides:  # W&B records them all, overridden ones too
        key, assigned, value = word.lstrip("+~").partition("=")
        if assigned:
            _refuse_secrets({key: value})
    kind, composed = COMMANDS[line.command].settings, compose(line)
    if issubclass(kind, RunSettings):
        run = _with_stages(_read_run(composed, kind), composed, line.folders)
        _allow_typed_code(run, composed, recorded=line.config_file is not None)
        for key in composed.given - {"model.lora.enabled"}:
            if key.startswith("model.lora.") and not run.model.trains_adapter:
                raise UserError(f"{key} has nothing to apply to: add model.lora.enabled=true")
        return run
    config = _plain(composed.config)
    for section in _OPTIONAL_SECTIONS.get(line.command, ()):
        if config[section]["name"] is None:
            unused = sorted(key for key in composed.given if key.startswith(f"{section}."))
            if unused:
                raise UserError(f"{unused[0]} has no {section} to apply to: choose one with {section}.name=…")
            config[section] = None
    settings = read(kind, config)
    _allow(getattr(settings, "rewards", None), getattr(settings, "grader", None))
    return settings


def _plain(config: DictConfig) -> dict[str, Any]:
    """Plain values, no secret and no impossible number among them."""
    plain = as_mapping(config, resolve=True, complete=True)
    _refuse_secrets(plain)
    refuse_impossible_values(plain)
    return plain


def _refuse_secrets(config: Mapping[str, Any]) -> None:
    """Raises UserError where a value is a secret, without printing it."""
    for key, value in single_values(config):
        if is_secret(key, value):
            held = variable_with(str(value)) or "HF_TOKEN, WANDB_API_KEY, HTTPS_PROXY, …"
            raise UserError(f"{key} holds a secret, which would be recorded: leave it to the environment ({held})")


def _read_run(composed: Composed, kind: type[Run]) -> Run:
    """The settings of a run, stages apart; `resolved` is the configuration as it reloads to the same settings."""
    config = _plain(composed.config)
    _normalize_shared_keys(config, composed)
    run: Run = read(kind, {key: value for key, value in config.items() if key != "stages"})
    others = {name: value for name, value in run.training.grpo.items() if name not in keys_of(GrpoFields)}
    training = replace(run.training, grpo={**run.training.grpo, **trl_values(others, keys_of(RunSettings))})
    run = replace(run, training=training)
    grader, tasks = run.evaluation.grader, run.dataset.tasks
    resolved = {
        **config,
        # A recorded configuration must not overwrite anything, or go back to a checkpoint, when it is reloaded.
        "overwrite": False,
        "resume": "auto",
        "allow_changes": [],
        "model": {**config["model"], "reasoning_vocab_size": run.model.reasoning_vocab_size},
        "dataset": {**config["dataset"], "tasks": None if tasks is None else [asdict(task) for task in tasks]},
        "rewards": {"functions": [asdict(function) for function in run.rewards.functions]},
        "evaluation": {**config["evaluation"], "grader": None if grader is None else [asdict(each) for each in grader]},
    }
    return replace(run, training=replace(training, grpo=grpo_arguments(run)), resolved=resolved)


def _normalize_shared_keys(config: dict[str, Any], composed: Composed) -> None:
    """model.generation_kwargs.X and training.Y are one thing: both get the value that was typed, else training's."""
    generation, training = config["model"]["generation_kwargs"], config["training"]
    if not isinstance(generation, dict) or not isinstance(training, dict):
        return  # `read` refuses it
    for model_key, training_key in SHARED_KEYS.items():
        one, other = f"model.generation_kwargs.{model_key}", f"training.{training_key}"
        value, twin = generation.get(model_key), training.get(training_key)
        if one in composed.given and value is not None:
            chosen = other in composed.given or "training" in composed.chosen
            if value != twin and twin is not None and chosen:
                raise UserError(f"{one}={value} and {other}={twin} are the same thing with two values: give {other}")
            twin = value
        generation[model_key] = training[training_key] = value if twin is None else twin


def _allow_typed_code(run: RunSettings, composed: Composed, *, recorded: bool) -> None:
    """Allow the rewards of a run, those of a recorded one only where they were typed; so with code of a model."""

    def typed(key: str) -> bool:
        return not recorded or key in composed.given or key.partition(".")[0] in composed.chosen

    _allow(
        run.rewards if typed("rewards.functions") else None,
        run.evaluation.grader if typed("evaluation.grader") else None,
    )
    for stage in run.stages if typed("stages") else ():
        _allow(stage.run.rewards)
    for key, value in single_values(run.resolved):
        name = key.rpartition(".")[2]
        brings_code = name in _BRING_CODE or (name == "attn_implementation" and "/" in str(value))
        if brings_code and value and not typed("stages" if key.startswith("stages.") else key):
            require_allowed(f"{key}={as_typed(value)}", "runs code of others")


def _allow(rewards: RewardSettings | None, grader: Sequence[RewardSpec] | None = None) -> None:
    """A name of the library without parameters may stand for a reward of a recorded run."""
    specs = [*(rewards.functions if rewards else ()), *(grader or ())]
    allow(spec.name for spec in specs if is_user_code(spec.name) or spec.params)


# --- stages ---


def _with_stages(run: Run, composed: Composed, folders: Sequence[Path]) -> Run:
    """The run with the settings of each of its stages: the stage's own keys over the run's."""
    written = read(tuple[StageKeys, ...] | None, run.resolved["stages"], "stages") or ()
    names = [stage.name for stage in written]
    if len(set(names)) < len(names):
        raise UserError(f"stages: several are called {max(names, key=names.count)}; give each a name of its own")
    stages = []
    for stage in written:
        with stage_error_context(stage.name):
            over = _stage_overrides(stage, folders)
            keys = frozenset(key for key, _ in leaves(as_mapping(over)))
            config = OmegaConf.merge(composed.config, _shared_values(run), over, {"stages": None})
            assert isinstance(config, DictConfig)
            settings = _read_run(Composed(config, keys, frozenset()), type(run))
            stages.append(StageSettings(stage.name, stage.until, settings, keys))
    recorded = [_recorded_stage(stage, run) for stage in stages] or None
    return replace(run, stages=tuple(stages), resolved={**run.resolved, "stages": recorded})


def _shared_values(run: RunSettings) -> dict[str, Any]:
    """Limit and temperature of the run, whichever of their names they were given by."""
    generation, training = run.model.generation_kwargs, run.training.grpo
    return {
        "model": {"generation_kwargs": {key: generation[key] for key in SHARED_KEYS}},
        "training": {key: training[key] for key in SHARED_KEYS.values()},
    }


def _stage_overrides(stage: StageKeys, folders: Sequence[Path]) -> DictConfig:
    """The keys that a stage sets over those of the run."""
    sections: list[Any] = [{"model": {"generation_kwargs": escaped(stage.generation)}}] if stage.generation else []
    for group in ("rewards", "training", "dataset"):
        content = getattr(stage, group)
        if isinstance(content, str):
            sections.append(compose_section(group, content, folders))
        elif content is not None:
            sections.append({group: escaped({"functions": content} if isinstance(content, list) else content)})
    over = OmegaConf.merge({}, *sections)
    assert isinstance(over, DictConfig)
    return over


def _recorded_stage(stage: StageSettings, run: RunSettings) -> dict[str, Any]:
    """A stage as config.yaml keeps it: every key in which it differs from the run, resolved."""

    def differing(*path: str) -> dict[str, Any]:
        here, there = stage.run.resolved, run.resolved
        for part in path:
            here, there = here[part], there[part]
        return {key: value for key, value in here.items() if key not in there or there[key] != value}

    sections = {section: differing(section) for section in ("rewards", "training", "dataset")}
    sections["generation"] = differing("model", "generation_kwargs")
    until = {"until": asdict(stage.until)} if stage.until is not None else {}
    return {"name": stage.name, **{key: keys for key, keys in sections.items() if keys}, **until}
