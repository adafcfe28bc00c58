"""The columns for the trainer and the reward functions, as a `Dataset` that keeps values unchanged."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import datasets
import pyarrow
from datasets.table import InMemoryTable

from rlvr_vocab.data.answers import cell_at, column_names
from rlvr_vocab.data.rows import Problem, prompt_of
from rlvr_vocab.data.source import Columns, PromptStyle

OUR_COLUMNS = ("prompt", "problem", "solution", "answer")
# TRL calls reward functions with every column as a keyword, beside these keywords of its own
# (GRPOTrainer._calculate_rewards), and takes images and tools from the row itself.
TRL_NAMES = (
    *("completion", "completions", "completion_ids", "prompts", "prompt_ids"),
    *("trainer_state", "log_extra", "log_metric"),
    *("environment", "environments", "image", "images", "tools"),
)


@dataclass
class JsonCell(datasets.Json):
    """A value stored as JSON text and decoded by Python.

    `datasets.Json` reads 0.3 as 0.30000000000000004 and refuses whole numbers above 64 bits.
    """

    def decode_example(self, example_data: str | None, token_per_repo_id: Any = None) -> Any:
        return None if example_data is None else json.loads(example_data)


def problem_table(problems: Sequence[Problem], style: PromptStyle, mapped: Columns) -> datasets.Dataset:
    """One row per problem: `prompt`, `problem`, the gold answer as `solution` and `answer` if there are answers,
    `reasoning` and `tests` if mapped, then the original columns.
    """
    columns: dict[str, list[Any]] = {
        "prompt": [prompt_of(problem, style) for problem in problems],
        "problem": [problem.text for problem in problems],
    }
    if mapped.answer is not None:
        solutions = [problem.solution for problem in problems]
        columns |= {"solution": solutions, "answer": solutions}
    for name, column in (("reasoning", mapped.reasoning), ("tests", mapped.tests)):
        if column is not None:
            columns[name] = [cell_at(problem.row, column) for problem in problems]
    for name, given_name in handed_on_names(column_names(problem.row for problem in problems), mapped).items():
        columns[given_name] = [problem.row.get(name) for problem in problems]
    arrays = {name: _array(values) for name, values in columns.items()}
    table = pyarrow.table(arrays)
    features = datasets.Features.from_arrow_schema(table.schema)
    for name, array in arrays.items():
        if isinstance(array, pyarrow.JsonArray):
            features[name] = JsonCell()
    return datasets.Dataset(InMemoryTable(table), info=datasets.DatasetInfo(features=features))


def handed_on_names(names: Sequence[str], mapped: Columns) -> dict[str, str]:
    """The name under which each original column is passed on: its own, or `raw_<name>` if that is taken.

    >>> handed_on_names(["question", "answer"], Columns("question", "answer"))
    {'question': 'question', 'answer': 'raw_answer'}
    """
    unchanged = {
        "problem": None if mapped.choices else mapped.problem,
        "reasoning": mapped.reasoning,
        "tests": mapped.tests,
    }
    taken = {*OUR_COLUMNS, *TRL_NAMES, *(name for name in unchanged if unchanged[name] is not None)}
    handed_on = {name: name for name in names if name != unchanged.get(name)}  # others are there already
    for name in handed_on:
        while handed_on[name] in taken or (handed_on[name] != name and handed_on[name] in names):
            handed_on[name] = f"raw_{handed_on[name]}"
    return handed_on


def _array(values: list[Any]) -> pyarrow.Array:
    """An Arrow array of the values, or of their JSON texts where Arrow would change a value.

    Arrow turns the 1 of [1, 2.5] into 1.0, gives every dict of a column the keys of all, and has no type for a mix of
    text and numbers.
    """
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
    except TypeError:  # a date or bytes, which JSON has no type for
        return array
