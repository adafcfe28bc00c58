"""From the rewards that a configuration names to those that a trainer calls."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.guard import Reward
from rlvr_vocab.rewards.library import LIBRARY
from rlvr_vocab.rewards.reward import RewardSpec, Traits, traits_of
from rlvr_vocab.rewards.user_code import is_user_code, load_function, require_allowed
from rlvr_vocab.text import did_you_mean, nearest_and_all

# Arguments that TRL passes to every reward function beside the columns of the data set.
FROM_THE_TRAINER = ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric")
# Seconds that user code has for a batch, unless it is given others.
DEADLINE = 300.0


@dataclass(frozen=True)
class RewardContext:
    """Values of a run that a reward function gets by the names of its parameters; None for those not known."""

    think_tags: tuple[str, str] | None = None
    standard_size: int | None = None
    think_open_id: int | None = None
    think_close_id: int | None = None
    max_completion_length: int | None = None


def build_rewards(specs: Sequence[RewardSpec], context: RewardContext) -> list[Reward]:
    """The rewards of a run, in the order given.

    Raises:
        UserError: a name or a parameter is not known, user code cannot be loaded, or there is no reward at all.
    """
    if not specs:
        raise UserError("rewards: the list of functions is empty, a run needs at least one")
    rewards = []
    for spec, name in zip(specs, logged_names(specs), strict=True):
        function = find_function(spec.name)
        parameters = _parameters(function)
        _require_known(spec, function, parameters)
        filled = {key: value for key, value in asdict(context).items() if key in parameters and value is not None}
        rewards.append(
            Reward(
                function,
                name,
                weight=spec.weight,
                params={**filled, **spec.params},
                full_mark=spec.full_mark,
                adaptive=spec.adaptive,
                deadline=_deadline(spec),
            )
        )
    return rewards


def find_function(name: str) -> Callable[..., Any]:
    """The function that a reward is named by.

    Raises:
        UserError: there is none, it cannot be called with columns by name, or a recorded run alone names it.
    """
    if is_user_code(name):
        return _called_by_keyword(load_function(name), name)
    if name not in LIBRARY:
        own = "; a function of your own is file.py:function or module:function"
        raise UserError(f"rewards: no reward {name}{nearest_and_all(name, sorted(LIBRARY))}{own}")
    if LIBRARY[name].traits.sends:
        require_allowed(name, "sends completions, and the key that its parameters name, to a server")
    return LIBRARY[name]


def declared(spec: RewardSpec) -> Traits:
    """The traits of a reward's function."""
    return traits_of(find_function(spec.name))


def required_columns(spec: RewardSpec, trainer: Sequence[str] = FROM_THE_TRAINER) -> list[str]:
    """The columns that a function cannot do without; `trainer` names those that it gets besides the data set's."""
    function = find_function(spec.name)
    given = {*trainer, *spec.params, *getattr(function, "settings", ())}
    return [name for name, item in _parameters(function).items() if item.default is item.empty and name not in given]


def logged_names(specs: Sequence[RewardSpec]) -> list[str]:
    """The name that each is logged by: its function's, with a number where that occurs again."""
    plain_names = [_plain_name(spec.name) for spec in specs]
    names: list[str] = []
    for plain in plain_names:
        numbered = (f"{plain}_{number}" for number in itertools.count(2) if f"{plain}_{number}" not in plain_names)
        names.append(next(name for name in itertools.chain([plain], numbered) if name not in names))
    return names


def _plain_name(name: str) -> str:
    """A function's name; for user code that is called like a function of the library, after its file's."""
    where, _, function = name.rpartition(":")
    if not where or function not in LIBRARY:
        return function
    module = Path(where).stem if where.endswith(".py") else where.rpartition(".")[2]
    return f"{re.sub(r'[^0-9A-Za-z_]', '_', module)}_{function}"


def _deadline(spec: RewardSpec) -> float | None:
    """Seconds for a batch; None for no deadline."""
    if isinstance(spec.deadline, str):
        return DEADLINE if is_user_code(spec.name) else None
    if spec.deadline is not None and not is_user_code(spec.name):
        raise UserError(
            f"rewards: {spec.name} takes no deadline beside its name: it is of the library, and ends by itself"
        )
    return spec.deadline


def _require_known(spec: RewardSpec, function: Callable[..., Any], parameters: Mapping[str, inspect.Parameter]) -> None:
    if is_user_code(spec.name) and _takes_any(function):
        return
    names = [name for name in parameters if name not in FROM_THE_TRAINER]
    for name in spec.params:
        if name not in names:
            hint = did_you_mean(name, names) or f"; its parameters are {', '.join(names) or 'none'}"
            raise UserError(f"rewards: {spec.name} has no parameter {name}{hint}")


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters that can be given by keyword."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: item for name, item in inspect.signature(function).parameters.items() if item.kind in kinds}


def _takes_any(function: Callable[..., Any]) -> bool:
    return any(item.kind is item.VAR_KEYWORD for item in inspect.signature(function).parameters.values())


def _called_by_keyword(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The function that a user named; raises UserError where it does not take completions by keyword."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError as error:  # some functions written in C
        raise UserError(f"rewards: {name}: {error}; wrap it in a Python function") from error
    for item in parameters.values():
        if item.kind is item.POSITIONAL_ONLY and item.default is item.empty:
            raise UserError(f"rewards: {name} takes {item.name} by position only; rewards are called by keyword")
    if "completions" not in parameters and not _takes_any(function):
        raise UserError(f"rewards: {name} takes no parameter completions, so it is no reward and is not called")
    return function
