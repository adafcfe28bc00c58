"""From problems to the prompts and columns that the trainer and the reward functions receive."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlvr_vocab.data.answers import plain_text
from rlvr_vocab.data.rows import Problem, column_names


@dataclass(frozen=True)
class PromptStyle:
    """What surrounds every problem.

    Args:
        system_prompt: First message; None or empty text for none.
        examples: Solved turns shown before the problem, as (problem, assistant text).
    """

    system_prompt: str | None
    examples: tuple[tuple[str, str], ...] = ()


def build_messages(problem: str, style: PromptStyle) -> list[dict[str, str]]:
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


if TYPE_CHECKING:
    import datasets
    import pyarrow

OUR_COLUMNS = ("prompt", "solution", "answer")
# TRL calls reward functions with every column as a keyword, beside these keywords of its own
# (GRPOTrainer._calculate_rewards), and takes images and tools from the row itself.
TRL_NAMES = (
    *("completion", "completions", "completion_ids", "prompts", "prompt_ids"),
    *("trainer_state", "log_extra", "log_metric"),
    *("environment", "environments", "image", "images", "tools"),
)


@dataclass(frozen=True)
class ProblemTable:
    """Arrow arrays of one length, one cell per problem; `notes` says which were turned into text."""

    columns: Mapping[str, "pyarrow.Array"]
    notes: tuple[str, ...]

    def rows(self, indices: Sequence[int]) -> "datasets.Dataset":
        """The rows at these indices, in this order."""
        import datasets

        taken = list(indices)
        return datasets.Dataset.from_dict({name: array.take(taken) for name, array in self.columns.items()})


def problem_table(problems: Sequence[Problem], style: PromptStyle, reasoning: str | None) -> ProblemTable:
    """Lay out `prompt`, `solution`, `answer`, then `reasoning` if mapped, then the original columns.

    Types are settled over all problems at once, so a column has one type however few rows are taken.

    Args:
        problems: The problems.
        style: What surrounds each problem in its prompt.
        reasoning: The original column that holds worked solutions, if any.
    """
    solutions = [problem.solution for problem in problems]
    columns: dict[str, list[Any]] = {
        "prompt": [build_messages(problem.text, style) for problem in problems],
        "solution": solutions,
        "answer": solutions,
    }
    if reasoning is not None:
        columns["reasoning"] = [problem.row.get(reasoning) for problem in problems]
    for name, given_name in handed_on_names(column_names(problem.row for problem in problems), reasoning).items():
        columns[given_name] = [problem.row.get(name) for problem in problems]
    return one_type_per_column(columns)


def handed_on_names(names: Sequence[str], reasoning: str | None) -> dict[str, str]:
    """Under what name each original column is handed on: its own, or `raw_<name>` where that is taken.

    Example:
        >>> handed_on_names(["question", "answer"], reasoning=None)
        {'question': 'question', 'answer': 'raw_answer'}
    """
    taken = {*OUR_COLUMNS, *TRL_NAMES} | ({"reasoning"} if reasoning is not None else set())
    handed_on = {name: name for name in names if name not in taken}
    for name in names:
        if name in handed_on or name == reasoning == "reasoning":
            continue
        free_name = f"raw_{name}"
        while free_name in handed_on.values():
            free_name = f"raw_{free_name}"
        handed_on[name] = free_name
    return {name: handed_on[name] for name in names if name in handed_on}


def one_type_per_column(columns: Mapping[str, list[Any]]) -> ProblemTable:
    """Arrow arrays of the columns; a column whose values share no Arrow type becomes text, with a note."""
    import pyarrow

    arrays, notes = {}, []
    for name, values in columns.items():
        try:
            arrays[name] = pyarrow.array(values)
        except (pyarrow.ArrowException, OverflowError):
            arrays[name] = pyarrow.array([cell_text(value) for value in values], pyarrow.string())
            types = ", ".join(sorted({type(value).__name__ for value in values if value is not None}))
            notes.append(f'column "{name}" is handed on as text: its values ({types}) have no one type')
    return ProblemTable(arrays, tuple(notes))


def cell_text(value: object) -> str | None:
    """A cell as text: numbers in short, lists and objects as JSON, a missing one still missing."""
    if value is None:
        return None
    text = plain_text(value)
    return text if text is not None else json.dumps(value, ensure_ascii=False, default=str)
