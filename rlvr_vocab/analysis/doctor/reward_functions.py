"""The reward functions of a run: what is known of them, and all of them as one line to type, with some changed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping
from typing import Any

from rlvr_vocab.record.metrics import RewardFact, RunFacts
from rlvr_vocab.rewards.library import LIBRARY
from rlvr_vocab.rewards.library.accuracy import accuracy
from rlvr_vocab.rewards.reward import Traits, traits_by_name

# What Hydra takes for text without quotes.
_PLAIN = re.compile(r"[A-Za-z_/.][\w./:-]*")
_NOT_TEXT = ("null", "true", "false", "nan", "inf")
_SHELL_READS = re.compile(r"[\"$`\\!]")


def is_own(name: str) -> bool:
    """Whether the function that is logged by this name is the user's own."""
    return _in_library(name) not in LIBRARY


def declared(name: str) -> Traits:
    """What the function that is logged by this name declares; the defaults for one of the user's own."""
    return traits_by_name(_in_library(name))


def full_mark(reward: RewardFact) -> float:
    """The score of success."""
    return declared(reward.name).full_mark if reward.full_mark is None else reward.full_mark


def _in_library(name: str) -> str:
    """The library's functions are logged by their names, a second one of a run as name_2."""
    return re.sub(r"_\d+$", "", name)


def rewards_line(
    facts: RunFacts,
    changed: Mapping[str, Mapping[str, Any]],
    *,
    without: Collection[str] = (),
    more: Collection[Mapping[str, Any]] = (),
) -> str:
    """All functions of the run as one word of the command line.

    Args:
        changed: by the name that a function is logged as, what is other than it was; `params` are joined.
        without: names of those that are left out; where nothing would be left, `rewards=accuracy`.
        more: further functions, where the run has none of that name.
    """
    entries = {each.name: _entry(each.asked_as or each.name, each.weight, each.more) for each in facts.rewards}
    for name, changes in changed.items():
        entry = entries.get(name, {"name": name})
        params = {**entry.get("params", {}), **changes.get("params", {})}
        entries[name] = {**entry, **changes, **({"params": params} if params else {})}
    asked = [each.asked_as for each in facts.rewards]
    kept = [
        *(entry for name, entry in entries.items() if name not in without),
        *(entry for entry in more if entry["name"] not in asked),
    ]
    if not kept:
        return "rewards=accuracy"
    line = f"rewards=[{','.join(map(_function, kept))}]"
    return shlex.quote(line) if _SHELL_READS.search(line) else f'"{line}"'


def without_own(facts: RunFacts) -> tuple[str, ...]:
    """The run's functions with `accuracy` in place of the user's own; nothing where it has none of these."""
    own = [each.name for each in facts.rewards if is_own(each.name)]
    grades = any(is_accuracy(each.asked_as) for each in facts.rewards)
    return (rewards_line(facts, {}, without=own, more=() if grades else ({"name": "accuracy"},)),) if own else ()


def is_accuracy(name: str) -> bool:
    """Whether a function is the library's `accuracy`, by whichever of its names."""
    return LIBRARY.get(name) is accuracy


def _entry(name: str, weight: float, more: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, **({} if weight == 1 else {"weight": weight}), **more}


def _function(entry: Mapping[str, Any]) -> str:
    return _typed(entry["name"]) if list(entry) == ["name"] else _typed(entry)


def _typed(value: Any) -> str:
    """A value in Hydra's grammar."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_typed(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_typed, value)) + "]"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if not isinstance(value, str):
        return repr(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT:
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
