"""Rewards for the form of a turn: thinking and answer in their tags, one box in the answer, JSON."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, NonNegativeFloat

from rlvr_vocab.bounds import Share
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.library.answers import Deadline
from rlvr_vocab.rewards.reward import THINK_TAGS, Score, Tags, after_thinking, assistant_turns, reward, turn_text
from rlvr_vocab.text import pluralize, short_text
from rlvr_vocab.verify.boxed_answer import boxes_opened, last_box
from rlvr_vocab.verify.verifier import DEADLINE_SECONDS
from rlvr_vocab.verify.worker_pool import WorkerPool

# Matched against texts that hold each tag once, and linear on those.
_XML = re.compile(r"\s*<reasoning>.*</reasoning>\s*<answer>.*</answer>\s*", re.DOTALL)
_XML_ON_LINES = re.compile(r"<reasoning>\n.*\n</reasoning>\n<answer>\n.*\n</answer>\n?", re.DOTALL)
_XML_TAGS = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")


@reward(is_format=True, reads_thought="form", aliases=("think_format_reward",))  # TRL's name
def think_format(
    completions: Sequence[Any], *, prefilled: bool = False, think_tags: Tags = THINK_TAGS, **_columns: Any
) -> list[Score]:
    r"""1 where each turn thinks once, first of all, stops thinking, and then answers or calls a tool; 0 where not.

    With `prefilled` the opening tag may be missing: for a plain TRL trainer whose chat template writes it.

    >>> turns = ["<think>\n6 * 7\n</think>\n42", "<think>6 * 7</think>", "6 * 7</think>42"]
    >>> think_format(turns), think_format(turns, prefilled=True)
    ([1.0, 0.0, 0.0], [1.0, 0.0, 1.0])
    """
    opened, closed = think_tags

    def fault(text: str, ended_in_call: bool) -> str | None:
        opens, closes = text.count(opened), text.count(closed)
        if closes != 1:
            return "thinking never closed" if closes == 0 else f"{closes} closing tags"
        if opens > 1:
            return f"{opens} opening tags"
        if opens == 0 and not prefilled:
            return "no opening tag"
        if opens == 1 and not text.lstrip().startswith(opened):
            return "the thinking does not come first"
        return None if ended_in_call or text.partition(closed)[2].strip() else "no answer after the thinking"

    def score(completion: Any) -> Score:
        turns = assistant_turns(completion)
        for number, turn in enumerate(turns, start=1):
            if reason := fault(turn.text, turn.ended_in_call):
                return Score(0.0, reason if len(turns) == 1 else f"turn {number} of {len(turns)}: {reason}")
        return Score(1.0, "thinking, then an answer") if turns else Score(0.0, "no turn")

    return list(map(score, completions))


@reward(is_format=True, answer_in="xml", reads_thought="form")
def xml_format(completions: Sequence[Any], *, strict_newlines: bool = False, **_columns: Any) -> list[Score]:
    r"""1 where a turn is `<reasoning>…</reasoning>`, then `<answer>…</answer>`, and nothing else; 0 where not.
    From Will Brown's `grpo_demo.py`, whose patterns cross no lines; as there, `strict_newlines` wants a tag per line.

    >>> turns = ["<reasoning>\n6 * 7\n</reasoning>\n<answer>\n42\n</answer>\n",
    ...          "<reasoning>6 * 7</reasoning> <answer>42</answer>", "<answer>42</answer>"]
    >>> xml_format(turns), xml_format(turns, strict_newlines=True)
    ([1.0, 1.0, 0.0], [1.0, 0.0, 0.0])
    """
    pattern = _XML_ON_LINES if strict_newlines else _XML

    def score(turn: str) -> Score:
        for tag in _XML_TAGS:
            if turn.count(tag) != 1:
                return Score(0.0, f"{pluralize(turn.count(tag), 'time')} {tag}")
        is_matched = pattern.fullmatch(turn)
        return Score(1.0, "both elements, nothing else") if is_matched else Score(0.0, "tags or text out of place")

    return [score(turn_text(completion)) for completion in completions]


@reward(full_mark=0.5, is_format=True, answer_in="xml", reads_thought="length")
def xml_tags(
    completions: Sequence[Any],
    *,
    penalty: NonNegativeFloat = 0.001,
    least: Annotated[float, Field(le=0.5)] = 0.0,
    **_columns: Any,
) -> list[Score]:
    r"""Partial credit on the way to `xml_format`: 0.125 a tag that stands once, less `penalty` a character behind.
    From `count_xml` of Will Brown's `grpo_demo.py`, which requires each tag on its own line, charges the end twice and
    has no lower bound.

    >>> turn = "<reasoning>\n6 * 7\n</reasoning>\n<answer>\n42\n</answer>\n"
    >>> xml_tags([turn, turn + "Bye!", "<reasoning>6 * 7"])
    [0.5, 0.496, 0.125]
    """
    scores = []
    for turn in map(turn_text, completions):
        tags = sum(turn.count(tag) == 1 for tag in _XML_TAGS)
        _, end, after = turn.rpartition(_XML_TAGS[-1])
        extra = len(after.strip()) if end else 0
        reason = f"{tags} of 4 tags" + (f", {pluralize(extra, 'character')} after the end" if extra else "")
        scores.append(Score(max(least, 0.125 * tags - penalty * extra), reason))
    return scores


@reward(is_format=True, answer_in="box", reads_thought="form")
def boxed(completions: Sequence[Any], *, think_tags: Tags = THINK_TAGS, **_columns: Any) -> list[Score]:
    r"""1 where a turn has exactly one box, closed, and has it in the answer; 0 where not.

    >>> boxed(["<think>6 * 7</think>\\boxed{42}", "<think>\\boxed{42}</think>42", "\\boxed{4} or \\boxed{2}"])
    [1.0, 0.0, 0.0]
    """

    def score(turn: str) -> Score:
        answer, boxes = after_thinking(turn, think_tags), boxes_opened(turn)
        if answer is None:
            return Score(0.0, "thinking never closed")
        if boxes != 1:
            return Score(0.0, pluralize(boxes, "box", "boxes") if boxes else "no box")
        if not boxes_opened(answer):
            return Score(0.0, "the box is in the thinking")
        return Score(1.0, "one box") if last_box(answer) is not None else Score(0.0, "the box is not closed")

    return [score(turn_text(completion)) for completion in completions]


@reward(is_format=True, skip_gold_check="a made-up turn has its answer in a box", reads_thought="nothing")
def json_format(
    completions: Sequence[Any],
    json_schema: Sequence[Any] | None = None,
    *,
    schema: dict[str, Any] | None = None,
    parses: Share = 0.0,
    think_tags: Tags = THINK_TAGS,
    deadline: Deadline = DEADLINE_SECONDS,
    **_columns: Any,
) -> list[Score]:
    """1 where the answer is JSON and matches its schema, `parses` where it is JSON alone, 0 where it is none.

    A row's own schema in the column `json_schema`, also as text, goes before `schema`; None where it is no schema. An
    answer that is not checked within `deadline` seconds scores `parses`.

    >>> json_format(['{"age": 7}', '{"name": "Bo"}', "seven"], schema={"required": ["age"]}, parses=0.5)
    [1.0, 0.5, 0.0]
    """

    def as_text(own: Any) -> str:
        return own if isinstance(own, str) else json.dumps({} if own is None else own, default=str)

    if schema is not None:
        [checked] = _pool().run([[as_text(schema), "null", parses]], deadline)
        if checked.value is not None and checked.value[0] is None:
            raise UserError(f"json_format: schema={short_text(schema)} is no JSON schema: {checked.value[1]}")
    schemas = [None] * len(completions) if json_schema is None else json_schema
    items = [
        [as_text(schema if own is None else own), after_thinking(turn_text(completion), think_tags), parses]
        for completion, own in zip(completions, schemas, strict=True)
    ]
    return [
        Score(*outcome.value)
        if outcome.failure is None
        else Score(parses, f"not checked: {outcome.detail}", timed_out=outcome.failure == "timeout")
        for outcome in _pool().run(items, deadline)
    ]


@functools.cache
def _pool() -> WorkerPool:
    """Answers are checked in workers: a pattern may backtrack for ever, and references may multiply."""
    return WorkerPool(f"{__name__}:check_json", preload=f"{__name__}:preload")


def preload() -> None:
    """Import what a worker needs, once for all of them."""
    check_json(["{}", "null", 0.0])


def check_json(item: list[Any]) -> tuple[float | None, str]:
    """Score in a worker: schema, answer or None where thinking never closed, and `parses` -> score and reason."""
    import jsonschema  # in the worker: the process that trains does without
    from jsonschema_specifications import REGISTRY
    from referencing.exceptions import Unresolvable

    text, answer, parses = item
    try:
        schema = json.loads(text)
        kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        kind.check_schema(schema)
    except (jsonschema.SchemaError, TypeError, ValueError, RecursionError) as error:
        return None, f"the row's schema is no JSON schema: {getattr(error, 'message', error)}"
    if answer is None:
        return 0.0, "thinking never closed"
    try:
        value = json.loads(_without_fence(answer.strip()), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        return 0.0, f"no JSON: {error}"
    try:  # by this registry nothing is fetched from the addresses that a schema refers to
        fault = next(kind(schema, registry=REGISTRY).iter_errors(value), None)
    except Unresolvable as error:
        return None, f"the row's schema refers to what is not in it: {error}"
    if fault is None:
        return 1.0, "JSON that holds to its schema" if schema else "JSON"
    return parses, f"against its schema at {fault.json_path}: {fault.message[:100]}"


def _without_fence(answer: str) -> str:
    """The contents of the block of code that an answer consists of; else the answer."""
    first, _, rest = answer.partition("\n")
    is_block = first.startswith("```") and first[3:].strip().lower() in ("", "json") and rest.endswith("```")
    return rest.removesuffix("```") if is_block else answer


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")
