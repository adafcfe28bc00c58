"""From the words of a command to typed settings, without importing torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import DictConfig, OmegaConf

from rlvr_vocab.config.command_table import COMMANDS, keys_without_use
from rlvr_vocab.config.compose import (
    CommandLine,
    Composed,
    as_mapping,
    compose,
    compose_section,
    is_own_primary,
    parse_command_line,
    resolve,
)
from rlvr_vocab.config.sections import GrpoFields, RewardSettings, RunSettings, StageSettings, grpo_arguments
from rlvr_vocab.config.stages import SHARED_KEYS, read_stages, recorded_stage, stage_error_context
from rlvr_vocab.config.trl_fields import trl_values
from rlvr_vocab.config.values import as_typed, keys_of, leaves, read, refuse_impossible_values, single_values
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.files import run_folder_of
from rlvr_vocab.rewards.reward import RewardSpec
from rlvr_vocab.rewards.user_code import allow, is_user_code, require_allowed
from rlvr_vocab.secrets import is_secret, variable_with

# Sections without a name: their other keys are defaults that nothing reads.
UNNAMED = {"check": ("model",), "score": ("model", "dataset")}
# Keys by which code of a model's folder or of the hub runs; so does an attention that the hub holds.
BRING_CODE = ("trust_remote_code", "use_kernels")
Run = TypeVar("Run", bound=RunSettings)


def read_settings(command: str, argv: Sequence[str]) -> Any:
    """The settings of one command, of the type that its row in COMMANDS names; nothing is looked for on disk yet.

    Args:
        command: one of COMMANDS.
        argv: the words after it, e.g. ["model=tiny", "training.max_steps=3"].

    Raises:
        UserError: an unknown key or choice, a value of the wrong type or out of its bounds.
    """
    for word in argv:  # W&B records them all, overridden ones too
        key, assigned, value = word.lstrip("+~").partition("=")
        if assigned:
            _refuse_secrets({key: value})
    line, kind = parse_command_line(command, argv), COMMANDS[command].settings
    composed = compose_command(command, line)
    if issubclass(kind, RunSettings):
        settings: Any = with_stages(read_run(composed, kind), composed, line)
        _allow_typed_code(settings, composed, recorded=line.config_file is not None)
    else:
        config = _checked(composed.config)
        for name in UNNAMED.get(command, ()):
            config[name] = config[name] if config[name]["name"] is not None else None
        settings = read(kind, config)
        _allow(getattr(settings, "rewards", None), getattr(settings, "grader", None))
    for fault in keys_without_use(settings, composed.given):
        raise UserError(fault)
    return settings


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
        brings_code = name in BRING_CODE or (name == "attn_implementation" and "/" in str(value))
        if brings_code and value and not typed("stages" if key.startswith("stages.") else key):
            require_allowed(f"{key}={as_typed(value)}", "runs code of others")


def _allow(rewards: RewardSettings | None, grader: Sequence[RewardSpec] | None = None) -> None:
    """A name of the library without parameters may stand for a reward of a recorded run."""
    specs = [*(rewards.functions if rewards else ()), *(grader or ())]
    allow(spec.name for spec in specs if is_user_code(spec.name) or spec.params)


def compose_command(command: str, line: CommandLine) -> Composed:
    """The configuration of a command; `evaluate` has the problems of the run that its (first) checkpoint belongs to.

    Single keys apply over that run's section; `dataset=…`, or a primary file of the user's own, names the problems.
    """
    composed = compose(command, line)
    if command != "evaluate" or OmegaConf.is_missing(composed.config, "checkpoint"):
        return composed
    if "dataset" in composed.chosen or is_own_primary(command, line):
        return composed
    given = as_mapping(composed.config, resolve=True)["checkpoint"]
    first = given[0] if isinstance(given, list) and given else given
    run = run_folder_of(Path(first).expanduser()) if isinstance(first, str) else None
    return composed if run is None else compose(command, line, dataset_of=run)


def read_run(composed: Composed, kind: type[Run]) -> Run:
    """The settings of a run, or those that hold more beside it, stages apart.

    `resolved` is the configuration as it reloads to the same settings.
    """
    config = _checked(composed.config)
    for model_key, training_key in SHARED_KEYS.items():
        _settle(config, model_key, training_key, composed)
    run: Run = read(kind, {key: value for key, value in config.items() if key != "stages"})
    others = {name: value for name, value in run.training.grpo.items() if name not in keys_of(GrpoFields)}
    training = replace(run.training, grpo={**run.training.grpo, **trl_values(others, keys_of(RunSettings))})
    run = replace(run, training=training)
    # Reloading a recorded configuration must not overwrite anything, or go back to a checkpoint, by itself.
    inert = {"overwrite": False, "resume": "auto", "allow_changes": []}
    grader, tasks = run.evaluation.grader, run.dataset.tasks
    resolved = {
        **config,
        **inert,
        "model": {**config["model"], "reasoning_vocab_size": run.model.reasoning_vocab_size},
        "dataset": {**config["dataset"], "tasks": None if tasks is None else [asdict(task) for task in tasks]},
        "rewards": {"functions": [asdict(function) for function in run.rewards.functions]},
        "evaluation": {**config["evaluation"], "grader": None if grader is None else [asdict(each) for each in grader]},
    }
    return replace(run, training=replace(training, grpo=grpo_arguments(run)), resolved=resolved)


def with_stages(run: Run, composed: Composed, line: CommandLine) -> Run:
    """The run with the settings of each of its stages: the stage's own keys over the run's."""
    stages = []
    for stage in read_stages(run.resolved["stages"]):
        with stage_error_context(stage.name):
            over = stage.over(lambda group, name: compose_section(group, name, line.folders))
            config = OmegaConf.merge(composed.config, over, {"stages": None})
            assert isinstance(config, DictConfig)
            of_stage = read_run(replace(composed, config=config), type(run))
            stages.append(StageSettings(stage.name, stage.until, of_stage, frozenset(key for key, _ in leaves(over))))
    recorded = [recorded_stage(stage, run) for stage in stages] or None
    return replace(run, stages=tuple(stages), resolved={**run.resolved, "stages": recorded})


def _checked(config: DictConfig) -> dict[str, Any]:
    """Plain values, no secret and no impossible number among them."""
    plain = resolve(config)
    _refuse_secrets(plain)
    refuse_impossible_values(plain)
    return plain


def _refuse_secrets(config: Mapping[str, Any]) -> None:
    """Raises UserError where a value is a secret, without saying it."""
    for key, value in single_values(config):
        if is_secret(key, value):
            held = variable_with(str(value)) or "HF_TOKEN, WANDB_API_KEY, HTTPS_PROXY, …"
            raise UserError(
                f"{key} holds a secret, which would be recorded with the configuration: leave it out and let it be "
                f"read from the environment ({held})"
            )


def _settle(config: dict[str, Any], model_key: str, training_key: str, composed: Composed) -> None:
    """model.generation_kwargs.X and training.Y are one thing: both get the value that was typed, else training's."""
    generation, training = config["model"]["generation_kwargs"], config["training"]
    if not isinstance(generation, dict) or not isinstance(training, dict):
        return  # which is refused as soon as it is read
    one, other = f"model.generation_kwargs.{model_key}", f"training.{training_key}"
    value, twin = generation.get(model_key), training.get(training_key)
    if one in composed.given and value is not None:
        chosen = other in composed.given or "training" in composed.chosen
        if value != twin and twin is not None and chosen:
            raise UserError(f"{one}={value} and {other}={twin} are the same thing with two values: give {other} alone")
        twin = value
    generation[model_key] = training[training_key] = value if twin is None else twin
