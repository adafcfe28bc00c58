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
from rlvr_vocab.verify.worker_server import Outcome

# What an answer is found to be, beside its schema.
_HOLDS, _PARSES, _NO_JSON, _BAD_SCHEMA = "holds", "parses", "no JSON", "bad schema"


@reward(is_format=True, not_for_golds="a made-up turn has its answer in a box", columns=("json_schema",))
def json_format(
    completions: Sequence[Any],
    json_schema: Sequence[Any] | None = None,
    schema: dict[str, Any] | None = None,
    parses: float = 0.0,
    think_tags: tuple[str, str] = THINK_TAGS,
    deadline: float = DEADLINE_SECONDS,
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
        deadline: seconds for one answer; one that is not checked by then scores `parses`.

    Returns:
        0, `parses` or 1 per completion; None where the row's schema is none.

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
        [checked] = _pool().run([[schema, "null"]], deadline)
        found, problem = checked.value or (_BAD_SCHEMA, checked.detail)
        if found == _BAD_SCHEMA:
            raise UserError(f"json_format: schema={shown(schema)} is no JSON schema: {problem}")
    schemas = [None] * len(completions) if json_schema is None else json_schema
    pairs = [
        [schema if own is None else own, after_thinking(turn_text(completion), think_tags)]
        for completion, own in zip(completions, schemas, strict=True)
    ]
    return [_score(outcome, parses) for outcome in _pool().run(pairs, deadline)]


def _score(outcome: Outcome, parses: float) -> Score:
    if outcome.value is None:
        return Score(parses, f"not checked: {outcome.detail}", timed_out=outcome.failure == "timeout")
    found, reason = outcome.value
    return Score({_HOLDS: 1.0, _PARSES: parses, _NO_JSON: 0.0}.get(found), reason)


@functools.cache
def _pool() -> WorkerPool:
    """Answers meet their schemas in workers: a pattern may backtrack for ever, and references may multiply."""
    return WorkerPool(f"{__name__}:check_answer", preload=(f"{__name__}:check_nothing",))


def check_nothing() -> None:
    """Import what a worker needs, once for all of them."""
    check_answer([{}, "null"])


def check_answer(pair: list[Any]) -> tuple[str, str]:
    """What a worker does: a schema, and an answer or None where thinking never closed -> what it is, and why."""
    import jsonschema  # in the worker: the process that trains does without
    from jsonschema_specifications import REGISTRY
    from referencing.exceptions import Unresolvable

    schema, answer = pair
    try:
        schema = json.loads(schema) if isinstance(schema, str) else {} if schema is None else schema
        kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        kind.check_schema(schema)
    except (jsonschema.SchemaError, ValueError, RecursionError) as error:
        return _BAD_SCHEMA, f"the schema is none: {getattr(error, 'message', error)}"
    if answer is None:
        return _NO_JSON, "thinking never closed"
    try:
        value = json.loads(_without_fence(answer.strip()), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        return _NO_JSON, f"no JSON: {error}"
    try:
        # By this registry nothing is fetched from the addresses that a schema refers to.
        fault = next(kind(schema, registry=REGISTRY).iter_errors(value), None)
    except Unresolvable as error:
        return _BAD_SCHEMA, f"the schema refers to what is not in it: {error}"
    if fault is None:
        return _HOLDS, "JSON that holds to its schema" if schema else "JSON"
    return _PARSES, f"against its schema at {fault.json_path}: {fault.message[:100]}"


def _without_fence(answer: str) -> str:
    """What stands in the block of code that an answer consists of; else the answer."""
    first, _, rest = answer.partition("\n")
    is_block = first.startswith("```") and first[3:].strip().lower() in ("", "json") and rest.endswith("```")
    return rest.removesuffix("```") if is_block else answer


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")
