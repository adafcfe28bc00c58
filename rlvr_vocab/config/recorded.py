"""The config.yaml of a run: written, read again, and compared with another configuration."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rlvr_vocab.config.values import as_typed
from rlvr_vocab.data.generators import REASONING_GYM
from rlvr_vocab.data.source import FROM_PYTHON
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.files import CONFIG, ENVIRONMENT
from rlvr_vocab.text import did_you_mean

CONF = Path(__file__).resolve().parents[1] / "exp" / "conf"
RUN_SECTIONS = ("model", "dataset", "training")
# Keys that do not change the outcome of a run.
NOT_COMPARED = (
    *("overwrite", "resume", "allow_changes", "max_hours", "report", "on_full_disk", "logging", "output_dir"),
    "training.save_total_limit",
)
ABSENT = "(absent)"
CODE = "code"  # a record of files with code of the user's, and no key


def _arm(n: Any, source_ids: Any) -> str:
    """The part of a run's name that differs between the arms of a comparison; chosen tokens with a hash."""
    if source_ids is None:
        return f"reasoning_{n}" if n else "baseline"
    if isinstance(source_ids, (list, ListConfig)):
        name, chosen = str(len(source_ids)), repr(list(source_ids)).encode()
    elif (file := Path(str(source_ids)).expanduser()).is_file():
        name, chosen = re.sub(r"[^\w.-]", "_", file.stem), file.read_bytes()
    else:
        name, chosen = "re", str(source_ids).encode()
    return f"reasoning_{name}_{hashlib.sha256(chosen).hexdigest()[:6]}"


def reward_of(dataset: str | None) -> str:
    """The reward for the problems of a set where none is named."""
    return REASONING_GYM if dataset == REASONING_GYM else "accuracy"


OmegaConf.register_new_resolver("arm", _arm, replace=True)
OmegaConf.register_new_resolver("reward_of", reward_of, replace=True)


def config_yaml(resolved: Mapping[str, Any]) -> str:
    """The text of a config.yaml for a resolved configuration; `train config=FILE` reads it back unchanged."""
    return OmegaConf.to_yaml(OmegaConf.create(escaped(dict(resolved))))


def escaped(value: Any) -> Any:
    """Text with a literal `${` escaped, so that it is no interpolation when it is read again."""
    if isinstance(value, str):
        return re.sub(r"(\\*)\$\{", r"\1\1\\${", value)
    if isinstance(value, Mapping):
        return {key: escaped(item) for key, item in value.items()}
    return [escaped(item) for item in value] if isinstance(value, (list, tuple)) else value


def read_yaml(path: Path) -> dict[str, Any]:
    """The keys and values of a YAML file, interpolations as they stand; UserError for any other file."""
    try:
        content = OmegaConf.load(path)
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise UserError(f"{path}: {yaml_line(error)}") from error
    if not isinstance(content, DictConfig):
        raise UserError(f"{path}: expected keys and values")
    return {str(key): value for key, value in OmegaConf.to_container(content).items()}  # type: ignore[union-attr]


def yaml_line(error: Exception) -> str:
    """The line at which a YAML file breaks, and the reason."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    return f"line {mark.line + 1}: {problem}" if mark is not None else " ".join(str(error).split())


@cache
def _defaults() -> DictConfig:
    """The keys of a run outside of its groups, and those of the groups that every file of a group has."""
    config = {key: value for key, value in read_yaml(CONF / "config.yaml").items() if key != "defaults"}
    return OmegaConf.create(config | {name: read_yaml(CONF / name / "_base.yaml") for name in RUN_SECTIONS})


def read_recorded(path: Path, resolve: bool = False) -> dict[str, Any]:
    """A config.yaml, or that in a run's folder, with defaults for missing keys; UserError for any other file."""
    path = path / "config.yaml" if path.is_dir() else path
    if not path.is_file():
        siblings = [str(other) for other in path.parent.parent.glob("*/config.yaml")]
        raise UserError(f"{path}: no such file{did_you_mean(str(path), siblings)}")
    content = read_yaml(path)
    if not all(isinstance(content.get(key), dict) for key in RUN_SECTIONS):
        raise UserError(f"{path}: not the config.yaml of a run (no {', '.join(RUN_SECTIONS)} in it)")
    try:
        whole = OmegaConf.to_container(OmegaConf.merge(_defaults(), content), resolve=resolve)
    except OmegaConfBaseException as error:
        raise UserError(f"{path}: {' '.join(str(error).split())}") from error
    assert isinstance(whole, dict)
    return {str(key): value for key, value in whole.items()}


def is_from_python(config: Mapping[str, Any]) -> bool:
    """Whether a recorded configuration is that of a run from Python, whose script holds problems and rewards."""
    return str(config["dataset"]["name"]).startswith(FROM_PYTHON)


@dataclass(frozen=True)
class ConfigFile:
    """A file that config=FILE names.

    words: the files of groups that it chooses, as they are typed: model=tiny; sections: its other keys.
    recorded: the configuration of a run, with all keys: no default stands under it, and its code is not trusted.
    """

    path: Path
    words: tuple[str, ...]
    sections: dict[str, Any]
    recorded: bool


# Keys of every recorded run that nobody sets together in a file of their own.
_OF_A_RECORDED_RUN = (*RUN_SECTIONS, "exp_name", "output_dir", "overwrite", "resume", "allow_changes")


def read_config_file(path: Path, groups: Collection[str]) -> ConfigFile:
    """The keys of a user's file, in which a group may have the name of a choice, or those of a recorded run."""
    content = read_yaml(path) if path.is_file() else {}
    of_a_run = not path.is_file() or (path.name == CONFIG and (path.parent / ENVIRONMENT).is_file())
    if of_a_run or all(key in content for key in _OF_A_RECORDED_RUN):
        keys = {key: value for key, value in read_recorded(path).items() if key != CODE}
        return ConfigFile(path, (), keys, recorded=True)
    words = []
    defaults = content.pop("defaults", None) or []
    for entry in defaults if isinstance(defaults, list) else [defaults]:  # as a recipe has them: override /model: tiny
        choices = {"experiment": entry} if isinstance(entry, str) else entry
        names = {str(group).split()[-1].strip("/"): choice for group, choice in choices.items() if choice != "_self_"}
        words += [f"{group}={as_typed(choice)}" for group, choice in names.items()]
    sections = OmegaConf.create({})
    for key, value in content.items():
        if key == "rewards" and isinstance(value, list):
            key = "rewards.functions"
        if key in groups and value is None:  # a section whose keys are all commented out
            continue
        if key in groups and not isinstance(value, dict):
            words.append(f"{key}={as_typed(value)}")
        else:
            OmegaConf.update(sections, key, value, merge=True)  # training.beta: 0.1 is a key too
    plain = OmegaConf.to_container(sections)
    assert isinstance(plain, dict)
    return ConfigFile(path, tuple(words), {str(key): value for key, value in plain.items()}, recorded=False)


def differences(one: Mapping[str, Any], other: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(dotted key, value in one, value in other) where two configurations differ, NOT_COMPARED left out."""
    for name in [*one, *(name for name in other if name not in one)]:
        key = f"{prefix}{name}"
        here, there = one.get(name, ABSENT), other.get(name, ABSENT)
        if key in NOT_COMPARED:
            continue
        if isinstance(here, Mapping) and isinstance(there, Mapping):
            yield from differences(here, there, f"{key}.")
        elif here != there:
            yield key, here, there


def command_to_repeat(folder: Path, exp_name: str) -> str:
    """The command that trains the run again, beside itself."""
    again = [f"exp_name={exp_name}_again", f"output_dir={folder.with_name(f'{folder.name}_again')}"]
    return shlex.join(["rlvr-vocab", "train", f"config={folder}/config.yaml", *again])


def command_line(command: str, settings: Any) -> str:
    """The command line that gives a command these settings."""
    args = [f"{name}={as_typed(value)}" for name, value in vars(settings).items() if value is not None]
    return shlex.join(["rlvr-vocab", command, *args])
