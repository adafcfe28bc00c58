"""load_settings: from command-line words to checked, typed settings, without importing torch."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, overload

from rlvr_vocab.exp.checks import check_evaluate, check_expand, check_generate, check_run
from rlvr_vocab.exp.command_line import CommandLine, parse_command_line
from rlvr_vocab.exp.compose import CONF, Composed, compose, config_folders, primary_file, resolve
from rlvr_vocab.exp.from_config import read, read_section
from rlvr_vocab.exp.recorded_run import run_folder_of
from rlvr_vocab.exp.resolution import resolved_config
from rlvr_vocab.exp.training_section import read_training
from rlvr_vocab.exp.typed_sections import (
    ColumnMap,
    DatasetSettings,
    EvaluateSettings,
    ExpandSettings,
    GenerateSettings,
    GeneratorSettings,
    LoggingSettings,
    ModelSettings,
    RewardFunctionSettings,
    RewardSettings,
    RunSettings,
    SolvedTurn,
    TinyShape,
    TrainingSettings,
    WarmupSettings,
)

__all__ = [
    "ColumnMap",
    "DatasetSettings",
    "EvaluateSettings",
    "ExpandSettings",
    "GenerateSettings",
    "GeneratorSettings",
    "LoggingSettings",
    "ModelSettings",
    "RewardFunctionSettings",
    "RewardSettings",
    "RunSettings",
    "SolvedTurn",
    "TinyShape",
    "TrainingSettings",
    "WarmupSettings",
    "build_settings",
    "load_settings",
]

Settings = RunSettings | EvaluateSettings | GenerateSettings | ExpandSettings


@overload
def load_settings(command: Literal["train", "quickstart"], argv: Sequence[str]) -> RunSettings: ...
@overload
def load_settings(command: Literal["evaluate"], argv: Sequence[str]) -> EvaluateSettings: ...
@overload
def load_settings(command: Literal["generate"], argv: Sequence[str]) -> GenerateSettings: ...
@overload
def load_settings(command: Literal["expand"], argv: Sequence[str]) -> ExpandSettings: ...
@overload
def load_settings(command: str, argv: Sequence[str]) -> Settings: ...
def load_settings(command: str, argv: Sequence[str]) -> Settings:
    """The checked settings of one command.

    Args:
        command: train, quickstart, evaluate, generate or expand.
        argv: the words after it, e.g. ["model=tiny", "training.max_steps=3"].

    Raises:
        UserError: whatever is wrong with them, in one line.
    """
    settings = build_settings(command, argv)
    if isinstance(settings, RunSettings):
        check_run(settings)
    elif isinstance(settings, EvaluateSettings):
        check_evaluate(settings)
    elif isinstance(settings, GenerateSettings):
        check_generate(settings)
    else:
        check_expand(settings)
    return settings


def build_settings(command: str, argv: Sequence[str]) -> Settings:
    """Typed settings: keys and types are right, values are not yet checked against each other."""
    line = parse_command_line(command, with_recipe(command, argv))
    if command == "evaluate":
        return read_evaluate(resolved_config(compose_evaluate(line)))
    config = resolved_config(compose(command, line))
    if command == "generate":
        return read_section(GenerateSettings, config)
    if command == "expand":
        return read_section(ExpandSettings, config)
    return read_run(config)


def compose_evaluate(line: CommandLine) -> Composed:
    """The problems are those of the run that the checkpoint belongs to; single keys apply over its dataset section.

    `dataset=…`, or a primary file of the user's own, names the problems itself.
    """
    composed = compose("evaluate", line)
    chosen = "dataset" in composed.chosen or primary_file("evaluate", line, config_folders(line)).parent != CONF
    run = None if chosen else run_folder_of(read(Path, resolve(composed)["checkpoint"], "checkpoint"))
    return composed if run is None else compose("evaluate", line, dataset_of=run)


def with_recipe(command: str, argv: Sequence[str]) -> list[str]:
    """quickstart is train with its recipe in front; a recorded run holds its recipe already."""
    recorded = any(word.startswith("config=") for word in argv)
    return ["experiment=quickstart", *argv] if command == "quickstart" and not recorded else list(argv)


def read_run(config: dict[str, Any]) -> RunSettings:
    rewards = read(RewardSettings, config["rewards"], "rewards")
    model = read(ModelSettings, config["model"], "model")
    exp_name, seed = read(str, config["exp_name"], "exp_name"), read(int, config["seed"], "seed")
    training = read_training(config["training"], model, rewards, exp_name, seed)
    ready = {"rewards": rewards, "model": model, "training": training}
    functions = [asdict(function) for function in rewards.functions]
    # Reloading a recorded configuration must not overwrite anything by itself.
    resolved = {**config, "overwrite": False, "rewards": {"functions": functions}}
    return read_section(RunSettings, config, ready={**ready, "resolved": resolved})


def read_evaluate(config: dict[str, Any]) -> EvaluateSettings:
    dataset = read(DatasetSettings, config["dataset"], "dataset")
    checkpoint = read(Path, config["checkpoint"], "checkpoint")
    default = checkpoint / "evaluation" / Path(dataset.name).stem
    out = read(Path, config["out"], "out") if config["out"] is not None else default
    return read_section(EvaluateSettings, config, ready={"out": out, "dataset": dataset})
