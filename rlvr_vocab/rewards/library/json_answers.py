"""A reward for answers in JSON: does it parse, and does it hold to a schema?"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.parameters import number, shown
from rlvr_vocab.rewards.reward import Score, reward
from rlvr_vocab.rewards.turns import THINK_TAGS, after_thinking, turn_text


@reward(is_format=True, not_for_golds="a made-up turn has its answer in a box", columns=("json_schema",))
def json_format(
    completions: Sequence[Any],
    json_schema: Sequence[Any] | None = None,
    schema: dict[str, Any] | None = None,
    parses: float = 0.0,
    think_tags: tuple[str, str] = THINK_TAGS,
    **_columns: Any,
) -> list[Score]:
    """1 where the answer is JSON and holds to its schema, 0 where it is none.

    The answer is all that follows the thinking, or the one block of code that it consists of. `NaN` and `Infinity` are
    no JSON.

    Args:
        completions: assistant turns, as strings or lists of messages.
        json_schema: a column: a JSON schema for each row, also as text; None for rows without one.
        schema: the schema of rows without their own.
        parses: the score of JSON that does not hold to its schema.
        think_tags: what opens and closes the thinking.

    Returns:
        0, `parses` or 1 per completion; None where the row's schema is none.

    Raises:
        UserError: `schema` is no JSON schema, or `parses` no number from 0 to 1.

    Example:
        >>> wants_age = {"type": "object", "required": ["age"]}
        >>> json_format(['{"age": 7}', '{"name": "Bo"}', "seven"], schema=wants_age, parses=0.5)
        [1.0, 0.5, 0.0]
    """
    parses = number("json_format", "parses", parses, least=0.0, most=1.0)
    if schema is not None:
        problem = _problem_of(schema)
        if problem:
            raise UserError(f"json_format: schema={shown(schema)} is no JSON schema: {problem}")
    schemas = [None] * len(completions) if json_schema is None else json_schema
    return [
        _score(turn_text(completion), schema if own is None else own, parses, think_tags)
        for completion, own in zip(completions, schemas, strict=True)
    ]


def _score(turn: str, schema: Any, parses: float, think_tags: tuple[str, str]) -> Score:
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except ValueError as error:
            return Score(None, f"the row's schema is no JSON: {error}")
    problem = "" if schema is None else _problem_of(schema)
    if problem:
        return Score(None, f"the row's schema is none: {problem}")
    answer = after_thinking(turn, think_tags)
    if answer is None:
        return Score(0.0, "thinking never closed")
    try:
        value = json.loads(_without_fence(answer.strip()), parse_constant=_refuse)
        fault = None if schema is None else next(_validator(json.dumps(schema)).iter_errors(value), None)
    except (ValueError, RecursionError) as error:
        return Score(0.0, f"no JSON: {error}")
    if fault is None:
        return Score(1.0, "JSON" if schema is None else "JSON that holds to its schema")
    return Score(parses, f"against its schema at {fault.json_path}: {fault.message[:100]}")


def _without_fence(answer: str) -> str:
    """What stands in the block of code that an answer consists of; else the answer."""
    first, _, rest = answer.partition("\n")
    is_block = first.startswith("```") and first[3:].strip().lower() in ("", "json") and rest.endswith("```")
    return rest.removesuffix("```") if is_block else answer


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")


def _problem_of(schema: Any) -> str:
    """What is wrong with a schema; empty for nothing."""
    import jsonschema

    try:
        _validator(json.dumps(schema))
    except (jsonschema.SchemaError, TypeError, ValueError) as error:
        return str(getattr(error, "message", error))
    return ""


@functools.lru_cache(maxsize=1024)
def _validator(schema: str) -> Any:
    import jsonschema  # here: a program that scores no JSON need not wait for it

    read = json.loads(schema)
    kind = jsonschema.validators.validator_for(read, default=jsonschema.Draft202012Validator)
    kind.check_schema(read)
    return kind(read)
