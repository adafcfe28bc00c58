"""The text of rlvr-vocab --help, rlvr-vocab <command> --help, --show and --cfg."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from rlvr_vocab import __version__
from rlvr_vocab.config.command_line import CommandLine
from rlvr_vocab.config.command_settings import COMMANDS, Command
from rlvr_vocab.config.load import OF_A_RUN, as_mapping, compose, group_choices
from rlvr_vocab.config.values import as_typed, leaves
from rlvr_vocab.errors import UserError
from rlvr_vocab.secrets import MASK, is_secret
from rlvr_vocab.text import did_you_mean

_LINE = re.compile(r"(?P<indent> *)(?P<name>[\w.]+):(?P<value>.*?)(?:(?:^|\s)#\s*(?P<comment>.*))?$")
_VALUE_WIDTH = 40
# The keys of a run that the README, the guide and the guides of TRL set most often.
_OFTEN_SET = (
    *("exp_name", "seed", "model.name", "model.reasoning_vocab_size", "dataset.name", "rewards.functions"),
    *("training.learning_rate", "training.max_steps", "training.per_device_train_batch_size"),
    "training.num_generations",
)
_KEY_WIDTH = 52


def version() -> str:
    libraries = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "transformers", "trl"))
    return f"rlvr-vocab {__version__} ({libraries})"


def overview() -> str:
    rows = [f"  {name:<12}{command.summary}" for name, command in COMMANDS.items()]
    head = ["rlvr-vocab <command> key=value …", "", "Commands:"]
    return "\n".join([*head, *rows, "", "rlvr-vocab <command> --help lists its keys, with defaults."])


def printed(line: CommandLine) -> str | None:
    """The text of an option that prints instead of running, --help, --show or --cfg; UserError for an unknown KEY."""
    if not (line.help or line.show is not None or line.cfg):
        return None
    as_composed = bool(line.cfg and not line.resolve)
    complete = line.show is not None and not line.help
    config = _masked(as_mapping(compose(line).config, resolve=not as_composed, complete=complete))
    if line.help:
        return command_help(line, config)
    if line.show is None:
        return OmegaConf.to_yaml(OmegaConf.create(config)).rstrip()
    values = dict(leaves(config))
    if line.show not in values:
        raise UserError(f"--show {line.show}: no such key{did_you_mean(line.show, list(values))}")
    return as_typed(values[line.show])


def command_help(line: CommandLine, config: dict[str, Any]) -> str:
    """The summary of a command, an example, its groups and their choices, its keys and their values."""
    row = COMMANDS[line.command]
    comments = _key_comments(row, line.folders)
    parts = [f"rlvr-vocab {row.name}: {row.summary}", f"Example:\n  {row.example}"]
    values = dict(leaves(config))
    often = {key: values.pop(key) for key in _OFTEN_SET if row.name in OF_A_RUN and key in values}
    if often:
        title = "Keys that most runs set (key=value, as they stand now):"
        parts.append("\n".join([title, *_key_rows(often, comments)]))
    if row.groups:
        groups = [f"  {group:<12}{', '.join(group_choices(group, line.folders))}" for group in row.groups]
        parts.append("\n".join(["Files to choose from (group=choice):", *groups]))
    title = f"{'Other keys' if often else 'Keys'} (key=value, as they stand now):"
    parts.append("\n".join([title, *_key_rows(values, comments)]))
    if "training" in row.groups:
        parts.append(
            "Any other field of TRL's GRPOConfig: training.<field>=value\n"
            "Start from an earlier run: config=out/<run>/config.yaml; trust_code=true imports the code that it names"
        )
    if row.groups:
        parts.append("A file of keys, over the defaults and below the words that you type: config=my.yaml")
    options = (
        "Your own YAML files: --config-dir DIR (DIR/<group>/<choice>.yaml)\n"
        "The value that one key would have, and nothing else: --show KEY\n"
        "All of it as YAML: --cfg job, interpolations applied: --cfg job --resolve"
    )
    if row.name in OF_A_RUN:
        options += "\nA run of each combination of values, one after another: --multirun seed=1,2,3 key=a,b"
    return "\n\n".join([*parts, options])


def _masked(value: Any, key: str = "") -> Any:
    """A configuration with `***` in the place of each secret; an element of a list has the list's key."""
    if isinstance(value, dict):
        return {name: _masked(item, f"{key}.{name}") for name, item in value.items()}
    if isinstance(value, list):
        return [_masked(item, key) for item in value]
    return MASK if is_secret(key, value) else value


def _key_rows(values: dict[str, Any], comments: dict[str, str]) -> Iterator[str]:
    for key, value in values.items():
        shown = "(required)" if value == "???" else " ".join(as_typed(value).split())
        shown = shown if len(shown) <= _VALUE_WIDTH else f"{shown[: _VALUE_WIDTH - 1]}…"
        comment = f"  # {comments[key]}" if key in comments else ""
        yield f"  {f'{key}={shown}':<{_KEY_WIDTH}}{comment}".rstrip()


def _key_comments(command: Command, folders: Sequence[Path]) -> dict[str, str]:
    """Dotted key -> the comment beside it in the YAML files, a user's before ours."""
    comments: dict[str, str] = {}
    for folder in folders:
        of_groups = [path for group in command.groups for path in sorted((folder / group).glob("*.yaml"))]
        for path in filter(Path.is_file, (folder / f"{command.name}.yaml", folder / "config.yaml", *of_groups)):
            prefix = "" if path.parent in (folder, folder / "experiment") else f"{path.parent.name}."
            for key, comment in _commented_keys(path.read_text(encoding="utf-8"), prefix):
                comments.setdefault(key, comment)
    return comments


def _commented_keys(text: str, prefix: str) -> Iterator[tuple[str, str]]:
    """(dotted key, comment) of each commented line of a YAML file, read by its indentation."""
    parents: list[tuple[int, str]] = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        indent = len(match["indent"])
        parents = [*(parent for parent in parents if parent[0] < indent), (indent, match["name"])]
        if match["comment"]:
            yield prefix + ".".join(name for _, name in parents), match["comment"]
