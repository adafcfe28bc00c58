"""Composes the configuration with Hydra and checks every key; imports no torch."""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from rlvr_vocab.config.command_table import COMMANDS
from rlvr_vocab.config.overrides import (
    dotted_keys,
    first_lines,
    group_choices,
    group_override,
    known_keys,
    translate,
)
from rlvr_vocab.config.recorded import read_recorded
from rlvr_vocab.data.reasoning_gym.tasks import REASONING_GYM
from rlvr_vocab.errors import UserError
from rlvr_vocab.nearest import did_you_mean, nearest_and_all

SWEEP_OPTIONS = ("--multirun", "-m", "--job")
OPTIONS = ("--config-dir", "--config-name", "--show", "--cfg", "--resolve", "--help", *SWEEP_OPTIONS)
CAN_START_FROM_FILE = ("train", "quickstart", "plan")


@dataclass(frozen=True)
class CommandLine:
    overrides: tuple[str, ...] = ()
    config_dir: Path | None = None
    config_name: str | None = None
    config_file: Path | None = None
    show: str | None = None
    help: bool = False
    cfg: bool = False
    resolve: bool = False
    multirun: bool = False
    job: int | None = None
    trust_code: bool = False


class OneLineParser(argparse.ArgumentParser):
    """argparse that raises UserError instead of printing its usage."""

    def error(self, message: str) -> NoReturn:
        raise UserError(message)


def parse_command_line(command: str, argv: Sequence[str]) -> CommandLine:
    """Splits the words of one command.

    Raises:
        UserError: for an option that does not exist, or one without its value.
    """
    parser = OneLineParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--config-dir", "-cd", type=Path)
    parser.add_argument("--config-name", "-cn")
    parser.add_argument("--show")
    parser.add_argument("--cfg", "-c", choices=["job"])
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("--multirun", "-m", action="store_true")
    parser.add_argument("--job", type=int)
    known, rest = parser.parse_known_args(list(argv))
    for word in rest:
        if word.startswith("-"):
            raise UserError(unknown_option(word))
    for option, given, other, needed in (
        ("--resolve", known.resolve, "--cfg job", known.cfg),
        ("--job", known.job is not None, "--multirun", known.multirun),
    ):
        if given and not needed:
            raise UserError(f"{option} goes with {other}")
    config_file = None
    if command in CAN_START_FROM_FILE:
        files = [word for word in rest if word.startswith("config=")]
        rest = [word for word in rest if not word.startswith("config=")]
        config_file = Path(files[-1].removeprefix("config=")).expanduser() if files else None
    trust = [word.partition("=")[2] for word in rest if word.startswith("trust_code=")]
    if not {"true", "false"}.issuperset(trust):
        raise UserError(f"trust_code={trust[-1]}: must be true or false")
    rest = [word for word in rest if not word.startswith("trust_code=")]
    return CommandLine(
        overrides=tuple(rest),
        config_dir=known.config_dir,
        config_name=known.config_name,
        config_file=config_file,
        show=known.show,
        help=known.help,
        cfg=known.cfg is not None,
        resolve=known.resolve,
        multirun=known.multirun,
        job=known.job,
        trust_code=trust[-1:] == ["true"],
    )


def unknown_option(word: str) -> str:
    bare = word.lstrip("-")
    if "=" in bare:
        return f"unknown option {word}: keys have no dashes, write {bare}"
    return f"unknown option {word}{did_you_mean(word, OPTIONS)}"


CONF = Path(__file__).resolve().parents[1] / "exp" / "conf"
PRIMARY = "_primary"


@dataclass(frozen=True)
class Composed:
    """config: interpolations not yet resolved; given, chosen: keys and groups that the command line names;
    recorded: whether it started from the config.yaml of an earlier run."""

    config: DictConfig
    given: frozenset[str]
    chosen: frozenset[str]
    recorded: bool


def arm_name(n: Any, source_ids: Any) -> str:
    """The part of a run's name that tells the arms of a comparison apart."""
    if isinstance(source_ids, (list, ListConfig)) and not n:
        n = len(source_ids)
    return f"reasoning_{n}" if n else "baseline"


def reward_of(dataset: str | None) -> str:
    """The reward for the problems of a set where none is named."""
    return REASONING_GYM if dataset == REASONING_GYM else "accuracy"


OmegaConf.register_new_resolver("arm", arm_name, replace=True)
OmegaConf.register_new_resolver("reward_of", reward_of, replace=True)


def config_folders(line: CommandLine) -> list[Path]:
    """Where YAML files are looked for; the first that has a file wins: a user's over ours."""
    if line.config_dir is None:
        return [CONF]
    if not line.config_dir.is_dir():
        raise UserError(f"--config-dir {line.config_dir}: no such folder")
    return [line.config_dir.resolve(), CONF]


def compose(command: str, line: CommandLine, dataset_of: Path | None = None) -> Composed:
    """Composes and checks the configuration of `command`.

    Args:
        command: One of COMMANDS.
        line: Its words.
        dataset_of: Folder of a run whose recorded dataset section takes the place of the default one.

    Raises:
        UserError: an unknown key or choice, an override or a file that cannot be read.
    """
    folders, keys = config_folders(line), known_keys(command)
    overrides = translate(line.overrides, command, keys, folders)
    recorded = line.config_file is not None
    primary = recorded_primary(line, overrides.groups) if recorded else read_yaml(primary_file(command, line, folders))
    if COMMANDS[command].over:
        primary = {**read_yaml(CONF / f"{COMMANDS[command].config}.yaml"), **primary}
    if dataset_of is not None:
        primary = with_recorded_dataset(primary, dataset_of)
    config = compose_with_hydra(primary, overrides.hydra, folders)
    for key in keys.unknown_in(as_mapping(config)):
        keys.check(key, file_with(key, folders, line.config_file))
    return Composed(config, frozenset(overrides.given), frozenset(overrides.groups), recorded)


def compose_section(group: str, choice: str, folders: Sequence[Path]) -> dict[str, Any]:
    """What a file of a group says, over the defaults of the group.

    Raises:
        UserError: there is no such file, or it cannot be read.
    """
    group_override(group, choice, folders)
    base = [f"{group}/_base"] if (CONF / group / "_base.yaml").is_file() else []
    config = compose_with_hydra({"defaults": [*base, {group: choice}]}, [], folders)
    section = as_mapping(config)[group]
    if not isinstance(section, dict):
        raise UserError(f"{group}={choice}: expected keys and values in the file, found {section!r:.80}")
    return section


def compose_with_hydra(primary: dict[str, Any], overrides: Sequence[str], folders: Sequence[Path]) -> DictConfig:
    """One composition, what goes wrong in it as one line."""
    ConfigStore.instance().store(name=PRIMARY, node=primary)
    search = ",".join(f"'file://{folder}'" for folder in folders[1:])
    try:
        with initialize_config_dir(config_dir=str(folders[0]), version_base="1.3"):
            return hydra_compose(PRIMARY, overrides=[f"hydra.searchpath=[{search}]", *overrides])
    except MissingConfigException as error:
        raise missing_file(error, folders) from error
    except yaml.MarkedYAMLError as error:
        name = error.problem_mark.name if error.problem_mark else "a YAML file"
        raise UserError(f"{name}: {yaml_line(error)}") from error
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(first_lines(error)) from error


def resolve(composed: Composed) -> dict[str, Any]:
    """Plain values, interpolations and resolvers applied."""
    try:
        plain = OmegaConf.to_container(composed.config, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        key = error.full_key or str(error)
        raise UserError(f"{key} is missing: give it as {key}=…") from error
    except OmegaConfBaseException as error:
        raise UserError(f"{error.full_key or 'configuration'}: {first_lines(error)}") from error
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def as_mapping(config: DictConfig, resolve: bool = False) -> dict[str, Any]:
    try:
        plain = OmegaConf.to_container(config, resolve=resolve)
    except OmegaConfBaseException as error:
        raise UserError(f"{error.full_key or 'configuration'}: {first_lines(error)}") from error
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def primary_file(command: str, line: CommandLine, folders: Sequence[Path]) -> Path:
    """The file to start from; --config-dir alone adds groups and does not replace ours."""
    name = (line.config_name or COMMANDS[command].over or COMMANDS[command].config).removesuffix(".yaml")
    searched = folders if line.config_name else [CONF]
    for folder in searched:
        if (folder / f"{name}.yaml").is_file():
            return folder / f"{name}.yaml"
    known = sorted({path.stem for folder in folders for path in folder.glob("*.yaml")})
    raise UserError(f"--config-name {name}: no such file in {searched[0]}{did_you_mean(name, known)}")


def read_yaml(path: Path) -> dict[str, Any]:
    try:
        config = OmegaConf.load(path)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {yaml_line(error)}") from error
    if not isinstance(config, DictConfig):
        raise UserError(f"{path}: expected keys and values")
    return as_mapping(config)


def yaml_line(error: Exception) -> str:
    """Where a YAML file breaks and why, in one line."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    return f"line {mark.line + 1}: {problem}" if mark is not None else first_lines(error)


def recorded_primary(line: CommandLine, chosen: set[str]) -> dict[str, Any]:
    """A recorded configuration as the primary one; a group chosen anew replaces its whole section."""
    assert line.config_file is not None
    if "experiment" in chosen:
        raise UserError("config=FILE holds a whole run: experiment=… cannot be put over it")
    if line.config_name is not None:
        raise UserError("config=FILE and --config-name both name the file to start from: give one")
    content = read_recorded(line.config_file)
    shipped = {key: value for key, value in read_yaml(CONF / "config.yaml").items() if key != "defaults"}
    sections = {**shipped, **{key: value for key, value in content.items() if key not in chosen}}
    groups = [{group: None} for group in COMMANDS["train"].groups if group != "experiment"]
    return {"defaults": ["model/_base", "dataset/_base", "training/_base", "_self_", *groups], **sections}


def with_recorded_dataset(primary: dict[str, Any], run: Path) -> dict[str, Any]:
    """A primary file whose dataset section is the one that a run recorded."""
    dataset, known = read_recorded(run)["dataset"], known_keys("evaluate")
    for key in dotted_keys(dataset, known.sections, "dataset."):
        known.check(key, f" in {run / 'config.yaml'}")
    return {**primary, "defaults": ["dataset/_base", "_self_", {"rewards": None}], "dataset": dataset}


def missing_file(error: MissingConfigException, folders: Sequence[Path]) -> UserError:
    """A file that another YAML file names and that does not exist."""
    group, _, choice = (error.missing_cfg_file or "").rpartition("/")
    return UserError(f"no file {group}/{choice}{nearest_and_all(choice, group_choices(group, folders))}")


def file_with(key: str, folders: Iterable[Path], recorded: Path | None) -> str:
    """` in FILE`: the YAML file that holds the key; empty where none does."""
    if recorded is not None:
        return f" in {recorded}"
    for folder in folders:
        for path in sorted(folder.rglob("*.yaml")):
            text = path.read_text(encoding="utf-8")
            group = path.parent.relative_to(folder).as_posix().replace("/", ".")
            prefix = "" if group == "." or "@package _global_" in text else f"{group}."
            content = yaml.safe_load(text) or {}
            if key.startswith(prefix) and has_key(content, key.removeprefix(prefix)):
                return f" in {path}"
    return ""


def has_key(content: Any, key: str) -> bool:
    for part in key.split("."):
        if not isinstance(content, dict) or part not in content:
            return False
        content = content[part]
    return True
