"""A reward function: what it returns, what it declares about itself, and the settings by which a run names it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Protocol, cast, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.adaptive import LARGEST_WEIGHT, Adaptation
from rlvr_vocab.text import short_text, writable


@dataclass(frozen=True)
class RewardSpec:
    """One reward of a run, as its configuration has it.

    Attributes:
        name: a name of `LIBRARY`, `module:function` or `file.py:function`.
        adaptive: how the weight follows success; None for a fixed one.
        full_mark: the score that counts as success; None for the one that the function declares.
        deadline: seconds for a batch, for user code only; None for no deadline, "auto" for `build.DEADLINE`.
    """

    name: str
    weight: Annotated[float, Field(ge=-LARGEST_WEIGHT, le=LARGEST_WEIGHT)] = 1.0
    params: dict[str, Any] = field(default_factory=dict)
    adaptive: Adaptation | None = None
    full_mark: float | None = None
    deadline: Literal["auto"] | Annotated[float, Field(gt=0)] | None = "auto"


@dataclass(frozen=True)
class Score:
    """The score of one completion, None where the reward does not apply to it, and the reason in a few words.

    Attributes:
        timed_out: the completion was not scored within a deadline.
        failed: the function raised or returned no score, for this row alone or for the batch.
        details: further values for records, such as the answer that the verifier read.
    """

    value: float | None
    reason: str
    timed_out: bool = field(default=False, repr=False)
    failed: Literal["row", "batch"] | None = field(default=None, repr=False)
    details: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", writable(str(self.reason)))  # records are UTF-8


@dataclass(frozen=True)
class Traits:
    """The properties that a reward function declares.

    Attributes:
        full_mark: the score of a completion that could not be better.
        grades: the full mark means that the answer is right.
        shapes: the parameter that names the reward whose scores are shaped.
        verifies: it compares with the gold answer through the verifier.
        answer_in: where it looks for the answer: the last box, or `<answer>` after `<reasoning>`.
        is_format: it scores the form of a turn.
        skip_gold_check: why a made-up turn with the gold answer says nothing about it; empty where such a turn should
            have the full mark.
        dry_run: it may be called before a training begins to see that it works.
        sends: it sends completions to a server.
        aliases: further names of it in the library, such as TRL's.
    """

    full_mark: float = 1.0
    grades: bool = False
    shapes: str = ""
    verifies: bool = False
    answer_in: Literal["box", "xml"] | None = None
    is_format: bool = False
    skip_gold_check: str = ""
    dry_run: bool = True
    sends: bool = False
    aliases: tuple[str, ...] = ()


class RewardFunction(Protocol):
    """Scores a batch, called with columns by name: a score per completion, None where it does not apply.

    Columns are `completions` (strings or lists of messages), `completion_ids`, `prompts`, and those of the data set,
    `solution` with the gold answers among them. In the library, keyword-only parameters are settings: they are checked
    against their annotations, and a wrong one is a `UserError`.

    Attributes:
        explain: the same, with reasons.
        settings: the names of its settings; none for user code, whose parameters may all be columns.
    """

    __name__: str
    explain: Callable[..., list[Score]]
    traits: Traits
    settings: frozenset[str]

    def __call__(self, *args: Any, **columns: Any) -> list[float | None]: ...


# The reward functions that a run can name without a file: those that the files of `rewards/library` declare.
LIBRARY: dict[str, RewardFunction] = {}
_LIBRARY_PACKAGE = "rlvr_vocab.rewards.library."
_STRICT = ConfigDict(strict=True, allow_inf_nan=False)


def reward(**traits: Any) -> Callable[[Callable[..., list[Any]]], RewardFunction]:
    """Make a reward function of one that returns a `Score`, or a number, per completion, with fields of `Traits`.

    >>> @reward(full_mark=1.0)
    ... def shouts(completions, **columns):
    ...     return [Score(1.0, "upper case") if c.isupper() else Score(0.0, "lower case") for c in completions]
    >>> shouts(completions=["YES", "no"]), shouts.explain(completions=["no"])
    ([1.0, 0.0], [Score(value=0.0, reason='lower case')])
    """

    def make(explain: Callable[..., list[Any]]) -> RewardFunction:
        in_library = explain.__module__.startswith(_LIBRARY_PACKAGE)
        parameters = inspect.signature(explain).parameters.values()
        settings = frozenset(item.name for item in parameters if in_library and item.kind is item.KEYWORD_ONLY)
        checked = _with_checked_settings(explain) if settings else explain

        @functools.wraps(explain)
        def values(*args: Any, **columns: Any) -> list[float | None]:
            return [score.value if isinstance(score, Score) else score for score in checked(*args, **columns)]

        function = cast(RewardFunction, values)
        function.explain, function.traits, function.settings = checked, Traits(**traits), settings
        if in_library:
            LIBRARY.update(dict.fromkeys((function.__name__, *function.traits.aliases), function))
        return function

    return make


def _with_checked_settings(explain: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """The function, with its keyword-only parameters checked against their annotations."""
    settings = {
        item.name: item for item in inspect.signature(explain).parameters.values() if item.kind is item.KEYWORD_ONLY
    }

    @functools.cache
    def types() -> dict[str, TypeAdapter[Any]]:
        hints = get_type_hints(explain, include_extras=True)
        return {name: TypeAdapter(hints[name], config=_STRICT) for name in settings}

    @functools.wraps(explain)
    def checked(*args: Any, **named: Any) -> list[Any]:
        for name, item in settings.items():
            if name not in named and item.default is item.empty:
                raise UserError(f"{explain.__name__}: {name} is missing")
            if name in named:
                try:
                    named[name] = types()[name].validate_python(named[name])
                except ValidationError as error:
                    expected = " or ".join(dict.fromkeys(each["msg"].removeprefix("Input ") for each in error.errors()))
                    raise UserError(f"{explain.__name__}: {name}={short_text(named[name])}: {expected}") from error
        return explain(*args, **named)

    return checked


def traits_of(function: Callable[..., Any]) -> Traits:
    """The declared traits of a function, or the defaults."""
    traits = getattr(function, "traits", None)
    return traits if isinstance(traits, Traits) else Traits()


def traits_by_name(name: str) -> Traits:
    """The traits of the library's function of a name; the defaults for user code, which is not loaded."""
    return traits_of(LIBRARY[name]) if name in LIBRARY else Traits()
