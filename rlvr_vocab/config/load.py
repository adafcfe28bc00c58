"""From the words of a command to typed settings, without importing torch."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeVar

from omegaconf import OmegaConf

from rlvr_vocab.config.command_sections import read_checkpoints
from rlvr_vocab.config.command_table import COMMANDS
from rlvr_vocab.config.compose import (
    CONF,
    CommandLine,
    Composed,
    compose,
    compose_section,
    config_folders,
    parse_command_line,
    primary_file,
    resolve,
)
from rlvr_vocab.config.resolution import resolved_config
from rlvr_vocab.config.secrets import refuse_secret_words
from rlvr_vocab.config.sections import ModelSettings, RewardSettings, RunSettings, StageSettings, read_training
from rlvr_vocab.config.stages import naming_the_stage, read_stages, recorded_stage
from rlvr_vocab.config.values import as_typed, read, read_section, single_values
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.files import run_folder_of
from rlvr_vocab.rewards.reward import RewardSpec
from rlvr_vocab.rewards.user_code import allow, is_user_code, require_allowed

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
    refuse_secret_words(argv)
    line = parse_command_line(command, with_recipe(command, argv))
    composed = compose_command(command, line)
    config = resolved_config(composed)
    if not issubclass(COMMANDS[command].settings, RunSettings):
        settings = COMMANDS[command].read_settings(config, composed.given)
        _allow(getattr(settings, "rewards", None), getattr(settings, "grader", None))
        return settings
    section: type[RunSettings] = COMMANDS[command].settings
    run = read_run(config, section)
    require_that_typed_keys_apply(run.model, composed.given)
    run = with_stages(run, command, line)
    _allow_typed_code(run, composed)
    return run


def _allow_typed_code(run: RunSettings, composed: Composed) -> None:
    """Allow the rewards of a run, those of a recorded one only where they were typed; so with code of a model."""

    def typed(key: str) -> bool:
        return not composed.recorded or key in composed.given or key.partition(".")[0] in composed.chosen

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


def require_that_typed_keys_apply(model: ModelSettings, given: Collection[str]) -> None:
    """Settings of an adapter, or of Unsloth, that are typed where there is neither would be read by nothing."""
    applies = {
        "model.lora.": (model.trains_adapter, "model.lora.enabled=true"),
        "model.unsloth.": (model.backend == "unsloth", "model.backend=unsloth"),
    }
    for key in sorted(given):
        for prefix, (on, switch) in applies.items():
            if key.startswith(prefix) and key != "model.lora.enabled" and not on:
                raise UserError(f"{key} has nothing to apply to: add {switch}")


def compose_command(command: str, line: CommandLine) -> Composed:
    """The configuration of a command, `evaluate` with the problems of its checkpoint's run."""
    return compose_evaluate(line) if command == "evaluate" else compose(command, line)


def compose_evaluate(line: CommandLine) -> Composed:
    """The problems are those of the run that the (first) checkpoint belongs to; single keys apply over its section.

    `dataset=…`, or a primary file of the user's own, names the problems itself.
    """
    composed = compose("evaluate", line)
    chosen = "dataset" in composed.chosen or primary_file("evaluate", line, config_folders(line)).parent != CONF
    if OmegaConf.is_missing(composed.config, "checkpoint"):
        return composed
    run = None if chosen else run_folder_of(read_checkpoints(resolve(composed))[0])
    return composed if run is None else compose("evaluate", line, dataset_of=run)


def with_recipe(command: str, argv: Sequence[str]) -> list[str]:
    """quickstart is train with its recipe in front; a recorded run holds its recipe already."""
    recorded = any(word.startswith("config=") for word in argv)
    return ["experiment=quickstart", *argv] if command == "quickstart" and not recorded else list(argv)


def read_run(config: dict[str, Any], section: type[Run]) -> Run:
    """The settings of a run, or those that hold more beside it."""
    rewards = read(RewardSettings, config["rewards"], "rewards")
    model = read(ModelSettings, config["model"], "model")
    exp_name, seed = read(str, config["exp_name"], "exp_name"), read(int, config["seed"], "seed")
    training = read_training(config["training"], model, rewards, exp_name, seed)
    ready = {"rewards": rewards, "model": model, "training": training}
    functions = [asdict(function) for function in rewards.functions]
    # Reloading a recorded configuration must not overwrite anything, or go back to a checkpoint, by itself.
    inert = {"overwrite": False, "resume": "auto", "allow_changes": []}
    resolved = {**config, **inert, "rewards": {"functions": functions}}
    return read_section(section, config, ready={**ready, "resolved": resolved, "stages": ()})


def with_stages(settings: Run, command: str, line: CommandLine) -> Run:
    """The run with the settings of each of its stages: what was typed, and the stage's own keys after it."""
    stages = []
    for stage in read_stages(settings.resolved["stages"]):
        with naming_the_stage(stage.name):
            words = stage.all_words(lambda group, name: compose_section(group, name, config_folders(line)))
            composed = compose(command, replace(line, overrides=(*line.overrides, *words)))
            of_stage = read_run({**resolved_config(composed), "stages": None}, type(settings))
            keys = frozenset(word.partition("=")[0] for word in words)
            stages.append(StageSettings(stage.name, stage.until, of_stage, keys))
    recorded = [recorded_stage(stage, settings) for stage in stages] or None
    return replace(settings, stages=tuple(stages), resolved={**settings.resolved, "stages": recorded})
