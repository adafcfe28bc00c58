"""A recorded configuration that is older, or written by hand: what it leaves out has its default."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from rlvr_vocab.config.compose import CONF
from rlvr_vocab.config.grpo_fields import GRPO_FIELDS
from rlvr_vocab.config.resolution import settled_function
from rlvr_vocab.config.sections import ModelSettings
from rlvr_vocab.config.values import as_typed, read
from rlvr_vocab.errors import UserError

_OF_MODEL = ("reasoning_vocab_size", "reasoning_multiplicity", "source_ids", "reasoning_mode", "think_tags")
_NUMBERS: dict[tuple[str, ...], type] = {("int",): int, ("float",): float}
_NOBODY_KNOWS = "unknown"


def with_defaults(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The configuration of the run in a folder with all that `RunFacts` are made of.

    Raises:
        UserError: a value of it is none that there can be.
    """
    return {
        **config,
        "exp_name": read(str, config.get("exp_name") or folder.resolve().name, "exp_name"),
        "seed": read(int, config["seed"] if "seed" in config else _shipped("config")["seed"], "seed"),
        "model": _model(config["model"]),
        "dataset": {**config["dataset"], "name": config["dataset"].get("name") or _NOBODY_KNOWS},
        "training": {name: _trained_with(name, value) for name, value in config["training"].items()},
        "rewards": _rewards(config.get("rewards")),
    }


def _shipped(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((CONF / f"{name}.yaml").read_text(encoding="utf-8"))
    return content


def _model(given: Mapping[str, Any]) -> dict[str, Any]:
    missing = [name for name in _OF_MODEL if name not in given]
    model = {**given, **({name: _shipped("model/_base")[name] for name in missing} if missing else {})}
    hints = get_type_hints(ModelSettings)
    for name in _OF_MODEL:
        read(hints[name], model[name], f"model.{name}")
    return {**model, "name": given.get("name") or _NOBODY_KNOWS}


def _trained_with(name: str, value: Any) -> Any:
    """YAML takes 2e-4 for text."""
    kind = _NUMBERS.get(GRPO_FIELDS[name].kinds) if name in GRPO_FIELDS else None
    if value is None or kind is None:
        return value
    try:
        return read(kind, float(value) if isinstance(value, str) else value, name)
    except (ValueError, UserError) as error:
        raise UserError(f"training.{name}={as_typed(value)}: expected a number") from error


def _rewards(given: Any) -> dict[str, Any]:
    """A choice of the library's by its name, functions in brackets, or all of it spelled out."""
    if isinstance(given, str):
        path = CONF / "rewards" / f"{given}.yaml"
        given = _shipped(f"rewards/{given}") if path.is_file() else [given]
    rewards = {"functions": given} if isinstance(given, list) else given or {"functions": []}
    functions = rewards.get("functions") if isinstance(rewards, Mapping) else None
    if not isinstance(functions, list):
        raise UserError(f"rewards: expected functions: [...], got {given!r:.80}")
    return {**rewards, "functions": [settled_function(function) for function in functions]}
