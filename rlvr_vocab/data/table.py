"""From problems to the prompts and columns that the trainer and the reward functions receive."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlvr_vocab.data.conversation import Messages
from rlvr_vocab.data.rows import Problem, column_names
from rlvr_vocab.data.source import Columns
from rlvr_vocab.errors import UserError


@dataclass(frozen=True)
class PromptStyle:
    """What surrounds every problem.

    Args:
        system_prompt: First message, unless the problem is a conversation with one of its own; None or empty text for
            none.
        examples: Solved turns shown before the problem, as (problem, assistant text).
    """

    system_prompt: str | None
    examples: tuple[tuple[str, str], ...] = ()


def build_messages(problem: str, style: PromptStyle) -> Messages:
    """The conversation up to the problem: system message if any, solved turns, then the problem.

    Example:
        >>> build_messages("1+1=", PromptStyle(system_prompt="Be brief."))
        [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': '1+1='}]
    """
    messages = [{"role": "system", "content": style.system_prompt}] if style.system_prompt else []
    for example_problem, example_answer in style.examples:
        messages.append({"role": "user", "content": example_problem})
        messages.append({"role": "assistant", "content": example_answer})
    messages.append({"role": "user", "content": problem})
    return messages


def prompt_of(problem: Problem, style: PromptStyle) -> Messages:
    """The conversation that asks a problem; one that it came with stays as it is, but for a missing system message."""
    if problem.messages is None:
        return build_messages(problem.text, style)
    has_system = problem.messages[0]["role"] == "system"
    gap = [] if has_system or not style.system_prompt else [{"role": "system", "content": style.system_prompt}]
    return [*gap, *problem.messages]


def refuse_examples(style: PromptStyle, where: str) -> None:
    """Refuse solved turns before problems that are conversations already.

    Raises:
        UserError: The style has such turns.
    """
    if style.examples:
        raise UserError(
            f"dataset.examples: {where} holds chat messages, which are taken as they stand: put solved turns "
            "into them, or set dataset.examples=null"
        )


if TYPE_CHECKING:
    import datasets
    import pyarrow

OUR_COLUMNS = ("prompt", "problem", "solution", "answer")
# TRL calls reward functions with every column as a keyword, beside these keywords of its own
# (GRPOTrainer._calculate_rewards), and takes images and tools from the row itself.
TRL_NAMES = (
    *("completion", "completions", "completion_ids", "prompts", "prompt_ids"),
    *("trainer_state", "log_extra", "log_metric"),
    *("environment", "environments", "image", "images", "tools"),
)


@dataclass(frozen=True)
class ProblemTable:
    """Arrow arrays of one length, one cell per problem; JSON where a column's values have no one type of Arrow's."""

    columns: Mapping[str, "pyarrow.Array"]

    def rows(self, indices: Sequence[int]) -> "datasets.Dataset":
        """The rows at these indices, in this order."""
        from rlvr_vocab.data.json_cells import dataset_of

        taken = list(indices)
        return dataset_of({name: array.take(taken) for name, array in self.columns.items()})

    def cells(self, indices: Sequence[int]) -> dict[str, list[Any]]:
        """The values at these indices by column, as they were read."""
        taken = list(indices)
        return {name: _values(array.take(taken)) for name, array in self.columns.items()}


def problem_table(problems: Sequence[Problem], style: PromptStyle, mapped: Columns) -> ProblemTable:
    """Lay out `prompt`, `problem`, then `solution` and `answer` if there are answers, then `reasoning` if mapped, then
    the original columns.

    Types are settled over all problems at once, so a column has one type however few rows are taken.

    Args:
        problems: The problems.
        style: What surrounds each problem in its prompt.
        mapped: What the original columns mean.

    Raises:
        UserError: The style puts solved turns before conversations.
    """
    if any(problem.messages is not None for problem in problems):
        refuse_examples(style, f'column "{mapped.problem}"')
    columns: dict[str, list[Any]] = {
        "prompt": [prompt_of(problem, style) for problem in problems],
        "problem": [problem.text for problem in problems],
    }
    if mapped.answer is not None:
        solutions = [problem.solution for problem in problems]
        columns |= {"solution": solutions, "answer": solutions}
    if mapped.reasoning is not None:
        columns["reasoning"] = [problem.row.get(mapped.reasoning) for problem in problems]
    for name, given_name in handed_on_names(column_names(problem.row for problem in problems), mapped).items():
        columns[given_name] = [problem.row.get(name) for problem in problems]
    return ProblemTable({name: _array(values) for name, values in columns.items()})


def handed_on_names(names: Sequence[str], mapped: Columns) -> dict[str, str]:
    """Under what name each original column is handed on: its own, or `raw_<name>` where that is taken.

    Example:
        >>> handed_on_names(["question", "answer"], Columns("question", "answer"))
        {'question': 'question', 'answer': 'raw_answer'}
    """
    taken = {*OUR_COLUMNS, *TRL_NAMES} | ({"reasoning"} if mapped.reasoning is not None else set())
    ours_already = {"problem": mapped.problem, "reasoning": mapped.reasoning}
    handed_on = {name: name for name in names if name not in taken}
    for name in names:
        if name in handed_on or ours_already.get(name) == name:
            continue
        free_name = f"raw_{name}"
        while free_name in handed_on.values():
            free_name = f"raw_{free_name}"
        handed_on[name] = free_name
    return {name: handed_on[name] for name in names if name in handed_on}


def _array(values: list[Any]) -> "pyarrow.Array":
    """An Arrow array that hands the values on as they are, or one of their JSON texts.

    Arrow makes the 1 of [1, 2.5] a 1.0, gives every dict of a column the keys of all, and has no type for text beside
    numbers.
    """
    import pyarrow

    try:
        array = pyarrow.array(values)
    except (pyarrow.ArrowException, OverflowError):
        array = None
    else:
        if all(repr(cell) == repr(value) for cell, value in zip(array.to_pylist(), values, strict=True)):
            return array
    encode = json.JSONEncoder(ensure_ascii=False, default=str if array is None else None).encode
    try:
        return pyarrow.array([None if value is None else encode(value) for value in values], pyarrow.json_())
    except TypeError:  # a date or bytes, of which Arrow keeps more than JSON could
        return array


def _values(array: "pyarrow.Array") -> list[Any]:
    import pyarrow

    cells = array.to_pylist()
    if isinstance(array, pyarrow.JsonArray):
        return [None if cell is None else json.loads(cell) for cell in cells]
    return cells
