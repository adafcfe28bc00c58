"""A command line -> one configuration, composed by Hydra -> its typed settings; imports no torch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from rlvr_vocab.config.command_line import CommandLine, hydra_overrides, parse_command_line
from rlvr_vocab.config.command_settings import COMMANDS, PlanSettings, ScoreSettings
from rlvr_vocab.config.recorded import CODE, CONF, ConfigFile, escaped, read_recorded, read_yaml, yaml_line
from rlvr_vocab.config.sections import RunSettings, StageKeys, StageSettings, grpo_arguments, stage_error_context
from rlvr_vocab.config.trl_fields import GrpoFields, field_types, trl_values
from rlvr_vocab.config.values import as_typed, keys_of, leaves, read, single_values, unknown_keys
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.files import run_folder_of
from rlvr_vocab.rewards.reward import RewardSpec, allow, is_user_code, require_allowed
from rlvr_vocab.secrets import is_secret, variable_with
from rlvr_vocab.text import nearest_and_all

OF_A_RUN = ("train", "quickstart", "plan")  # commands with all keys of a run
# model.generation_kwargs.<key> -> the same thing as training.<key>
SHARED_KEYS = {"max_new_tokens": "max_completion_length", "temperature": "temperature"}
# Sections of a command that are not used unless their `name` is given.
_OPTIONAL_SECTIONS = {"check": ("model",), "score": ("model", "dataset")}
# Keys whose values name code of users.
_NAME_CODE = ("tools", "environment", "rewards.functions", "training.trainer", "evaluation.grader", "grader")
# Keys that run code of a model's folder or of the hub; so does an attention with a slash, which the hub holds.
_BRING_CODE = ("trust_remote_code", "use_kernels")
# Sections that take further keys, as `training` takes TRL's.
_OPEN = ("model.model_kwargs.", "environment.params.")
# The keys of a section that say which model, problems, rewards or tracker: a typed group wins over config=FILE in them.
_WHICH = {
    "model": ("name", "tiny"),
    "dataset": ("name", "subset", "split", "eval_split", "columns", "prompt", "answer_format", "generator", "tasks"),
    "rewards": ("functions",),
    "logging": ("enabled", "mode", "trackers"),
}
# Keys that hold problems out: `evaluate` takes what they hold out.
_DIVIDE = frozenset({"dataset.eval_fraction", "dataset.eval_split", "dataset.max_eval_samples"})
Run = TypeVar("Run", bound=RunSettings)
Acting = TypeVar("Acting", bound=RunSettings | ScoreSettings)


@dataclass(frozen=True)
class Composed:
    """config: interpolations not yet resolved; given, chosen: keys and groups of the command line and the user's file.

    recorded: config=FILE is the configuration of a run, in which no key counts as given.
    """

    config: DictConfig
    given: frozenset[str]
    chosen: frozenset[str]
    recorded: bool = False

    def trusts(self, key: str) -> bool:
        """Whether the code that a key names is the user's choice."""
        typed = key in self.given or f"{key}.name" in self.given or key.partition(".")[0] in self.chosen
        return typed or not self.recorded


def compose(line: CommandLine) -> Composed:
    """The configuration of a command; UserError for an unknown key or choice, or a file that cannot be read.

    The words that were typed win over config=FILE, the file over the files of groups and over the defaults. `evaluate`
    has the problems of the run that its checkpoint belongs to.
    """
    file, command = line.config_file, line.command
    typed = line.typed | ({"dataset", "model"} if "completions" in line.typed else set())  # it is all that is scored
    words = [
        word for word in (file.words if file else ()) if word.partition("=")[0] in {*COMMANDS[command].groups} - typed
    ]
    hydra, given, chosen = hydra_overrides([*words, *line.overrides], command)
    _refuse_unknown_keys(sorted(given), file, command)
    own = CONF / f"{command}.yaml"
    primary = read_yaml(own) if own.is_file() else {}
    primary |= read_yaml(CONF / "config.yaml") if command in OF_A_RUN else {}
    sections = {} if file is None else _sections_of(file, command, typed)
    recorded = file is not None and file.recorded
    if recorded:
        if "experiment" in chosen:
            raise UserError("config=FILE holds a whole run: experiment=… cannot be put over it")
        entries = [(each, isinstance(each, dict) and each.keys() & sections.keys()) for each in primary["defaults"]]
        primary["defaults"] = [dict.fromkeys(each) if replaced else each for each, replaced in entries]
    else:
        given |= {key for key, _ in leaves(sections)}
    if sections:
        ConfigStore.instance().store(name="_config_file", node=sections, package="_global_")
        primary["defaults"] = [*primary["defaults"], "_config_file"]
    config = _compose_with_hydra(primary, hydra, line.folders)
    if command == "evaluate" and "dataset" not in chosen and not (recorded and "dataset" in sections):
        _take_problems_of_run(config, given)
    if command == "evaluate" and config.split is None and not _DIVIDE.isdisjoint(given):
        config.split = "eval"
    return Composed(config, frozenset(given), frozenset(chosen), recorded)


def _refuse_unknown_keys(typed: Sequence[str], file: ConfigFile | None, command: str) -> None:
    """Raises UserError that names all keys, typed or of config=FILE, that neither the command nor a run has."""
    keys = keys_of(COMMANDS[command].settings)
    places: list[tuple[str, Sequence[str], Mapping[str, Any]]] = [("", typed, keys)]
    if file is not None:
        in_file = [key for key, _ in leaves(file.sections)]
        places.append((f"{file.path}: ", in_file, {**keys_of(RunSettings), **keys}))
    if all(key in known or key.startswith(("training.", *_OPEN)) for _, names, known in places for key in names):
        return
    lines = []
    for where, names, known in places:
        if "training" in known and any(name.startswith("training.") for name in names):
            known = {**known, **field_types()}  # which imports TRL
        unknown = [key for key in names if key not in known and not key.startswith(_OPEN)]
        lines += [f"{where}{unknown_keys(unknown, known)}"] if unknown else []
    raise UserError(" ".join(lines))


def _sections_of(file: ConfigFile, command: str, typed: Set[str]) -> dict[str, Any]:
    """The keys of config=FILE that a command has and no typed group replaces."""
    keys, sections = keys_of(COMMANDS[command].settings), file.sections
    if "grader" in keys:  # of `evaluate`, and of the section evaluation in a run
        sections = {**(sections.get("evaluation") or {}), **sections}
    sections = {name: value for name, value in sections.items() if name in keys}
    if file.recorded or "completions" in typed:  # it has all keys of a section
        return {name: value for name, value in sections.items() if name not in typed}
    for name in typed & _WHICH.keys() & sections.keys():
        sections[name] = {key: value for key, value in sections[name].items() if key not in _WHICH[name]}
    return sections


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


def read_settings(command: str, argv: Sequence[str]) -> Any:
    """The settings of one command, as `settings_of` reads them, from its words, e.g. ["model=tiny", "seed=3"]."""
    return settings_of(parse_command_line(command, argv))


def settings_of(line: CommandLine) -> Any:
    """The settings of a command, of the type in COMMANDS; UserError for a bad value, an unknown key or a secret."""
    typed = (word.lstrip("+~").partition("=") for word in line.overrides)
    _refuse_secrets((key, value) for key, _, value in typed)  # W&B records them all, overridden ones too
    try:
        return _settings(line, compose(line))
    except UserError as error:
        file, message = line.config_file, str(error)
        if file is None or file.recorded or f"{file.path}: " in message:
            raise
        if not any(key in message for key, _ in leaves(file.sections) if key not in line.typed):
            raise
        raise UserError(f"{file.path}: {message}") from error  # the user has the key there, and did not type it


def _settings(line: CommandLine, composed: Composed) -> Any:
    kind = COMMANDS[line.command].settings
    if issubclass(kind, RunSettings):
        run = _with_stages(_read_run(composed, kind), composed, line.folders)
        _allow_typed_code(run, composed)
        for stage in run.stages if composed.trusts("stages") else ():
            allow(_code_names(stage.run, stage.keys))
        _refuse_untyped_code(run.resolved, composed)
        for key in sorted(composed.given - {"model.lora.enabled"}):
            if key.startswith("model.lora.") and not run.model.trains_adapter:
                raise UserError(f"{key} has nothing to apply to: add model.lora.enabled=true")
        code = _code_of(run)
        return replace(run, resolved={**run.resolved, CODE: code}) if code else run
    config = _without_secrets(composed.config)
    for section in _OPTIONAL_SECTIONS.get(line.command, ()):
        if config[section]["name"] is None:
            used = {f"{section}.name", *(["dataset.decimal"] if "completions" in line.typed else [])}
            unused = sorted(key for key in line.typed - used if key.startswith(f"{section}."))
            if unused:
                raise UserError(f"{unused[0]} has no {section} to apply to: choose one with {section}.name=…")
            config[section] = None
    settings = read(kind, config)
    _refuse_untyped_code(config, composed)
    _allow_typed_code(settings, composed)
    return _with_reward_of_environment(settings, composed) if isinstance(settings, ScoreSettings) else settings


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
    run = run if isinstance(run, PlanSettings) else _with_reward_of_environment(run, composed)
    grader, tasks = run.evaluation.grader, run.dataset.tasks
    chosen = list(run.model.source_ids) if isinstance(run.model.source_ids, tuple) else run.model.source_ids
    resolved = {
        **config,
        # A recorded configuration must not overwrite anything, or go back to a checkpoint, when it is reloaded.
        "overwrite": False,
        "resume": "auto",
        "allow_changes": [],
        "model": {**config["model"], "reasoning_vocab_size": run.model.reasoning_vocab_size, "source_ids": chosen},
        "training": {**config["training"], "trainer": run.training.trainer},
        "dataset": {**config["dataset"], "tasks": None if tasks is None else [asdict(task) for task in tasks]},
        "tools": list(run.tools),
        "environment": None if run.environment is None else asdict(run.environment),
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


def _allow_typed_code(settings: Any, composed: Composed) -> None:
    """Allow the code that the keys of a command name; of a recorded run only where they were typed."""
    kind: type = type(settings)
    allow(_code_names(settings, [key for key in keys_of(kind) if composed.trusts(key)]))


def _code_names(settings: Any, keys: Iterable[str]) -> Iterator[str]:
    """The names of code in the values of keys; those of the library that `allow` need not allow are left out."""
    for key in (key for key in keys if key in _NAME_CODE):
        value = attrgetter(key)(settings)
        for each in value if isinstance(value, tuple) else (value,):
            name: Any = getattr(each, "name", each)
            # A name of the library without parameters may stand for a reward of a recorded run.
            if each is not None and (is_user_code(name) or getattr(each, "params", None)):
                yield name


def _code_of(run: RunSettings) -> dict[str, str]:
    """The files with code of the user's that a run names, each with the first digits of its SHA-256."""
    runs = (run, *(stage.run for stage in run.stages))
    names = (name for each in runs for name in _code_names(each, keys_of(RunSettings)))
    files = filter(Path.is_file, {Path(name.rpartition(":")[0]) for name in names})
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest()[:12] for file in sorted(files)}


def _with_reward_of_environment(settings: Acting, composed: Composed) -> Acting:
    """With `get_reward` of the environment as the last reward, where it is not among them."""
    from rlvr_vocab.rewards.build import has_reward, load_attribute  # with the library, which few commands need

    environment, functions = settings.environment, settings.rewards.functions
    if environment is None or not composed.trusts("environment"):
        return settings
    allow([name := environment.name])
    if any(each.name == name for each in functions) or not has_reward(load_attribute(name, "environment")):
        return settings
    return replace(settings, rewards=replace(settings.rewards, functions=(*functions, RewardSpec(name))))


def _refuse_untyped_code(config: Mapping[str, Any], composed: Composed) -> None:
    """Raises UserError where a recorded run has code of a model run and the command line does not."""
    for key, value in single_values(config):
        name = key.rpartition(".")[2]
        brings_code = name in _BRING_CODE or (name == "attn_implementation" and "/" in str(value))
        if brings_code and value and not composed.trusts("stages" if key.startswith("stages.") else key):
            require_allowed(f"{key}={as_typed(value)}", "runs code of others")


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
            settings = _read_run(Composed(config, keys, frozenset(), composed.recorded), type(run))
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
