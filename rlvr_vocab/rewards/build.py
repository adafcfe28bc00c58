"""Turns a list of named rewards into the functions and weights that a trainer takes."""

from __future__ import annotations

import inspect
import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.adaptive import LARGEST_WEIGHT, AdaptiveWeight
from rlvr_vocab.rewards.guard import GuardedReward
from rlvr_vocab.rewards.library import LIBRARY
from rlvr_vocab.rewards.library.accuracy import accuracy, verdicts
from rlvr_vocab.rewards.reward import RewardSpec, traits_of
from rlvr_vocab.rewards.user_code import is_user_code, load_function, require_allowed
from rlvr_vocab.text import did_you_mean, nearest_and_all
from rlvr_vocab.verify.verifier import Verdict

# What TRL hands to every reward function beside the columns of the data set.
FROM_THE_TRAINER = ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric")
# Seconds that a function of the user's own has for a batch, unless it is given others.
DEADLINE = 300.0


@dataclass(frozen=True)
class RewardContext:
    """What a run knows and a reward function may ask for by the name of a parameter; None for what is not known."""

    think_tags: tuple[str, str] | None = None
    standard_size: int | None = None
    think_open_id: int | None = None
    think_close_id: int | None = None
    max_completion_length: int | None = None


class Reward(GuardedReward):
    """A reward of a run, ready for a trainer: a function with its parameters, those that the run knows filled in.

    Attributes:
        name: what it is logged as, different for each reward of a run.
        weight: its weight, at the start.
        full_mark: the score that counts as success.
        adaptive: the weight as it moves; None for a fixed one.
    """

    def __init__(self, spec: RewardSpec, name: str, context: RewardContext) -> None:
        function = find_function(spec.name)
        parameters = _parameters(function)
        _require_known(spec, parameters)
        super().__init__(function, name, _deadline(spec, parameters))
        self.weight = spec.weight
        self.full_mark = traits_of(function).full_mark if spec.full_mark is None else spec.full_mark
        _require_numbers(spec, self.full_mark)
        self.adaptive = AdaptiveWeight(spec.weight, self.full_mark, spec.adaptive) if spec.adaptive else None
        self.is_library = not is_user_code(spec.name)
        known = {item.name: getattr(context, item.name) for item in fields(context)}
        filled = {key: value for key, value in known.items() if key in parameters and value is not None}
        self._params = {**filled, **spec.params}
        # A column that happens to be called like a parameter of ours is no value for it.
        defaults = {key for key, parameter in parameters.items() if parameter.default is not parameter.empty}
        taken = {*FROM_THE_TRAINER, *traits_of(function).columns}
        self._not_columns = defaults - taken if self.is_library else frozenset()
        self._takes_only = None if _takes_any(function) else set(parameters)

    def arguments(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        wanted = {name: values for name, values in columns.items() if name not in self._not_columns}
        if self._takes_only is not None:
            wanted = {name: values for name, values in wanted.items() if name in self._takes_only}
        return {**wanted, **self._params}

    def call(self, columns: Mapping[str, Any]) -> Any:
        explain = getattr(self.function, "explain", None)
        return (explain if callable(explain) else self.function)(**self.arguments(columns))

    def check_parameters(self) -> None:
        """Raises UserError where the library's function cannot take the values of its parameters."""
        if self.is_library:
            needed = [name for name, item in _parameters(self.function).items() if item.default is item.empty]
            self.call({name: [] for name in {*needed, "prompts", "completions", "completion_ids", "solution"}})

    def verdicts(self, **columns: Any) -> list[Verdict] | None:
        """What the verifier read and decided; None for a function other than `accuracy`."""
        if self.function is not accuracy:
            return None
        arguments = self.arguments(columns)
        return verdicts(**{name: arguments[name] for name in _parameters(verdicts) if name in arguments})


def build_rewards(specs: Sequence[RewardSpec], context: RewardContext) -> list[Reward]:
    """The rewards of a run, in the order given.

    Raises:
        UserError: a name or a parameter is not known, user code cannot be loaded, a weight, full mark or deadline is no
            number that there can be, or there is no reward at all.
    """
    if not specs:
        raise UserError("rewards: the list of functions is empty, a run needs at least one")
    return [Reward(spec, name, context) for spec, name in zip(specs, logged_names(specs), strict=True)]


def _deadline(spec: RewardSpec, parameters: Mapping[str, inspect.Parameter]) -> float | None:
    """Seconds for a batch; None where there is no need of a thread, or no wish for one."""
    own = is_user_code(spec.name)
    if isinstance(spec.deadline, str):
        return DEADLINE if own else None
    if spec.deadline is None:
        return None
    if not own:
        has_one = f"params: {{deadline: {spec.deadline:g}}} is its own, for one answer"
        why = has_one if "deadline" in parameters else "it is of the library, whose functions end by themselves"
        raise UserError(f"rewards: {spec.name} takes no deadline={spec.deadline:g} beside its name: {why}")
    if not 0 < spec.deadline < math.inf:
        raise UserError(f"rewards: the deadline of {spec.name} is {spec.deadline}: must be above 0, or null for none")
    return spec.deadline


def find_function(name: str) -> Callable[..., Any]:
    """The function that a reward is named by.

    Raises:
        UserError: there is none, or it cannot be called with columns by name.
    """
    if is_user_code(name):
        return _called_by_keyword(load_function(name), name)
    if name not in LIBRARY:
        own = "; a function of your own is file.py:function or module:function"
        raise UserError(f"rewards: no reward {name}{nearest_and_all(name, sorted(LIBRARY))}{own}")
    if traits_of(LIBRARY[name]).sends:
        require_allowed(name, "sends completions, and the key that its parameters name, to a server")
    return LIBRARY[name]


def required_columns(spec: RewardSpec, trainer: Sequence[str] = FROM_THE_TRAINER) -> list[str]:
    """The columns that a function cannot do without: its parameters without a default.

    Args:
        trainer: names of what it gets besides the columns.
    """
    function = find_function(spec.name)
    return [
        name
        for name, parameter in _parameters(function).items()
        if parameter.default is parameter.empty and name not in {*trainer, *spec.params}
    ]


def _require_numbers(spec: RewardSpec, full_mark: Any) -> None:
    # `not <=` is true of NaN too.
    if not abs(spec.weight) <= LARGEST_WEIGHT:
        most = f"{LARGEST_WEIGHT:,.0f}"
        raise UserError(f"rewards: the weight of {spec.name} is {spec.weight}: must be from -{most} to {most}")
    if not isinstance(full_mark, int | float) or not math.isfinite(full_mark):
        raise UserError(f"rewards: the full_mark of {spec.name} is {full_mark}: must be a finite number")


def _require_known(spec: RewardSpec, parameters: Mapping[str, inspect.Parameter]) -> None:
    takes_any = is_user_code(spec.name) and _takes_any(find_function(spec.name))
    names = [name for name in parameters if name not in FROM_THE_TRAINER]
    for name in spec.params:
        if name not in names and not takes_any:
            takes = f"its parameters are {', '.join(names)}" if names else "it has none"
            hint = did_you_mean(name, names) or f"; {takes}"
            raise UserError(f"rewards: {spec.name} has no parameter {name}{hint}")


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The named parameters, as they can be given by keyword."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: item for name, item in inspect.signature(function).parameters.items() if item.kind in kinds}


def _takes_any(function: Callable[..., Any]) -> bool:
    return any(item.kind is item.VAR_KEYWORD for item in inspect.signature(function).parameters.values())


def _called_by_keyword(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The function that a user named, which must say what it takes, and take it by keyword.

    Raises:
        UserError: it does not.
    """
    try:
        parameters = inspect.signature(function).parameters
    except ValueError as error:  # some functions written in C
        raise UserError(f"rewards: {name}: {error}; wrap it in a function of Python's") from error
    for item in parameters.values():
        if item.kind is item.POSITIONAL_ONLY and item.default is item.empty:
            raise UserError(f"rewards: {name} takes {item.name} by position only; rewards are called by keyword")
    if "completions" not in parameters and not _takes_any(function):
        raise UserError(f"rewards: {name} takes no parameter completions, so it is no reward and is not called")
    return function


def logged_names(specs: Sequence[RewardSpec]) -> list[str]:
    """What each is logged as: its function's name, with a number where that occurs again."""
    names: list[str] = []
    for spec in specs:
        plain = _plain_name(spec.name)
        numbered = (f"{plain}_{number}" for number in itertools.count(2))
        names.append(next(name for name in itertools.chain([plain], numbered) if name not in names))
    return names


def _plain_name(name: str) -> str:
    """A function's name; where it is one of the library's, which mean the library's own, after that of its file."""
    where, _, function = name.rpartition(":")
    if not where or function not in LIBRARY:
        return function
    module = Path(where).stem if where.endswith(".py") else where.rpartition(".")[2]
    return f"{re.sub(r'[^0-9A-Za-z_]', '_', module)}_{function}"
