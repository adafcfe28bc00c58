"""Which runs are seeds of one arm, and by which configuration key the arms differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.exp.command_help import leaves
from rlvr_vocab.exp.command_line import parse_command_line
from rlvr_vocab.exp.compose import compose
from rlvr_vocab.exp.from_config import as_typed, read
from rlvr_vocab.exp.recorded_config import ABSENT, NOT_COMPARED
from rlvr_vocab.exp.resolution import resolved_config
from rlvr_vocab.exp.typed_sections import RewardSettings
from rlvr_vocab.nearest import did_you_mean

# What runs of one arm may differ in: their seed and their names, and how often they log and save.
_BOOKKEEPING = (
    *NOT_COMPARED,
    "exp_name",
    "seed",
    "training.seed",
    "training.data_seed",
    "training.run_name",
    "training.logging_steps",
    "training.kl_log_steps",
    "training.save_steps",
    "training.save_strategy",
    "training.save_total_limit",
)


@dataclass(frozen=True)
class Division:
    """Runs by their number, divided by the values of the key under test.

    Attributes:
        arms: the value, as it is typed, and the runs that have it; the baseline first.
        others: the other keys in which the runs differ, each with its value in every run.
    """

    key: str
    arms: tuple[tuple[str, tuple[int, ...]], ...]
    others: Mapping[str, tuple[str, ...]]


def divide(configs: Sequence[Mapping[str, Any]], key: str | None, baseline: Any) -> Division:
    """Divide runs into arms by their configurations.

    Args:
        key: the one under test; None where the configurations differ in one alone.
        baseline: its value in the arm that the others are compared with; None for 0, else the first run's.

    Raises:
        UserError: they do not differ, or in several keys and none is named, or there is no such key or value.
    """
    differing = differing_keys(configs)
    key = _key_under_test(configs, differing, key)
    values = differing.pop(key)
    arms = {value: tuple(n for n, other in enumerate(values) if other == value) for value in values}
    first = _baseline(key, list(arms), baseline)
    return Division(key, ((first, arms.pop(first)), *arms.items()), differing)


def differing_keys(configs: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """The keys in which configurations differ, bookkeeping left out, each with its value in every one."""
    flat = [dict(_leaves(config)) for config in configs]
    keys = dict.fromkeys(key for each in flat for key in each)
    if any(key not in each for key in keys for each in flat):  # a version adds keys with its defaults
        defaults = dict(_leaves(resolved_config(compose("train", parse_command_line("train", [])))))
        flat = [{key: defaults[key] for key in keys if key in defaults} | each for each in flat]
    values = {key: _spelled_alike([each.get(key, ABSENT) for each in flat]) for key in keys}
    return {key: each for key, each in values.items() if len(set(each)) > 1}


def _leaves(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Rewards with what a function leaves to its defaults."""
    if config.get("rewards"):
        config = {**config, "rewards": asdict(read(RewardSettings, config["rewards"], "rewards"))}
    return [(key, as_typed(value)) for key, value in leaves(config) if not _is_bookkeeping(key)]


def _spelled_alike(values: Sequence[str]) -> tuple[str, ...]:
    """A number that is written in several ways, 0 and 0.0, as it is written first."""
    return tuple(next(first for first in values if _same(first, value)) for value in values)


def _same(one: str, other: str) -> bool:
    """Whether two values are alike, as numbers where they are numbers."""
    if one == other:
        return True
    try:
        return float(one) == float(other)
    except ValueError:
        return False


def _is_bookkeeping(key: str) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in _BOOKKEEPING)


def _key_under_test(configs: Sequence[Mapping[str, Any]], differing: Mapping[str, Any], key: str | None) -> str:
    if key is not None and key not in differing:
        there = {name for config in configs for name, _ in leaves(config)}
        if key in there:
            raise UserError(f"key={key}: {_alike(key)}{_they_differ(differing)}")
        raise UserError(f"key={key}: no run has such a key{did_you_mean(key, list(there))}{_they_differ(differing)}")
    if key is not None:
        return key
    if not differing:
        raise UserError("runs: there is one arm only: the configurations differ in nothing but seeds and names")
    if len(differing) > 1:
        raise UserError(f"the runs differ in several keys ({', '.join(differing)}): say with key= which is under test")
    return next(iter(differing))


def _alike(key: str) -> str:
    return "it does not make an arm" if _is_bookkeeping(key) else "it has the same value in all runs"


def _they_differ(differing: Mapping[str, Any]) -> str:
    return f"; they differ in {', '.join(differing)}" if differing else "; the runs differ in no key"


def _baseline(key: str, values: Sequence[str], wanted: Any) -> str:
    if wanted is None:
        return next((value for value in values if _same(value, "0")), values[0])
    found = next((value for value in values if _same(value, as_typed(wanted))), None)
    if found is None:
        raise UserError(f"baseline={as_typed(wanted)}: no run has {key} at that; there is {', '.join(values)}")
    return found
