"""What rlvr-vocab --help and rlvr-vocab <command> --help print."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from rlvr_vocab.config.command_table import COMMANDS
from rlvr_vocab.config.compose import CAN_START_FROM_FILE, as_mapping, group_choices, parse_command_line, resolve
from rlvr_vocab.config.load import compose_command
from rlvr_vocab.config.values import as_typed, leaves
from rlvr_vocab.errors import UserError
from rlvr_vocab.secrets import MASK, is_secret
from rlvr_vocab.text import did_you_mean

LINE = re.compile(r"(?P<indent> *)(?P<name>[\w.]+):(?P<value>.*?)(?:(?:^|\s)#\s*(?P<comment>.*))?$")
VALUE_WIDTH = 40
KEY_WIDTH = 52


def overview() -> str:
    rows = [f"  {name:<12}{command.summary}" for name, command in COMMANDS.items()]
    head = ["rlvr-vocab <command> key=value …", "", "Commands:"]
    return "\n".join([*head, *rows, "", "rlvr-vocab <command> --help lists its keys, with defaults."])


def command_help(command: str, argv: Sequence[str]) -> str:
    """What the command does, an example, its groups and their choices, its keys and their values."""
    line = parse_command_line(command, argv)
    folders, config = line.folders, compose_command(command, line).config
    parts = [f"rlvr-vocab {command}: {COMMANDS[command].summary}", f"Example:\n  {COMMANDS[command].example}"]
    groups = [f"  {group:<12}{', '.join(group_choices(group, folders))}" for group in COMMANDS[command].groups]
    if groups:
        parts.append("\n".join(["Files to choose from (group=choice):", *groups]))
    comments = key_comments(command, folders)
    parts.append("\n".join(["Keys (key=value, as they stand now):", *key_rows(config, comments)]))
    if "training" in COMMANDS[command].groups:
        parts.append(
            "Any other field of TRL's GRPOConfig: training.<field>=value\n"
            "Start from an earlier run: config=out/<run>/config.yaml; trust_code=true imports the code that it names"
        )
    parts.append(
        "Your own YAML files: --config-dir DIR (DIR/<group>/<choice>.yaml), --config-name NAME\n"
        "The value that one key would have, and nothing else: --show KEY\n"
        "All of it as YAML: --cfg job, interpolations applied: --cfg job --resolve"
    )
    if command in CAN_START_FROM_FILE:
        parts[-1] += "\nA run of each combination of values, one after another: --multirun seed=1,2,3 key=a,b"
    return "\n\n".join(parts)


def value_of_key(command: str, argv: Sequence[str], key: str) -> str:
    """The value that a key would have, as it can be typed.

    Raises:
        UserError: the command has no such key.
    """
    values = dict(leaves(resolve(compose_command(command, parse_command_line(command, argv)).config)))
    if key not in values:
        raise UserError(f"--show {key}: no such key{did_you_mean(key, list(values))}")
    return as_typed(values[key])


def composed_yaml(command: str, argv: Sequence[str], resolve: bool) -> str:
    """The configuration as YAML, secrets masked; what must still be given is `???`."""
    composed = compose_command(command, parse_command_line(command, argv))
    config = masked(as_mapping(composed.config, resolve=resolve))
    return OmegaConf.to_yaml(OmegaConf.create(config))


def masked(value: Any, key: str = "") -> Any:
    """A configuration with `***` in the place of each secret; what stands in a list has the list's key."""
    if isinstance(value, dict):
        return {name: masked(item, f"{key}.{name}") for name, item in value.items()}
    if isinstance(value, list):
        return [masked(item, key) for item in value]
    return MASK if is_secret(key, value) else value


def key_rows(config: DictConfig, comments: dict[str, str]) -> Iterator[str]:
    for key, value in leaves(as_mapping(config, resolve=True)):
        shown = " ".join(value_text(value).split())
        shown = shown if len(shown) <= VALUE_WIDTH else f"{shown[: VALUE_WIDTH - 1]}…"
        comment = f"  # {comments[key]}" if key in comments else ""
        yield f"  {f'{key}={shown}':<{KEY_WIDTH}}{comment}".rstrip()


def value_text(value: Any) -> str:
    return "(required)" if value == "???" else as_typed(value)


def key_comments(command: str, folders: Sequence[Path]) -> dict[str, str]:
    """Dotted key -> the comment beside it in the YAML files; a group's own files before its _base.yaml."""
    comments: dict[str, str] = {}
    for folder in folders:
        primary = filter(None, (COMMANDS[command].config, COMMANDS[command].over))
        files = [(folder / f"{name}.yaml", "") for name in primary]
        for group in COMMANDS[command].groups:
            prefix = "" if group == "experiment" else f"{group}."
            files += [(path, prefix) for path in sorted((folder / group).glob("*.yaml"))]
        for path, prefix in files:
            if path.is_file():
                for key, comment in commented_keys(path.read_text(encoding="utf-8"), prefix):
                    comments.setdefault(key, comment)
    return comments


def commented_keys(text: str, prefix: str) -> Iterator[tuple[str, str]]:
    """(dotted key, comment) of each commented line of a YAML file, read by its indentation."""
    parents: list[tuple[int, str]] = []
    for line in text.splitlines():
        match = LINE.match(line)
        if match is None:
            continue
        indent = len(match["indent"])
        parents = [parent for parent in parents if parent[0] < indent]
        parents.append((indent, match["name"]))
        if match["comment"]:
            yield prefix + ".".join(name for _, name in parents), match["comment"]


def command_to_repeat(folder: Path, exp_name: str) -> str:
    """The command that trains the run again, beside itself."""
    name = f"{exp_name}_again"
    words = [
        f"config={folder}/config.yaml",
        f"exp_name={name}",
        f"output_dir={folder.with_name(f'{folder.name}_again')}",
    ]
    return shlex.join(["rlvr-vocab", "train", *words])
