"""Build the rewards that a trainer calls from those that a configuration names, in the library or in user files."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from rlvr_vocab.data.source import FROM_PYTHON, DecimalMark
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.guard import FROM_THE_TRAINER, Reward
from rlvr_vocab.rewards.library import LIBRARY
from rlvr_vocab.rewards.reward import RewardSpec, Traits, is_user_code, parameters_of, require_allowed, traits_of
from rlvr_vocab.text import did_you_mean, nearest_and_all

# The reward functions of the script that runs, by the names that its configuration has for them.
IN_SCRIPT: dict[str, Callable[..., Any]] = {}
# Seconds that user code has for a batch, unless it is given others.
DEADLINE = 300.0


@dataclass(frozen=True)
class RewardContext:
    """Values of a run that a reward function gets by the names of its parameters; None for those not known."""

    think_tags: tuple[str, str] | None = None
    max_completion_length: int | None = None
    decimal_mark: DecimalMark = "point"


def build_rewards(specs: Sequence[RewardSpec], context: RewardContext) -> list[Reward]:
    """The rewards of a run, in order; UserError for an unknown name or parameter, broken user code, or no reward."""
    if not specs:
        raise UserError("rewards: the list of functions is empty, a run needs at least one")
    rewards = []
    for spec, name in zip(specs, logged_names(specs), strict=True):
        function, deadline = find_function(spec.name), spec.deadline
        parameters, takes_any = parameters_of(function)
        if not (is_user_code(spec.name) and takes_any):
            known = [each for each in parameters if each not in FROM_THE_TRAINER]
            for key in spec.params.keys() - known:
                hint = did_you_mean(key, known) or f"; its parameters are {', '.join(known) or 'none'}"
                raise UserError(f"rewards: {spec.name} has no parameter {key}{hint}")
        if isinstance(deadline, str):
            deadline = DEADLINE if is_user_code(spec.name) else None
        elif deadline is not None and not is_user_code(spec.name):
            raise UserError(f"rewards: {spec.name} is of the library, ends by itself, and takes no deadline")
        filled = {key: value for key, value in vars(context).items() if key in parameters and value is not None}
        rewards.append(Reward(function, name, replace(spec, params={**filled, **spec.params}), deadline))
    return rewards


def find_function(name: str) -> Callable[..., Any]:
    """The function that a reward is named by.

    Raises UserError if there is none, it takes no completions by keyword, or a recorded run alone names it.
    """
    if name in IN_SCRIPT:
        return IN_SCRIPT[name]
    if is_user_code(name):
        found = load_attribute(name)
        function = reward_of_environment(found) if has_reward(found) else load_function(name)
        parameters, takes_any = parameters_of(function)
        if not takes_any and "completions" not in parameters:
            raise UserError(f"rewards: {name} takes no parameter completions, so it is no reward and is not called")
        return function
    if name not in LIBRARY:
        own = "; a function of your own is file.py:function or module:function"
        raise UserError(f"rewards: no reward {name}{nearest_and_all(name, sorted(LIBRARY))}{own}")
    function = LIBRARY[name]
    if traits_of(function).sends:
        require_allowed(name, "sends completions, and the key that its parameters name, to a server")
    return function


def has_reward(found: Any) -> bool:
    """Whether it is the class of an environment that owns a reward."""
    return isinstance(found, type) and callable(getattr(found, "get_reward", None))


@cache
def reward_of_environment(kind: Any) -> Callable[..., Any]:
    """`get_reward` of an environment's class as a reward function; None for a completion in no such environment."""

    async def awaited(scores: list[Any]) -> list[Any]:
        return [await score if inspect.isawaitable(score) else score for score in scores]

    def get_reward(completions: Any, environments: Any) -> Any:
        scores = [each.get_reward() if type(each) is kind else None for each in environments]
        return awaited(scores) if any(map(inspect.isawaitable, scores)) else scores

    return get_reward


def declared(spec: RewardSpec) -> Traits:
    """The traits of a reward's function."""
    return traits_of(find_function(spec.name))


def required_columns(spec: RewardSpec, trainer: Sequence[str] = FROM_THE_TRAINER) -> list[str]:
    """The columns that a function requires; `trainer` names the arguments that the trainer passes."""
    function = find_function(spec.name)
    given = {*trainer, *spec.params, *getattr(function, "settings", ())}
    parameters, _ = parameters_of(function)
    return [name for name, item in parameters.items() if item.default is item.empty and name not in given]


def logged_names(specs: Sequence[RewardSpec]) -> list[str]:
    """The metric name of each reward: its function's name, with a number if it is repeated.

    User code with the name of a function of the library gets the name of its file as a prefix.
    """
    plain: list[str] = []
    for spec in specs:
        where, _, name = spec.name.rpartition(":")
        if where and name in LIBRARY and not where.startswith(FROM_PYTHON):  # TRL logs it by its own name
            module = Path(where).stem if where.endswith(".py") else where.rpartition(".")[2]
            name = f"{re.sub(r'[^0-9A-Za-z_]', '_', module)}_{name}"
        plain.append(name)
    names: list[str] = []
    for name in plain:
        numbered = (f"{name}_{number}" for number in count(2))
        names.append(name if name not in names else next(each for each in numbered if each not in (*names, *plain)))
    return names


# --- code of the user's own ---


def load_function(name: str, key: str = "rewards") -> Callable[..., Any]:
    """The function that `load_attribute` loads; `file.py:object.method` names a method."""
    function = load_attribute(name, key)
    if not callable(function) or isinstance(function, type):
        raise UserError(f"{key}: {name} is no function, and no object that can be called")
    return cast(Callable[..., Any], function)


def load_attribute(name: str, key: str = "rewards") -> Any:
    """What `module:attribute` or `file.py:attribute` names; UserError if this command may not or cannot import it."""
    if name.startswith(FROM_PYTHON):
        typed = name.removeprefix(FROM_PYTHON)
        value = f"[{typed}]" if key in ("rewards", "tools") else typed
        file = f"{key}={value}, which imports that file" if ".py:" in typed else f"{key} of a file"
        raise UserError(
            f"{key}: {typed.rpartition(':')[2]} is code of a Python script, which trained this run: give {file}"
        )
    if not is_user_code(name):
        raise UserError(f"{key}={name}: write file.py:Class or module:Class")
    require_allowed(name, "is code, which would be imported and called")
    where, _, attribute = name.rpartition(":")
    try:
        module = _from_file(Path(where).expanduser(), key) if where.endswith(".py") else importlib.import_module(where)
    except (KeyboardInterrupt, UserError):
        raise
    except BaseException as error:  # anything that user code raises, SystemExit too
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise UserError(f"{key}: {name} cannot be imported: {type(error).__name__}{line}: {error}") from error
    try:
        return attrgetter(attribute)(module)
    except AttributeError:
        named = [each for each, value in vars(module).items() if callable(value) and not each.startswith("_")]
        near = did_you_mean(attribute, named)
        raise UserError(f"{key}: {name}: {attribute!r} does not exist in {where}{near}") from None


def overridden(own: type, ours: type) -> list[str]:
    """The methods of `ours`, and other names without two underscores, that a class of the user's replaces."""
    theirs = [each for each in own.__mro__[: own.__mro__.index(ours)] if not each.__module__.startswith("rlvr_vocab.")]
    return [name for each in theirs for name in vars(each) if hasattr(ours, name) and not name.startswith("__")]


def code_record(name: str) -> dict[str, str]:
    """A function of the library by the first of its names; user code with its file, and a hash of the content."""
    if name in LIBRARY:
        return {"name": LIBRARY[name].__name__}
    find_function(name)  # which imports its module
    return user_code_record(name)


def user_code_record(name: str) -> dict[str, str]:
    """User code that has been imported, with its file and a hash of the content where it has one."""
    where, _, function = name.removeprefix(FROM_PYTHON).rpartition(":")
    if name in IN_SCRIPT and not Path(where).is_file():
        return {"name": function}
    file = where if where.endswith(".py") or name in IN_SCRIPT else getattr(sys.modules[where], "__file__", None)
    if file is None:
        return {"name": name}
    path = Path(file).expanduser()
    return {"name": function, "file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def _from_file(path: Path, key: str) -> ModuleType:
    if not path.is_file():
        raise UserError(f"{key}: no such file {path}")
    path = path.resolve()
    name = f"rlvr_vocab_user_code_{path}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:  # last: the folder hides no installed package
        sys.path.append(str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
