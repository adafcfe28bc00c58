"""The words of a command line: its options, its overrides as Hydra reads them, and forms that other tools teach."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, get_origin

from rlvr_vocab.config.command_settings import COMMANDS
from rlvr_vocab.config.recorded import CONF, ConfigFile, escaped, read_config_file
from rlvr_vocab.config.trl_fields import refuse_what_is_not_used
from rlvr_vocab.config.values import alternatives, keys_of, nearest_known
from rlvr_vocab.data.source import names_file
from rlvr_vocab.errors import UserError
from rlvr_vocab.text import nearest_and_all, writable


@dataclass(frozen=True)
class CommandLine:
    """A command with its overrides, options apart."""

    command: str
    overrides: tuple[str, ...]
    config_file: ConfigFile | None  # of config=FILE
    trust_code: bool
    config_dir: Path | None
    show: str | None
    help: bool
    cfg: str | None
    resolve: bool
    multirun: bool
    job: int | None

    @property
    def typed(self) -> set[str]:
        """The keys and the groups of the overrides."""
        return {word.lstrip("+~").partition("=")[0] for word in self.overrides}

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
    row = COMMANDS[command]
    if row.groups:
        parser.add_argument("--config", action="append", default=[])
    try:
        known, rest = parser.parse_known_args(list(argv))
    except argparse.ArgumentError as error:
        raise UserError(str(error)) from error
    if known.job is not None and not known.multirun:
        raise UserError(f"--job {known.job} takes one run of a sweep: add --multirun")
    if known.resolve and not known.cfg:
        raise UserError("--resolve applies the interpolations of --cfg: add --cfg job")
    for number, word in enumerate(rest):
        if word.startswith("-"):
            _refuse_option(word, rest[number + 1 :], keys_of(row.settings))
        if writable(word) != word:
            raise UserError(f"{writable(word)}: half a surrogate pair, which UTF-8 cannot write")
    trusts = "trust_code=true" in rest
    options = vars(known)
    of_files = [word for word in rest if word.startswith("config=") and row.groups]
    files = [*(word.removeprefix("config=") for word in of_files), *options.pop("config", [])]
    if len(files) > 1:
        raise UserError(f"config={files[1]}: a second file beside {files[0]}; put both into one")
    words = [word for word in rest if word not in (*of_files, "trust_code=true")]
    file = read_config_file(Path(files[0]).expanduser(), row.groups) if files else None
    if command == "quickstart" and not (file and file.recorded):  # a recorded run holds its recipe already
        words = ["experiment=quickstart", *words]
    return CommandLine(command, tuple(_with_keys(words, command)), file, trusts, **options)


def _refuse_option(word: str, following: Sequence[str], keys: Mapping[str, Any]) -> NoReturn:
    """Name the key that an option of another tool is here: --learning_rate 1e-5."""
    name, equals, value = word.lstrip("-").partition("=")
    key = name.replace("-", "_")
    if not equals:
        own = following and not following[0].startswith("-") and "=" not in following[0]
        value = following[0] if own else "true"
    nearest = [key] if key in keys else nearest_known(key, keys)
    if not nearest:
        refuse_what_is_not_used(key)
        nearest = [f"training.{key}"]  # a field of TRL's
    raise UserError(f"unknown option {word}: keys have no dashes, write {nearest[0]}={value}")


def _with_keys(words: Sequence[str], command: str) -> list[str]:
    """The words, with the keys of those that stand without one where the command takes such: doctor out/run."""
    row = COMMANDS[command]
    keys, given = keys_of(row.settings), {word.partition("=")[0] for word in words if "=" in word}
    free = [name for name in row.positional if name not in given]
    keyed = [word for word in words if _is_override(word, keys)]
    without = [word for word in words if not _is_override(word, keys)]
    for name in free:
        takes_several = any(get_origin(kind) is tuple for kind in alternatives(keys.get(name)))
        taken, without = (without, []) if takes_several else (without[:1], without[1:])
        if taken:
            keyed.append(f"{name}=[{','.join(map(_quoted, taken))}]" if takes_several else f"{name}={taken[0]}")
    for word in without:
        likely = "config" if word.endswith((".yaml", ".yml")) else "dataset" if names_file(word) else None
        write = f"{likely}={word}" if likely and "dataset" in row.groups else "key=value"
        raise UserError(f"cannot read {word!r}: write {write}")
    return keyed


def _is_override(word: str, keys: Mapping[str, Any]) -> bool:
    """Whether a word is key=value; the path of something that exists may have an = too."""
    match = _OVERRIDE.fullmatch(word)
    if match is None or (match["value"] is None and match["prefix"] != "~"):
        return False
    return match["key"] in keys or not Path(word).exists()


# Keys whose text may hold a literal ${, which is no interpolation there.
_PROSE = ("prompt", "system_prompt", "dataset.system_prompt", "dataset.prompt", "problem", "contains")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"", re.DOTALL)
# A tag in a list, for which Hydra's grammar has no characters.
_BARE_TAG = re.compile(r"(?<=[\[,])(\s*)(</?[^<>\[\],'\"]+>)(?=\s*[,\]])")
_OVERRIDE = re.compile(r"(?P<prefix>\+\+|\+|~)?(?P<key>[A-Za-z_][\w.@/-]*)(?:=(?P<value>.*))?", re.DOTALL)


def hydra_overrides(words: Sequence[str], command: str) -> tuple[list[str], set[str], set[str]]:
    """Words -> Hydra's overrides, the keys and the groups in them; text needs no quotes, rewards may be a list."""
    hydra: list[str] = []
    given: set[str] = set()
    chosen: set[str] = set()
    keys = keys_of(COMMANDS[command].settings)
    for word in words:
        match = _OVERRIDE.fullmatch(word)
        assert match is not None  # `parse_command_line` has refused other words
        key, value = match["key"], match["value"] or ""
        if key == "rewards" and value.startswith("["):
            key = "rewards.functions"
        if key == "environment" and ":" in value and not value.startswith("{"):  # params may follow
            key = "environment.name"
        if key == "dataset" and names_file(file := value.strip("[]")):
            key, value = "dataset.name", file
            chosen.add("dataset")
            hydra.append("dataset=local")
        if key in COMMANDS[command].groups:
            chosen.add(key)
            hydra.append(f"{key}={value}")
            if key == "logging" and value.startswith("["):  # of each key Hydra keeps the last file's alone
                names = re.findall(r"[\w-]+", value)
                trackers = ",".join("wandb" if name == "offline" else name for name in names)
                hydra.append(f"++logging.trackers=[{trackers}]")
                hydra += ["++logging.mode=offline"] * ("offline" in names)
            continue
        if key.startswith("hydra."):
            raise UserError(f"{key} is not used here: everything of a run goes to output_dir")
        if "training" in keys and key not in keys:
            refuse_what_is_not_used(key)
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
