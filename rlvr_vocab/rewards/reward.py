"""A reward function: its scores, traits and settings, whether its code may be used, how it reads a completion."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.adaptive import LARGEST_WEIGHT, Adaptation
from rlvr_vocab.text import short_text, writable

Tags = Annotated[tuple[str, str], Field(strict=False)]  # a list in a configuration
THINK_TAGS = ("<think>", "</think>")


@dataclass(frozen=True)
class RewardSpec:
    """One reward of a run, as its configuration has it."""

    name: str  # of `LIBRARY`, `module:function` or `file.py:function`
    weight: Annotated[float, Field(ge=-LARGEST_WEIGHT, le=LARGEST_WEIGHT)] = 1.0
    params: dict[str, Any] = field(default_factory=dict)
    adaptive: Adaptation | None = None
    full_mark: float | None = None  # the score that counts as success; None for the declared one
    deadline: Literal["auto"] | Annotated[float, Field(gt=0)] | None = "auto"  # seconds for a batch of user code


@dataclass(frozen=True)
class Score:
    """The score of one completion, and the reason in a few words."""

    value: float | None  # None where the reward does not apply
    reason: str
    timed_out: bool = field(default=False, repr=False)
    failed: Literal["row", "batch"] | None = field(default=None, repr=False)  # it raised, or returned no score

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", writable(str(self.reason)))  # records are UTF-8


@dataclass(frozen=True)
class Traits:
    """The properties that a reward function declares."""

    full_mark: float = 1.0  # the best score
    grades: bool = False  # the full mark means that the answer is right
    shapes: str = ""  # the parameter that names the reward whose scores are shaped
    verifies: bool = False  # it compares with the gold answer through the verifier
    answer_in: Literal["box", "xml"] | None = None  # where it looks for the answer
    is_format: bool = False  # it scores the form of a turn
    skip_gold_check: str = ""  # why a turn made from the gold answer may miss the full mark
    dry_run: bool = True  # the dry run before a training may call it
    sends: bool = False  # it sends completions to a server
    runs_programs: bool = False
    reads_thought: Literal["nothing", "form", "length", "words"] | None = None  # None: it does not say
    reads_words_with: tuple[str, Any] = ("", None)  # the setting, and its value, with which it reads the words
    aliases: tuple[str, ...] = ()  # further names of it in the library, such as TRL's

    def __post_init__(self) -> None:
        if self.reads_thought not in (None, "nothing", "form", "length", "words"):
            raise UserError(f"reads_thought={self.reads_thought}: should be nothing, form, length or words")

    def declared_reading(self, params: Mapping[str, Any]) -> str | None:
        """What it reads of the thought with these parameters, as it declares; None where it does not say."""
        name, value = self.reads_words_with
        return "words" if name and params.get(name) == value else self.reads_thought


# The reward functions that a run can name without a file: those that the files of `rewards/library` declare.
LIBRARY: dict[str, Any] = {}
_LIBRARY_PACKAGE = "rlvr_vocab.rewards.library."
_STRICT = ConfigDict(strict=True, allow_inf_nan=False)


def reward(**traits: Any) -> Callable[[Callable[..., list[Any]]], Any]:
    """Make a reward function of one that returns a `Score`, or a number, per completion, with fields of `Traits`.
    Its `explain` gives the scores with their reasons. In the library, keyword-only parameters are its `settings`.
    >>> @reward(full_mark=1.0)
    ... def shouts(completions, **columns):
    ...     return [Score(1.0, "upper case") if c.isupper() else Score(0.0, "lower case") for c in completions]
    >>> shouts(completions=["YES", "no"]), shouts.explain(completions=["no"])
    ([1.0, 0.0], [Score(value=0.0, reason='lower case')])
    """

    def make(explain: Callable[..., list[Any]]) -> Any:
        in_library = explain.__module__.startswith(_LIBRARY_PACKAGE)
        parameters = inspect.signature(explain).parameters.values()
        settings = {item.name: item for item in parameters if in_library and item.kind is item.KEYWORD_ONLY}
        checked = _with_checked_settings(explain, settings)

        @functools.wraps(explain)
        def function(*args: Any, **columns: Any) -> list[float | None]:
            return [score.value if isinstance(score, Score) else score for score in checked(*args, **columns)]

        vars(function).update(explain=checked, traits=Traits(**traits), settings=frozenset(settings))
        if in_library:
            LIBRARY.update(dict.fromkeys((function.__name__, *traits.get("aliases", ())), function))
        return function

    return make


def _with_checked_settings(
    explain: Callable[..., list[Any]], settings: Mapping[str, inspect.Parameter]
) -> Callable[..., list[Any]]:
    """The function, with its keyword-only parameters checked against their annotations."""

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


# The names whose code a command may import; None for all, as in a Python program that imports them itself.
_allowed: set[str] | None = None


@contextmanager
def only_allowed_code() -> Iterator[None]:
    """Within the block, `require_allowed` refuses every name that was not passed to `allow`."""
    global _allowed
    before, _allowed = _allowed, set()
    try:
        yield
    finally:
        _allowed = before


def allow(names: Iterable[str]) -> None:
    """Allow rewards of these names, which the user has typed, alone or in a configuration."""
    if _allowed is not None:
        _allowed.update(names)


def require_allowed(name: str, effect: str) -> None:
    """Raises UserError for a name that was not allowed; `effect` continues the sentence that the name begins."""
    if _allowed is not None and name not in _allowed:
        where = "a recorded run names it and this command line does not"
        raise UserError(f"{name} {effect}: {where}; if you trust that run, add trust_code=true")


def parameters_of(function: Callable[..., Any]) -> tuple[dict[str, inspect.Parameter], bool]:
    """The parameters to give by keyword (none for a C function that lists none), and whether it takes any others."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:
        return {}, False
    by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    named = {name: item for name, item in parameters.items() if item.kind in by_keyword}
    return named, any(item.kind is item.VAR_KEYWORD for item in parameters.values())


def is_user_code(name: str) -> bool:
    """Whether a name is the location of user code, rather than a name in the library."""
    return ":" in name


ERRORS = ("{'error':", '{"error":')  # TRL writes the first for a call that raised


class AssistantTurn(NamedTuple):
    """A turn of the assistant: its text, the calls that it ended in, and the texts that tools answered with."""

    text: str
    calls: Sequence[Mapping[str, Any]] = ()
    results: Sequence[str] = ()

    @property
    def ended_in_call(self) -> bool:
        return bool(self.calls or self.results)


def assistant_turns(completion: Any) -> list[AssistantTurn]:
    """The turns of the assistant in a completion, which is a string or a list of messages; those of users left out."""
    turns = list[AssistantTurn]()
    for message in _messages(completion):
        text = content_text(message.get("content"))
        if is_assistant(message):
            turns.append(AssistantTurn(text, _calls_of(message)))
        elif message["role"] == "tool" and turns:
            turns[-1] = turns[-1]._replace(results=[*turns[-1].results, text])
    return turns


def turn_text(completion: Any) -> str:
    """The text of the last assistant turn, which the answer is read from; empty where that turn ended in a call.

    >>> call = {"role": "assistant", "content": "I try 42.", "tool_calls": [{"function": {"name": "add"}}]}
    >>> turn_text([call, {"role": "tool", "content": "7"}, {"role": "assistant", "content": "It is 7."}])
    'It is 7.'
    """
    turns = assistant_turns(completion)
    return turns[-1].text if turns and not turns[-1].ended_in_call else ""


def transcript(completion: Any) -> list[tuple[str, str]]:
    """Author and text of each part of a completion: `assistant`, `call`, `tool NAME`, `user`; no empty ones.

    >>> call = {"function": {"name": "add", "arguments": {"a": 3}}}
    >>> transcript([{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "name": "add", "content": "7"}])
    [('call', 'add({"a": 3})'), ('tool add', '7')]
    """
    parts = list[tuple[str, str]]()
    for message in _messages(completion):
        role, name = message.get("role") or "assistant", message.get("name")
        parts.append((f"{role} {name}" if role == "tool" and name else role, content_text(message.get("content"))))
        for call in _calls_of(message):
            given = call.get("arguments", {})
            text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, default=str)
            parts.append(("call", f"{call.get('name', '?')}({text})"))
    return [part for part in parts if part[1]]


def assistant_text(completion: Any) -> str:
    """Everything that the assistant wrote: its turns and calls, without the words of tools and users."""
    return "\n".join(text for author, text in transcript(completion) if author in ("assistant", "call"))


def is_assistant(message: Mapping[str, Any]) -> bool:
    return (message.get("role") or "assistant") == "assistant"


def _messages(completion: Any) -> Sequence[Mapping[str, Any]]:
    return [{"content": completion}] if isinstance(completion, str) else completion or ()


def _calls_of(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The calls of an assistant message, each with a `name` and `arguments`, in TRL's form or by themselves."""
    calls = message.get("tool_calls") if is_assistant(message) else None
    return [call.get("function") or call for call in calls or () if isinstance(call, dict)]


def has_parts(content: Any) -> bool:
    """Whether a message's content is a list with typed parts, such as text and images; tools return other lists."""
    return isinstance(content, list) and any(isinstance(part, dict) and "type" in part for part in content)


def content_text(content: Any) -> str:
    """The text of a message's content: of its parts, or as Python shows a value that a tool returned; None is empty.

    >>> content_text([{"type": "text", "text": "a"}, {"type": "image"}]), content_text([("a", 1)]), content_text(None)
    ('a', "[('a', 1)]", '')
    """
    if has_parts(content):
        parts = (part.get("text") if isinstance(part, dict) else part for part in content)
        return "".join(part for part in parts if isinstance(part, str))
    return "" if content is None else str(content)


def after_thinking(turn: str, think_tags: tuple[str, str] = THINK_TAGS) -> str | None:
    """The part of a turn after its last thinking; None where the thinking was never closed.

    >>> after_thinking("<think>6 * 7</think>It is 42.")
    'It is 42.'
    >>> after_thinking("<think>6 * 7 =") is None
    True
    """
    opened, closed = think_tags
    start, end = turn.rfind(opened), turn.rfind(closed)
    if start > end:
        return None
    return turn if end < 0 else turn[end + len(closed) :]
