"""The words of a command -> one configuration, composed by Hydra; imports no torch."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, get_origin

import yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException
from typing_extensions import is_typeddict

from rlvr_vocab.config.command_settings import COMMANDS
from rlvr_vocab.config.recorded import CONF, escaped, read_recorded, read_yaml, yaml_line
from rlvr_vocab.config.values import alternatives, keys_of, unknown_key
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.files import run_folder_of
from rlvr_vocab.text import nearest_and_all

CAN_START_FROM_FILE = ("train", "quickstart", "plan")


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


class _OneLineParser(argparse.ArgumentParser):
    """argparse that raises UserError instead of printing its usage."""

    def error(self, message: str) -> NoReturn:
        raise UserError(message)


def parse_command_line(command: str, argv: Sequence[str]) -> CommandLine:
    """Splits the words of one command; `quickstart` is `train` with its recipe in front.

    Raises:
        UserError: no such command or option, or an option without its value.
    """
    if command not in COMMANDS:
        raise UserError(f"unknown command {command}{nearest_and_all(command, COMMANDS)}")
    parser = _OneLineParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--config-dir", "-cd", type=Path)
    parser.add_argument("--show")
    parser.add_argument("--cfg", "-c", choices=["job"])
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("--multirun", "-m", action="store_true")
    parser.add_argument("--job", type=int)
    known, rest = parser.parse_known_args(list(argv))
    for word in rest:
        if word.startswith("-"):
            raise UserError(f"unknown option {word}: keys have no dashes, write {word.lstrip('-')}")
    trust = [word.partition("=")[2] for word in rest if word.startswith("trust_code=")]
    if not {"true", "false"}.issuperset(trust):
        raise UserError(f"trust_code={trust[-1]}: must be true or false")
    files = [word for word in rest if word.startswith("config=") and command in CAN_START_FROM_FILE]
    words = [word for word in rest if word not in files and not word.startswith("trust_code=")]
    if command == "quickstart" and not files:  # a recorded run holds its recipe already
        words = ["experiment=quickstart", *words]
    file = Path(files[-1].removeprefix("config=")).expanduser() if files else None
    return CommandLine(command, tuple(words), file, trust[-1:] == ["true"], **vars(known))


@dataclass(frozen=True)
class Composed:
    """config: interpolations not yet resolved; given, chosen: keys and groups that the command line names."""

    config: DictConfig
    given: frozenset[str]
    chosen: frozenset[str]


def compose(line: CommandLine) -> Composed:
    """The configuration of a command; `evaluate` has the problems of the run that its first checkpoint belongs to.

    Raises:
        UserError: an unknown key or choice, an override or a file that cannot be read.
    """
    hydra, given, chosen = translate(line.overrides, line.command)
    row = COMMANDS[line.command]
    primary = {} if row.config else read_yaml(CONF / f"{row.name}.yaml")
    if line.config_file is not None:
        primary |= _recorded_primary(line.config_file, chosen)
    elif row.config or row.over:
        primary |= read_yaml(CONF / f"{row.config or row.over}.yaml")
    config = _compose_with_hydra(primary, hydra, line.folders)
    if line.command == "evaluate" and "dataset" not in chosen:
        _take_problems_of_run(config, given)
    return Composed(config, frozenset(given), frozenset(chosen))


def _take_problems_of_run(config: DictConfig, given: set[str]) -> None:
    """Put the dataset section of the checkpoint's run in place of the default one, below the keys that were typed."""
    checkpoint = as_mapping(config, resolve=True)["checkpoint"]
    first = checkpoint[0] if isinstance(checkpoint, list) and checkpoint else checkpoint
    run = run_folder_of(Path(first).expanduser()) if isinstance(first, str) else None
    if run is None:
        return
    typed = {key: OmegaConf.select(config, key) for key in given if key.startswith("dataset.")}
    config.dataset = read_recorded(run)["dataset"]
    for key, value in typed.items():
        OmegaConf.update(config, key, value)


def compose_section(group: str, choice: str, folders: Sequence[Path]) -> DictConfig:
    """The keys of a file of a group, as the section `group` of a configuration."""
    base = ["dataset/_base"] if group == "dataset" else []
    return _compose_with_hydra({"defaults": [*base, {group: choice}]}, [], folders)


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
    except OverrideParseException as error:
        raise UserError(f"cannot read {_typed(error.override or '')!r}: {_typed(str(error))}") from error
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(_typed(str(error))) from error
    except ValueError as error:  # Python reads no number of 4,300 digits
        raise UserError(f"cannot read a word: {error}") from error
    OmegaConf.set_struct(config, False)  # a stage may set any field of TRL's
    return config


def _typed(message: str) -> str:
    """A message of Hydra on one line, with keys as they were typed."""
    return " ".join(message.replace("++", "").partition(" See https")[0].split())


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


def _recorded_primary(file: Path, chosen: set[str]) -> dict[str, Any]:
    """A recorded configuration as the primary one; a group chosen anew replaces its whole section."""
    if "experiment" in chosen:
        raise UserError("config=FILE holds a whole run: experiment=… cannot be put over it")
    sections = {key: value for key, value in read_recorded(file).items() if key not in chosen}
    groups = [{group: None} for group in COMMANDS["train"].groups if group != "experiment"]
    return {"defaults": ["model/_base", "dataset/_base", "training/_base", "_self_", *groups], **sections}


# --- words ---

# Keys whose text may hold a literal ${, which is no interpolation there.
_PROSE = ("prompt", "system_prompt", "dataset.system_prompt", "problem", "contains")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"", re.DOTALL)
# A tag in a list, for which Hydra's grammar has no characters.
_BARE_TAG = re.compile(r"(?<=[\[,])(\s*)(</?[^<>\[\],'\"]+>)(?=\s*[,\]])")
_OVERRIDE = re.compile(r"(?P<prefix>\+\+|\+|~)?(?P<key>[A-Za-z_][\w.@/-]*)(?:=(?P<value>.*))?", re.DOTALL)


def translate(words: Sequence[str], command: str) -> tuple[list[str], set[str], set[str]]:
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
        if key in COMMANDS[command].groups:
            chosen.add(key)
            hydra.append(f"{key}={value}")
            continue
        if key.startswith("hydra."):
            raise UserError(f"{key} is not used here: everything of a run goes to output_dir")
        _check_key(key, keys)
        given.add(key)
        hydra.append(word if match["prefix"] == "~" else f"++{key}={_in_grammar(key, value, keys)}")
    return hydra, given, chosen


def _check_key(key: str, keys: Mapping[str, Any]) -> None:
    """Raises UserError where no command has the key; TRL's fields are checked when they are read."""
    parts = key.split(".")
    kinds = [kind for depth in range(1, len(parts)) for kind in alternatives(keys.get(".".join(parts[:depth])))]
    if key in keys or any((get_origin(kind) or kind) is dict or is_typeddict(kind) for kind in kinds):
        return
    if "training" in keys:
        from rlvr_vocab.config.trl_fields import refuse_what_is_not_used

        refuse_what_is_not_used(key)
    if "training" not in keys or parts[0] != "training" or len(parts) > 2:
        raise UserError(unknown_key(key, keys))


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
