"""The words of a command -> one configuration, composed by Hydra -> its typed settings; imports no torch."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, get_origin

import yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from rlvr_vocab.config.command_settings import COMMANDS
from rlvr_vocab.config.recorded import CONF, escaped, read_recorded, read_yaml, yaml_line
from rlvr_vocab.config.sections import (
    RewardSettings,
    RunSettings,
    StageKeys,
    StageSettings,
    grpo_arguments,
    stage_error_context,
)
from rlvr_vocab.config.trl_fields import GrpoFields, refuse_what_is_not_used, trl_values
from rlvr_vocab.config.values import alternatives, as_typed, keys_of, leaves, read, single_values, unknown_key
from rlvr_vocab.data.files import names_file
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.files import run_folder_of
from rlvr_vocab.rewards.reward import RewardSpec, allow, is_user_code, require_allowed
from rlvr_vocab.secrets import is_secret, variable_with
from rlvr_vocab.text import nearest_and_all, writable

CAN_START_FROM_FILE = ("train", "quickstart", "plan")
# model.generation_kwargs.<key> -> the same thing as training.<key>
SHARED_KEYS = {"max_new_tokens": "max_completion_length", "temperature": "temperature"}
# Sections of a command that are not used unless their `name` is given.
_OPTIONAL_SECTIONS = {"check": ("model",), "score": ("model", "dataset")}
# Keys that run code of a model's folder or of the hub; so does an attention with a slash, which the hub holds.
_BRING_CODE = ("trust_remote_code", "use_kernels")
Run = TypeVar("Run", bound=RunSettings)


# --- the command line ---


@dataclass(frozen=True)
class CommandLine:
    """A command with its overrides, options apart."""

    command: str
    overrides: tuple[str, ...]
    config_file: Path | None  # of config=FILE
    trust_code: bool
    config_dir: Path | None
    show: str | None
    help: bool
    cfg: str | None
    resolve: bool
    multirun: bool
    job: int | None

    @property
    def folders(self) -> list[Path]:
        """The folders of YAML files; the first that has a file wins: a user's over ours."""
        if self.config_dir is None:
            return [CONF]
        if not self.config_dir.is_dir():
            raise UserError(f"--config-dir {self.config_dir}: no such folder")
        return [self.config_dir.resolve(), CONF]


def parse_command_line(command: str, argv: Sequence[str]) -> CommandLine:
    """The options and overrides of a command; UserError for an unknown command or option, or one without its value."""
    if command not in COMMANDS:
        raise UserError(f"unknown command {command}{nearest_and_all(command, COMMANDS)}")
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--config-dir", "-cd", type=Path)
    parser.add_argument("--show")
    parser.add_argument("--cfg", "-c", choices=["job"])
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("--multirun", "-m", action="store_true")
    parser.add_argument("--job", type=int)
    try:
        known, rest = parser.parse_known_args(list(argv))
    except argparse.ArgumentError as error:
        raise UserError(str(error)) from error
    if known.job is not None and not known.multirun:
        raise UserError(f"--job {known.job} takes one run of a sweep: add --multirun")
    if known.resolve and not known.cfg:
        raise UserError("--resolve applies the interpolations of --cfg: add --cfg job")
    for word in rest:
        if word.startswith("-"):
            raise UserError(f"unknown option {word}: keys have no dashes, write {word.lstrip('-')}")
        if writable(word) != word:
            raise UserError(f"{writable(word)}: half a surrogate pair, which UTF-8 cannot write")
    trusts = "trust_code=true" in rest
    files = [word for word in rest if word.startswith("config=") and command in CAN_START_FROM_FILE]
    words = [word for word in rest if word not in (*files, "trust_code=true")]
    if command == "quickstart" and not files:  # a recorded run holds its recipe already
        words = ["experiment=quickstart", *words]
    file = Path(files[-1].removeprefix("config=")).expanduser() if files else None
    return CommandLine(command, tuple(words), file, trusts, **vars(known))


# Keys whose text may hold a literal ${, which is no interpolation there.
_PROSE = ("prompt", "system_prompt", "dataset.system_prompt", "dataset.prompt", "problem", "contains")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"", re.DOTALL)
# A tag in a list, for which Hydra's grammar has no characters.
_BARE_TAG = re.compile(r"(?<=[\[,])(\s*)(</?[^<>\[\],'\"]+>)(?=\s*[,\]])")
_OVERRIDE = re.compile(r"(?P<prefix>\+\+|\+|~)?(?P<key>[A-Za-z_][\w.@/-]*)(?:=(?P<value>.*))?", re.DOTALL)


def _hydra_overrides(words: Sequence[str], command: str) -> tuple[list[str], set[str], set[str]]:
    """Words -> Hydra's overrides, the keys and the groups in them; text needs no quotes, rewards may be a list."""
    hydra: list[str] = []
    given: set[str] = set()
    chosen: set[str] = set()
    keys = keys_of(COMMANDS[command].settings)
    for word in words:
        match = _OVERRIDE.fullmatch(word)
        if match is None or (match["value"] is None and match["prefix"] != "~"):
            raise UserError(f"cannot read {word!r}: write key=value")
        key, value = match["key"], match["value"]
        if key == "rewards" and (value or "").startswith("["):
            key = "rewards.functions"
        if key == "dataset" and names_file(value or ""):
            key, value = "dataset.name", value or ""
            chosen.add("dataset")
            hydra.append("dataset=local")
        if key in COMMANDS[command].groups:
            chosen.add(key)
            hydra.append(f"{key}={value}")
            if key == "logging" and (value or "").startswith("["):  # of each key Hydra keeps the last file's alone
                names = re.findall(r"[\w-]+", value)
                trackers = ",".join("wandb" if name == "offline" else name for name in names)
                hydra.append(f"++logging.trackers=[{trackers}]")
                hydra += ["++logging.mode=offline"] * ("offline" in names)
            continue
        if key.startswith("hydra."):
            raise UserError(f"{key} is not used here: everything of a run goes to output_dir")
        if "training" in keys and key not in keys:
            refuse_what_is_not_used(key)
        if key not in keys and not key.startswith(("training.", "model.model_kwargs.")):  # where TRL and HF have more
            raise UserError(unknown_key(key, keys))
        given.add(key)
        hydra.append(word if match["prefix"] == "~" else f"++{key}={_in_grammar(key, value, keys)}")
    return hydra, given, chosen


def _in_grammar(key: str, value: str, keys: Mapping[str, Any]) -> str:
    """A value as Hydra's grammar reads it: text is quoted where the key takes nothing else."""
    kinds = set(alternatives(keys.get(key)))
    lists = {kind for kind in kinds if get_origin(kind) is tuple}
    text = bool(kinds & {str, Path}) and kinds - lists <= {str, Path, type(None)}
    if text and value != "null" and not (lists and value.startswith("[")) and not _QUOTED.fullmatch(value):
        return _quoted(escaped(value) if key in _PROSE else value)
    if "'" not in value and '"' not in value:
        return _BARE_TAG.sub(lambda tag: tag[1] + _quoted(tag[2]), value)
    return value


def _quoted(text: str) -> str:
    """Any text as Hydra's grammar quotes it: only quotes, and backslashes before them, need a backslash."""
    inside = re.sub(r"(\\*)'", r"\1\1\\'", text)
    return "'" + re.sub(r"(\\+)$", r"\1\1", inside) + "'"


# --- composing ---


@dataclass(frozen=True)
class Composed:
    """config: interpolations not yet resolved; given, chosen: keys and groups that the command line names."""

    config: DictConfig
    given: frozenset[str]
    chosen: frozenset[str]


def compose(line: CommandLine) -> Composed:
    """The configuration of a command; UserError for an unknown key or choice, or a file that cannot be read.

    `evaluate` has the problems of the run that its checkpoint belongs to.
    """
    hydra, given, chosen = _hydra_overrides(line.overrides, line.command)
    own = CONF / f"{line.command}.yaml"
    primary = read_yaml(own) if own.is_file() else {}
    if line.config_file is not None:
        primary |= _recorded_primary(line.config_file, chosen)
    elif line.command in CAN_START_FROM_FILE:
        primary |= read_yaml(CONF / "config.yaml")
    config = _compose_with_hydra(primary, hydra, line.folders)
    if line.command == "evaluate" and "dataset" not in chosen:
        _take_problems_of_run(config, given)
    return Composed(config, frozenset(given), frozenset(chosen))


def _take_problems_of_run(config: DictConfig, given: set[str]) -> None:
    """Put the dataset section of the checkpoint's run in place of the default one, below the keys that were typed."""
    checkpoint = as_mapping(config, resolve=True)["checkpoint"]
    run = run_folder_of(Path(checkpoint).expanduser()) if isinstance(checkpoint, str) else None
    if run is None:
        return
    typed = {key: OmegaConf.select(config, key) for key in given if key.startswith("dataset.")}
    config.dataset = read_recorded(run)["dataset"]
    for key, value in typed.items():
        OmegaConf.update(config, key, value)


def _recorded_primary(file: Path, chosen: set[str]) -> dict[str, Any]:
    """A recorded configuration as the primary one; a group chosen anew replaces its whole section."""
    if "experiment" in chosen:
        raise UserError("config=FILE holds a whole run: experiment=… cannot be put over it")
    sections = {key: value for key, value in read_recorded(file).items() if key not in chosen}
    groups = [{group: None} for group in COMMANDS["train"].groups if group != "experiment"]
    return {"defaults": ["model/_base", "dataset/_base", "training/_base", "_self_", *groups], **sections}


def _compose_with_hydra(primary: dict[str, Any], overrides: Sequence[str], folders: Sequence[Path]) -> DictConfig:
    """One composition; its errors as one line."""
    ConfigStore.instance().store(name="_primary", node=primary)
    search = ",".join(f"'file://{folder}'" for folder in folders[1:])
    try:
        with initialize_config_dir(config_dir=str(folders[0]), version_base="1.3"):
            config = hydra_compose("_primary", overrides=[f"hydra.searchpath=[{search}]", *overrides])
    except MissingConfigException as error:
        group, _, choice = (error.missing_cfg_file or "").partition("/")
        own = f"; a hub name or a file goes to {group}.name" if group in ("model", "dataset") else ""
        own = f"; functions stand in brackets, rewards=[{choice}]" if group == "rewards" else own
        choices = nearest_and_all(choice, group_choices(group, folders))
        raise UserError(f"{group}={choice}: no file {group}/{choice}{choices}{own}") from error
    except yaml.MarkedYAMLError as error:
        name = error.problem_mark.name if error.problem_mark else "a YAML file"
        raise UserError(f"{name}: {yaml_line(error)}") from error
    except (HydraException, OmegaConfBaseException, ValueError) as error:  # Python reads no number of 4,300 digits
        override = error.override if isinstance(error, OverrideParseException) else None
        message = f"cannot read {override!r}: {error}" if override else str(error)
        # On one line, with keys as they were typed.
        raise UserError(" ".join(message.replace("++", "").partition(" See https")[0].split())) from error
    OmegaConf.set_struct(config, False)  # a stage may set any field of TRL's
    return config


def group_choices(group: str, folders: Iterable[Path]) -> list[str]:
    """The files of a group, by name; those that begin with an underscore hold defaults."""
    names = {path.stem for folder in folders for path in (folder / group).glob("*.yaml")}
    return sorted(name for name in names if not name.startswith("_"))


def as_mapping(config: DictConfig, *, resolve: bool = False, complete: bool = False) -> dict[str, Any]:
    """Plain values; raises UserError for an interpolation that leads nowhere, and where `complete` for a `???`."""
    try:
        plain = OmegaConf.to_container(config, resolve=resolve, throw_on_missing=complete)
    except MissingMandatoryValue as error:
        key = error.full_key or str(error)
        raise UserError(f"{key} is missing: give it as {key}=…") from error
    except OmegaConfBaseException as error:
        raise UserError(f"{error.full_key or 'configuration'}: {' '.join(str(error).split())}") from error
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


# --- typed settings ---


def read_settings(command: str, argv: Sequence[str]) -> Any:
    """The settings of one command, as `settings_of` reads them, from its words, e.g. ["model=tiny", "seed=3"]."""
    return settings_of(parse_command_line(command, argv))


def settings_of(line: CommandLine) -> Any:
    """The settings of a command, of the type in COMMANDS; UserError for a bad value, an unknown key or a secret."""
    typed = (word.lstrip("+~").partition("=") for word in line.overrides)
    _refuse_secrets((key, value) for key, _, value in typed)  # W&B records them all, overridden ones too
    kind, composed = COMMANDS[line.command].settings, compose(line)
    if issubclass(kind, RunSettings):
        run = _with_stages(_read_run(composed, kind), composed, line.folders)
        _allow_typed_code(run, composed, recorded=line.config_file is not None)
        for key in sorted(composed.given - {"model.lora.enabled"}):
            if key.startswith("model.lora.") and not run.model.trains_adapter:
                raise UserError(f"{key} has nothing to apply to: add model.lora.enabled=true")
        return run
    config = _without_secrets(composed.config)
    for section in _OPTIONAL_SECTIONS.get(line.command, ()):
        if config[section]["name"] is None:
            unused = sorted(key for key in composed.given if key.startswith(f"{section}."))
            if unused:
                raise UserError(f"{unused[0]} has no {section} to apply to: choose one with {section}.name=…")
            config[section] = None
    settings = read(kind, config)
    _allow(getattr(settings, "rewards", None), getattr(settings, "grader", None))
    return settings


def _without_secrets(config: DictConfig) -> dict[str, Any]:
    """Plain values; raises UserError where one is a secret."""
    plain = as_mapping(config, resolve=True, complete=True)
    _refuse_secrets(single_values(plain))
    return plain


def _refuse_secrets(values: Iterable[tuple[str, Any]]) -> None:
    """Raises UserError where the value of a key is a secret, without printing it."""
    for key, value in values:
        if is_secret(key, value):
            held = variable_with(str(value)) or "HF_TOKEN, WANDB_API_KEY, HTTPS_PROXY, …"
            raise UserError(f"{key} holds a secret, which would be recorded: leave it to the environment ({held})")


def _read_run(composed: Composed, kind: type[Run]) -> Run:
    """The settings of a run, stages apart; `resolved` is the configuration as it reloads to the same settings."""
    config = _without_secrets(composed.config)
    _unify_shared_keys(config, composed)
    chooses = config["model"]["source_ids"] is not None and "model.source_ids" in composed.given
    if chooses and "model.reasoning_vocab_size" not in composed.given:
        config["model"]["reasoning_vocab_size"] = 0  # of a recipe
    run: Run = read(kind, {key: value for key, value in config.items() if key != "stages"})
    others = {name: value for name, value in run.training.grpo.items() if name not in keys_of(GrpoFields)}
    training = replace(run.training, grpo={**run.training.grpo, **trl_values(others, keys_of(RunSettings))})
    run = replace(run, training=training)
    grader, tasks = run.evaluation.grader, run.dataset.tasks
    chosen = list(run.model.source_ids) if isinstance(run.model.source_ids, tuple) else run.model.source_ids
    resolved = {
        **config,
        # A recorded configuration must not overwrite anything, or go back to a checkpoint, when it is reloaded.
        "overwrite": False,
        "resume": "auto",
        "allow_changes": [],
        "model": {
            **config["model"],
            "reasoning_vocab_size": run.model.reasoning_vocab_size,
            "source_ids": chosen,
        },
        "training": {**config["training"], "trainer": run.training.trainer},
        "dataset": {**config["dataset"], "tasks": None if tasks is None else [asdict(task) for task in tasks]},
        "rewards": {"functions": [asdict(function) for function in run.rewards.functions]},
        "evaluation": {**config["evaluation"], "grader": None if grader is None else [asdict(each) for each in grader]},
    }
    return replace(run, training=replace(training, grpo=grpo_arguments(run)), resolved=resolved)


def _unify_shared_keys(config: dict[str, Any], composed: Composed) -> None:
    """model.generation_kwargs.X and training.Y are one thing: both get the value that was typed, else training's."""
    generation, training = config["model"]["generation_kwargs"], config["training"]
    if not isinstance(generation, dict) or not isinstance(training, dict):
        return  # `read` refuses it
    for model_key, training_key in SHARED_KEYS.items():
        one, other = f"model.generation_kwargs.{model_key}", f"training.{training_key}"
        value, twin = generation.get(model_key), training.get(training_key)
        if isinstance(value, str) or isinstance(twin, str):
            continue  # `read` refuses it
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
    allow([run.training.trainer] if run.training.trainer and typed("training.trainer") else [])
    for stage in run.stages if typed("stages") else ():
        _allow(stage.run.rewards)
        allow([stage.run.training.trainer] if stage.run.training.trainer else [])
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
    generation, training = run.model.generation_kwargs, run.training.grpo
    shared = {
        "model": {"generation_kwargs": dict(generation)},
        "training": {key: training[key] for key in SHARED_KEYS.values()},
    }
    stages, recorded = [], []
    for stage in written:
        with stage_error_context(stage.name):
            over = _stage_overrides(stage, folders)
            config = OmegaConf.merge(composed.config, shared, over, {"stages": None})
            assert isinstance(config, DictConfig)
            keys = frozenset(key for key, _ in leaves(as_mapping(over)))
            settings = _read_run(Composed(config, keys, frozenset()), type(run))
            stages.append(StageSettings(stage.name, stage.until, settings, keys))
            recorded.append(_recorded_stage(stages[-1], run))
    return replace(run, stages=tuple(stages), resolved={**run.resolved, "stages": recorded or None})


def _stage_overrides(stage: StageKeys, folders: Sequence[Path]) -> DictConfig:
    """The keys that a stage sets over those of the run."""
    sections: list[Any] = [{"model": {"generation_kwargs": escaped(stage.generation)}}] if stage.generation else []
    for group in ("rewards", "training", "dataset"):
        content = getattr(stage, group)
        if isinstance(content, str):
            base = ["dataset/_base"] if group == "dataset" else []
            sections.append(_compose_with_hydra({"defaults": [*base, {group: content}]}, [], folders))
        elif content is not None:
            sections.append({group: escaped({"functions": content} if isinstance(content, list) else content)})
    over = OmegaConf.merge({}, *sections)
    assert isinstance(over, DictConfig)
    return over


def _recorded_stage(stage: StageSettings, run: RunSettings) -> dict[str, Any]:
    """A stage as config.yaml keeps it: every key in which it differs from the run, resolved."""
    here, there = stage.run.resolved, run.resolved
    sections = {section: (here[section], there[section]) for section in ("rewards", "training", "dataset")}
    sections["generation"] = here["model"]["generation_kwargs"], there["model"]["generation_kwargs"]
    recorded: dict[str, Any] = {"name": stage.name}
    for section, (own, of_run) in sections.items():
        differing = {key: value for key, value in own.items() if key not in of_run or of_run[key] != value}
        recorded |= {section: differing} if differing else {}
    return recorded if stage.until is None else {**recorded, "until": asdict(stage.until)}
