"""A reward function as a run uses it: how its settings name it, what it declares about itself, what it gives back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, cast

from rlvr_vocab.rewards.adaptive import Adaptation
from rlvr_vocab.text import writable


@dataclass(frozen=True)
class RewardSpec:
    """One reward of a run, as its configuration has it.

    Attributes:
        name: a name of `LIBRARY`, `module:function` or `file.py:function`.
        weight: its weight in the sum.
        params: its parameters.
        adaptive: how the weight follows success; None for a fixed one.
        full_mark: the score that counts as success; None for what the function declares.
        deadline: seconds that a function of the user's own has for a batch; None for any time; "auto" is
            `build.DEADLINE`. The library's never hang.
    """

    name: str
    weight: float = 1.0
    params: dict[str, Any] = field(default_factory=dict)
    adaptive: Adaptation | None = None
    full_mark: float | None = None
    deadline: Literal["auto"] | float | None = "auto"


@dataclass(frozen=True)
class Score:
    """The score of one completion, None where the reward does not apply to it, and why in a few words.

    Attributes:
        timed_out: what was looked at had not come to an end by its deadline.
    """

    value: float | None
    reason: str
    timed_out: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", writable(str(self.reason)))  # records are UTF-8


@dataclass(frozen=True)
class Traits:
    """What a reward function declares about itself.

    Attributes:
        full_mark: the score of a completion that leaves nothing to wish for.
        grades: a full mark says that the answer is right.
        shapes: the parameter that names what tells right from wrong, where the scores are those of that, shaped.
        verifies: it compares with the gold answer through the verifier.
        answer_in: where it wants the answer: in the last box, or in an `<answer>` element after a `<reasoning>` one.
        is_format: it scores the form of a turn.
        skip_gold_check: why a made-up turn with the gold answer in it says nothing about the function; empty where it
            does, and the turn should have the full mark.
        wanted: columns that it can be called without, and then looks at something else than in a training.
        columns: columns that it takes where the data set has them.
        dry_run: it may be called before a training begins to see that it works.
        sends: it sends completions to a server that its parameters name.
        aliases: further names of it in the library, TRL's for instance.
    """

    full_mark: float = 1.0
    grades: bool = False
    shapes: str = ""
    verifies: bool = False
    answer_in: Literal["box", "xml"] | None = None
    is_format: bool = False
    skip_gold_check: str = ""
    wanted: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    dry_run: bool = True
    sends: bool = False
    aliases: tuple[str, ...] = ()


class RewardFunction(Protocol):
    """A function of a batch, called with columns by name: one score per completion, None where it does not apply.

    What it is given, of which it takes what it needs: `completions`, assistant turns as strings or lists of messages;
    `completion_ids`, their sampled token ids, which a trainer passes; `prompts`; `think_tags`, what opens and closes
    thinking; and the columns of the data set, `solution` with the gold answers among them. Parameters that it cannot
    take are a `UserError` that names them, raised before anything is scored.

    Attributes:
        explain: the same, with reasons.
        traits: what it declares about itself.
    """

    __name__: str
    explain: Callable[..., list[Score]]
    traits: Traits

    def __call__(self, *args: Any, **columns: Any) -> list[float | None]: ...


# The reward functions that a run can name without a file: every one that a file of `rewards/library` declares.
LIBRARY: dict[str, RewardFunction] = {}
_LIBRARY_PACKAGE = "rlvr_vocab.rewards.library."


def reward(**traits: Any) -> Callable[[Callable[..., list[Any]]], RewardFunction]:
    """Make a reward function of one that returns a `Score`, or a number, per completion, with what it declares.

    Args:
        traits: fields of `Traits`.

    Example:
        >>> @reward(full_mark=1.0)
        ... def shouts(completions, **columns):
        ...     return [Score(1.0, "upper case") if c.isupper() else Score(0.0, "lower case") for c in completions]
        >>> shouts(completions=["YES", "no"])
        [1.0, 0.0]
        >>> shouts.explain(completions=["no"])
        [Score(value=0.0, reason='lower case')]
    """

    def make(explain: Callable[..., list[Any]]) -> RewardFunction:
        @functools.wraps(explain)
        def values(*args: Any, **columns: Any) -> list[float | None]:
            return [score.value if isinstance(score, Score) else score for score in explain(*args, **columns)]

        function = cast(RewardFunction, values)
        function.explain, function.traits = explain, Traits(**traits)
        if explain.__module__.startswith(_LIBRARY_PACKAGE):
            LIBRARY.update(dict.fromkeys((function.__name__, *function.traits.aliases), function))
        return function

    return make


def traits_of(function: Callable[..., Any]) -> Traits:
    """What a function declares; the defaults for one without a declaration."""
    traits = getattr(function, "traits", None)
    return traits if isinstance(traits, Traits) else Traits()


def traits_by_name(name: str) -> Traits:
    """What the library's function of a name declares; the defaults for the user's own, whose code is not loaded."""
    return traits_of(LIBRARY[name]) if name in LIBRARY else Traits()
