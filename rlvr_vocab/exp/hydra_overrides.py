"""Command-line words -> Hydra overrides, every key and choice checked."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from rlvr_vocab.errors import UserError
from rlvr_vocab.exp.config_keys import KnownKeys
from rlvr_vocab.exp.recorded_config import escaped
from rlvr_vocab.nearest import nearest_and_all

GROUPS = {
    "train": ("model", "dataset", "training", "rewards", "logging", "experiment"),
    "quickstart": ("model", "dataset", "training", "rewards", "logging", "experiment"),
    "check": ("model", "dataset"),
    "score": ("rewards", "dataset", "model"),
    "evaluate": ("dataset",),
    "generate": (),
    "merge": (),
    "expand": ("model",),
    "doctor": (),
    "samples": (),
    "report": (),
    "compare": (),
}
# Where a literal ${ is no interpolation.
PROSE = ("prompt", "system_prompt", "dataset.system_prompt", "problem", "contains")
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"", re.DOTALL)
OVERRIDE = re.compile(r"(?P<prefix>\+\+|\+|~)?(?P<key>[A-Za-z_][\w.@/-]*)(?:=(?P<value>.*))?", re.DOTALL)


@dataclass
class Overrides:
    """What the command line asks for, in Hydra's words."""

    hydra: list[str] = field(default_factory=list)
    given: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)


def group_choices(group: str, folders: Iterable[Path]) -> list[str]:
    """The files of a group, by name; those that begin with an underscore hold defaults."""
    names = {path.stem for folder in folders for path in (folder / group).glob("*.yaml")}
    return sorted(name for name in names if not name.startswith("_"))


def translate(texts: Sequence[str], command: str, keys: KnownKeys, folders: Sequence[Path]) -> Overrides:
    """Command-line words -> Hydra overrides, every one checked."""
    overrides = Overrides()
    for text in texts:
        match = OVERRIDE.fullmatch(text)
        if match is None or (match["value"] is None and match["prefix"] != "~"):
            raise UserError(f"cannot read {text!r}: write key=value")
        key, value = match["key"], match["value"]
        if key == "rewards" and (value or "").startswith("["):
            key, text = "rewards.functions", f"rewards.functions={value}"
            match = OVERRIDE.fullmatch(text) or match
        if key in GROUPS[command]:
            overrides.groups.add(key)
            if key == "experiment" and value == "null":  # takes back an experiment named before
                overrides.hydra = [word for word in overrides.hydra if not word.startswith("experiment=")]
            else:
                overrides.hydra.append(group_override(key, value, folders))
            continue
        if key.startswith("hydra."):
            raise UserError(f"{key} is not used here: everything of a run goes to output_dir")
        keys.check(key)
        overrides.given.add(key)
        overrides.hydra.append(key_override(match, text, keys))
    return overrides


def group_override(group: str, choice: str | None, folders: Sequence[Path]) -> str:
    choices = group_choices(group, folders)
    if choice in choices:
        return f"{group}={choice}"
    own = f"; a hub name or a file goes to {group}.name" if group in ("model", "dataset") else ""
    own = f"; functions stand in brackets, rewards=[{choice}]" if group == "rewards" else own
    raise UserError(f"{group}={choice}: no such choice{nearest_and_all(choice or '', choices)}{own}")


def key_override(match: re.Match[str], text: str, keys: KnownKeys) -> str:
    """One `key=value`: text goes to Hydra quoted, anything else must be in its grammar."""
    key, value = match["key"], match["value"]
    if match["prefix"] == "~":
        return text
    if keys.takes_text(key, value) and value != "null" and not QUOTED.fullmatch(value):
        value = quoted(escaped(value) if key in PROSE else value)
    parsed = parse_override(f"{key}={value}", text)
    if parsed.is_sweep_override():
        raise UserError(f"cannot read {text!r}: one value per key; a list is [a,b], text with a comma is quoted")
    return f"++{key}={value}"


def quoted(text: str) -> str:
    """Any text as Hydra's grammar quotes it: only quotes, and backslashes before them, need a backslash."""
    inside = re.sub(r"(\\*)'", r"\1\1\\'", text)
    return "'" + re.sub(r"(\\+)$", r"\1\1", inside) + "'"


def parse_override(override: str, text: str) -> Override:
    try:
        return OverridesParser.create().parse_override(override)
    except HydraException as error:
        raise UserError(f"cannot read {text!r}: {first_lines(error)}; quote text with special characters") from error


def first_lines(error: Exception) -> str:
    """The first line of a message, and the next where the first ends in a colon."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2]) if lines and lines[0].endswith(":") else (lines[0] if lines else repr(error))
