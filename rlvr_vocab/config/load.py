"""load_settings: from command-line words to checked, typed settings, without importing torch."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, overload

from rlvr_vocab.checks.commands import (
    check_compare,
    check_doctor,
    check_generate,
    check_merge,
    check_report,
    check_samples,
    read_compare,
    read_report,
)
from rlvr_vocab.checks.run import check_check, check_evaluate, check_expand, check_run
from rlvr_vocab.checks.score import check_score, read_score
from rlvr_vocab.config.command_sections import CompareSettings, DoctorSettings, ReportSettings, SamplesSettings
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
from rlvr_vocab.config.overrides import COMMAND_SETTINGS
from rlvr_vocab.config.resolution import resolved_config
from rlvr_vocab.config.secrets import refuse_secret_words
from rlvr_vocab.config.sections import (
    CheckSettings,
    ColumnMap,
    DatasetSettings,
    EvaluateSettings,
    ExpandSettings,
    GenerateSettings,
    GeneratorSettings,
    LoggingSettings,
    MergeSettings,
    ModelSettings,
    RewardSettings,
    RunSettings,
    ScoreSettings,
    SolvedTurn,
    StageSettings,
    TinyShape,
    TrainingSettings,
    UntilSettings,
    WarmupSettings,
    read_training,
)
from rlvr_vocab.config.stages import naming_the_stage, read_stages, recorded_stage
from rlvr_vocab.config.values import read, read_section
from rlvr_vocab.errors import UserError
from rlvr_vocab.runs.recorded_run import run_folder_of

__all__ = [
    "CheckSettings",
    "ColumnMap",
    "CompareSettings",
    "DatasetSettings",
    "DoctorSettings",
    "EvaluateSettings",
    "ExpandSettings",
    "GenerateSettings",
    "GeneratorSettings",
    "LoggingSettings",
    "MergeSettings",
    "ModelSettings",
    "ReportSettings",
    "RewardSettings",
    "RunSettings",
    "SamplesSettings",
    "ScoreSettings",
    "SolvedTurn",
    "StageSettings",
    "TinyShape",
    "TrainingSettings",
    "UntilSettings",
    "WarmupSettings",
    "build_settings",
    "load_settings",
]

Settings = (
    RunSettings
    | CheckSettings
    | ScoreSettings
    | EvaluateSettings
    | GenerateSettings
    | MergeSettings
    | ExpandSettings
    | SamplesSettings
    | DoctorSettings
    | ReportSettings
    | CompareSettings
)


CHECKS: dict[type, Callable[[Any], None]] = {
    RunSettings: check_run,
    CheckSettings: check_check,
    ScoreSettings: check_score,
    EvaluateSettings: check_evaluate,
    GenerateSettings: check_generate,
    MergeSettings: check_merge,
    ExpandSettings: check_expand,
    SamplesSettings: check_samples,
    DoctorSettings: check_doctor,
    ReportSettings: check_report,
    CompareSettings: check_compare,
}


@overload
def load_settings(command: Literal["train", "quickstart"], argv: Sequence[str]) -> RunSettings: ...
@overload
def load_settings(command: Literal["check"], argv: Sequence[str]) -> CheckSettings: ...
@overload
def load_settings(command: Literal["score"], argv: Sequence[str]) -> ScoreSettings: ...
@overload
def load_settings(command: Literal["evaluate"], argv: Sequence[str]) -> EvaluateSettings: ...
@overload
def load_settings(command: Literal["generate"], argv: Sequence[str]) -> GenerateSettings: ...
@overload
def load_settings(command: Literal["merge"], argv: Sequence[str]) -> MergeSettings: ...
@overload
def load_settings(command: Literal["expand"], argv: Sequence[str]) -> ExpandSettings: ...
@overload
def load_settings(command: Literal["samples"], argv: Sequence[str]) -> SamplesSettings: ...
@overload
def load_settings(command: Literal["doctor"], argv: Sequence[str]) -> DoctorSettings: ...
@overload
def load_settings(command: Literal["report"], argv: Sequence[str]) -> ReportSettings: ...
@overload
def load_settings(command: Literal["compare"], argv: Sequence[str]) -> CompareSettings: ...
@overload
def load_settings(command: str, argv: Sequence[str]) -> Settings: ...
def load_settings(command: str, argv: Sequence[str]) -> Settings:
    """The checked settings of one command.

    Args:
        command: One of COMMANDS.
        argv: the words after it, e.g. ["model=tiny", "training.max_steps=3"].

    Raises:
        UserError: whatever is wrong with them, in one line.
    """
    settings = build_settings(command, argv)
    CHECKS[type(settings)](settings)
    return settings


def build_settings(command: str, argv: Sequence[str]) -> Settings:
    """Typed settings: keys and types are right, values are not yet checked against each other."""
    refuse_secret_words(argv)
    line = parse_command_line(command, with_recipe(command, argv))
    if command == "evaluate":
        return read_evaluate(resolved_config(compose_evaluate(line)))
    composed = compose(command, line)
    config = resolved_config(composed)
    if command == "check":
        return read_check(config, composed.given)
    if command == "score":
        return read_score(config, composed.given)
    if command == "report":
        return read_report(config)
    if command == "compare":
        return read_compare(config)
    if command not in ("train", "quickstart"):
        settings: Settings = read_section(COMMAND_SETTINGS[command], config)
        return settings
    run = read_run(config)
    require_that_typed_keys_apply(run.model, composed.given)
    return with_stages(run, command, line)


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


def compose_evaluate(line: CommandLine) -> Composed:
    """The problems are those of the run that the (first) checkpoint belongs to; single keys apply over its section.

    `dataset=…`, or a primary file of the user's own, names the problems itself.
    """
    composed = compose("evaluate", line)
    chosen = "dataset" in composed.chosen or primary_file("evaluate", line, config_folders(line)).parent != CONF
    run = None if chosen else run_folder_of(read_checkpoints(resolve(composed))[0])
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
    # Reloading a recorded configuration must not overwrite anything, or go back to a checkpoint, by itself.
    inert = {"overwrite": False, "resume": "auto", "allow_changes": []}
    resolved = {**config, **inert, "rewards": {"functions": functions}}
    return read_section(RunSettings, config, ready={**ready, "resolved": resolved, "stages": ()})


def with_stages(settings: RunSettings, command: str, line: CommandLine) -> RunSettings:
    """The run with the settings of each of its stages: what was typed, and the stage's own keys after it."""
    stages = []
    for stage in read_stages(settings.resolved["stages"]):
        with naming_the_stage(stage.name):
            words = stage.all_words(lambda group, name: compose_section(group, name, config_folders(line)))
            composed = compose(command, replace(line, overrides=(*line.overrides, *words)))
            of_stage = read_run({**resolved_config(composed), "stages": None})
            stages.append(StageSettings(stage.name, stage.until, of_stage))
    recorded = [recorded_stage(stage, settings) for stage in stages] or None
    return replace(settings, stages=tuple(stages), resolved={**settings.resolved, "stages": recorded})


def read_check(config: dict[str, Any], given: frozenset[str]) -> CheckSettings:
    """Without a name the model's other keys are defaults that nothing reads; given all the same, they are refused."""
    named = config["model"]["name"] is not None
    for key in sorted(key for key in given if key.startswith("model.") and not named):
        raise UserError(f"{key} has no model to apply to: choose one with model=… or model.name=…")
    model = read(ModelSettings, config["model"], "model") if named else None
    against = [config["against"]] if isinstance(config["against"], str) else config["against"] or []
    names = read(tuple[str, ...], against, "against")
    return read_section(CheckSettings, config, ready={"model": model, "against": names})


def read_evaluate(config: dict[str, Any]) -> EvaluateSettings:
    dataset = read(DatasetSettings, config["dataset"], "dataset")
    checkpoints = read_checkpoints(config)
    one = isinstance(config["checkpoint"], str)
    default = checkpoints[0] / "evaluation" / Path(dataset.name).stem if one else None
    out = read(Path, config["out"], "out") if config["out"] is not None else default
    ready = {"out": out, "dataset": dataset, "checkpoint": checkpoints[0] if one else checkpoints}
    return read_section(EvaluateSettings, config, ready=ready)


def read_checkpoints(config: dict[str, Any]) -> tuple[Path, ...]:
    """`checkpoint`, which is one folder or a list of them."""
    given = config["checkpoint"]
    checkpoints: tuple[Path, ...] = read(tuple[Path, ...], [given] if isinstance(given, str) else given, "checkpoint")
    if not checkpoints:
        raise UserError("checkpoint=[]: give at least one")
    return checkpoints
