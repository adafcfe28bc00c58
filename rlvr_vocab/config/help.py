"""What rlvr-vocab --help and rlvr-vocab <command> --help print."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf

from rlvr_vocab.config.compose import PRIMARY_CONFIGS, compose, config_folders, parse_command_line, resolve
from rlvr_vocab.config.load import with_recipe
from rlvr_vocab.config.overrides import GROUPS, group_choices
from rlvr_vocab.config.values import as_typed
from rlvr_vocab.errors import UserError
from rlvr_vocab.nearest import did_you_mean

LINE = re.compile(r"(?P<indent> *)(?P<name>[\w.]+):(?P<value>.*?)(?:(?:^|\s)#\s*(?P<comment>.*))?$")
VALUE_WIDTH = 40
KEY_WIDTH = 52


class Command(NamedTuple):
    module: str
    line: str
    example: str


COMMANDS = {
    "train": Command(
        "rlvr_vocab.commands.train",
        "train a model with GRPO, with a reasoning vocabulary or without",
        "rlvr-vocab train dataset=gsm8k training=small_gpu model.reasoning_vocab_size=1000",
    ),
    "quickstart": Command(
        "rlvr_vocab.commands.train",
        "the whole pipeline on an embedded tiny model and task, on a CPU, in minutes",
        "rlvr-vocab quickstart model.reasoning_vocab_size=0 seed=1",
    ),
    "check": Command(
        "rlvr_vocab.commands.check.command",
        "what is in a problem set, as the model will see it, without training",
        "rlvr-vocab check dataset=gsm8k model=qwen3_0.6b against=test.jsonl",
    ),
    "score": Command(
        "rlvr_vocab.commands.score.command",
        "what rewards give for completions, gold answers or samples of a model, without training",
        "rlvr-vocab score rewards=[accuracy,boxed] completions=samples.jsonl",
    ),
    "expand": Command(
        "rlvr_vocab.commands.expand",
        "write a checkpoint with a reasoning vocabulary, without training",
        "rlvr-vocab expand model=smollm2_135m model.reasoning_vocab_size=1000 out=./smollm2_1000",
    ),
    "evaluate": Command(
        "rlvr_vocab.commands.evaluate.command",
        "accuracy of a checkpoint on a problem set, with per-problem results on disk",
        "rlvr-vocab evaluate checkpoint=out/grpo_baseline/final_model dataset=gsm8k samples=4",
    ),
    "generate": Command(
        "rlvr_vocab.commands.generate",
        "chat answers of a checkpoint, thinking set apart and reasoning tokens marked",
        'rlvr-vocab generate checkpoint=out/grpo_baseline/final_model prompt="What is 17 + 25?"',
    ),
    "merge": Command(
        "rlvr_vocab.commands.merge",
        "fold an adapter into its base: a model folder for any tool, proven by loading it again",
        "rlvr-vocab merge checkpoint=out/grpo_baseline/checkpoint-500 out=production_model",
    ),
    "samples": Command(
        "rlvr_vocab.commands.samples",
        "read what a run wrote: page through its completions, filter them, write them out",
        "rlvr-vocab samples run=out/grpo_baseline order=highest",
    ),
    "doctor": Command(
        "rlvr_vocab.commands.doctor",
        "name what is wrong with a run: evidence, probable cause, the key to change",
        "rlvr-vocab doctor run=out/grpo_baseline",
    ),
    "report": Command(
        "rlvr_vocab.commands.report",
        "one HTML file of a run: outcome, curves, findings, samples, vocabulary",
        "rlvr-vocab report run=out/grpo_baseline",
    ),
    "compare": Command(
        "rlvr_vocab.commands.compare.command",
        "arms of runs against each other: difference, interval, smallest effect, verdict",
        "rlvr-vocab compare runs=[out/a_seed0,out/a_seed1,out/b_seed0,out/b_seed1]",
    ),
}


def overview() -> str:
    rows = [f"  {name:<12}{command.line}" for name, command in COMMANDS.items()]
    head = ["rlvr-vocab <command> key=value …", "", "Commands:"]
    return "\n".join([*head, *rows, "", "rlvr-vocab <command> --help lists its keys, with defaults."])


def command_help(command: str, argv: Sequence[str]) -> str:
    """What the command does, an example, its groups and their choices, its keys and their values."""
    line = parse_command_line(command, with_recipe(command, argv))
    folders = config_folders(line)
    config = compose(command, line).config
    parts = [f"rlvr-vocab {command}: {COMMANDS[command].line}", f"Example:\n  {COMMANDS[command].example}"]
    groups = [f"  {group:<12}{', '.join(group_choices(group, folders))}" for group in GROUPS[command]]
    if groups:
        parts.append("\n".join(["Files to choose from (group=choice):", *groups]))
    comments = key_comments(command, folders)
    parts.append("\n".join(["Keys (key=value, as they stand now):", *key_rows(config, comments)]))
    if "training" in GROUPS[command]:
        parts.append(
            "Any other field of TRL's GRPOConfig: training.<field>=value\n"
            "Start from an earlier run: config=out/<run>/config.yaml"
        )
    parts.append(
        "Your own YAML files: --config-dir DIR (DIR/<group>/<choice>.yaml), --config-name NAME\n"
        "The value that one key would have, and nothing else: --show KEY"
    )
    return "\n\n".join(parts)


def shown_key(command: str, argv: Sequence[str], key: str) -> str:
    """The value that a key would have, as it can be typed.

    Raises:
        UserError: the command has no such key.
    """
    composed = compose(command, parse_command_line(command, with_recipe(command, argv)))
    values = dict(leaves(resolve(composed)))
    if key not in values:
        raise UserError(f"--show {key}: no such key{did_you_mean(key, list(values))}")
    return as_typed(values[key])


def key_rows(config: DictConfig, comments: dict[str, str]) -> Iterator[str]:
    for key, value in leaves(OmegaConf.to_container(config, resolve=True, throw_on_missing=False)):
        shown = " ".join(shown_value(value).split())
        shown = shown if len(shown) <= VALUE_WIDTH else f"{shown[: VALUE_WIDTH - 1]}…"
        comment = f"  # {comments[key]}" if key in comments else ""
        yield f"  {f'{key}={shown}':<{KEY_WIDTH}}{comment}".rstrip()


def leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, item in value.items():
        if isinstance(item, dict) and item:
            yield from leaves(item, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", item


def shown_value(value: Any) -> str:
    return "(required)" if value == "???" else as_typed(value)


def key_comments(command: str, folders: Sequence[Path]) -> dict[str, str]:
    """Dotted key -> the comment beside it in the YAML files; a group's own files before its _base.yaml."""
    comments: dict[str, str] = {}
    for folder in folders:
        files = [(folder / f"{PRIMARY_CONFIGS[command]}.yaml", "")]
        for group in GROUPS[command]:
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


def again(folder: Path, exp_name: str) -> str:
    """The command that trains the run again, beside itself."""
    name = f"{exp_name}_again"
    words = [
        f"config={folder}/config.yaml",
        f"exp_name={name}",
        f"output_dir={folder.with_name(f'{folder.name}_again')}",
    ]
    return shlex.join(["rlvr-vocab", "train", *words])
