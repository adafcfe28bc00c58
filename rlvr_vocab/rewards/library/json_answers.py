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
from rlvr_vocab.verify.verifier import DEADLINE_SECONDS
from rlvr_vocab.verify.worker_pool import WorkerPool


@reward(is_format=True, skip_gold_check="a made-up turn has its answer in a box", columns=("json_schema",))
def json_format(
    completions: Sequence[Any],
    json_schema: Sequence[Any] | None = None,
    schema: dict[str, Any] | None = None,
    parses: float = 0.0,
    think_tags: tuple[str, str] = THINK_TAGS,
    deadline: float = DEADLINE_SECONDS,
    **_columns: Any,
) -> list[Score]:
    """1 where the answer is JSON and holds to its schema, `parses` where it is JSON alone, 0 where it is none.

    The answer is all that follows the thinking, or the one block of code that it consists of. A row's own schema, also
    as text, goes before `schema`; None where it is no schema. An answer that is not checked within `deadline` seconds
    scores `parses`.

    Raises:
        UserError: `schema` is no JSON schema, or `parses` or `deadline` no number that it can be.

    Example:
        >>> wants_age = {"type": "object", "required": ["age"]}
        >>> json_format(['{"age": 7}', '{"name": "Bo"}', "seven"], schema=wants_age, parses=0.5)
        [1.0, 0.5, 0.0]
    """
    parses = number("json_format", "parses", parses, least=0.0, most=1.0)
    deadline = number("json_format", "deadline", deadline, least=0.01)
    if schema is not None:
        [checked] = _pool().run([[_as_text(schema), "null", parses]], deadline)
        if checked.value is not None and checked.value[0] is None:
            raise UserError(f"json_format: schema={shown(schema)} is no JSON schema: {checked.value[1]}")
    schemas = [None] * len(completions) if json_schema is None else json_schema
    items = [
        [_as_text(schema if own is None else own), after_thinking(turn_text(completion), think_tags), parses]
        for completion, own in zip(completions, schemas, strict=True)
    ]
    return [
        Score(*outcome.value)
        if outcome.failure is None
        else Score(parses, f"not checked: {outcome.detail}", timed_out=outcome.failure == "timeout")
        for outcome in _pool().run(items, deadline)
    ]


def _as_text(schema: Any) -> str:
    return schema if isinstance(schema, str) else json.dumps({} if schema is None else schema, default=str)


@functools.cache
def _pool() -> WorkerPool:
    """Answers meet their schemas in workers: a pattern may backtrack for ever, and references may multiply."""
    return WorkerPool(f"{__name__}:check_answer", preload=(f"{__name__}:check_nothing",))


def check_nothing() -> None:
    """Import what a worker needs, once for all of them."""
    check_answer(["{}", "null", 0.0])


def check_answer(item: list[Any]) -> tuple[float | None, str]:
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
    """What stands in the block of code that an answer consists of; else the answer."""
    first, _, rest = answer.partition("\n")
    is_block = first.startswith("```") and first[3:].strip().lower() in ("", "json") and rest.endswith("```")
    return rest.removesuffix("```") if is_block else answer


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")
