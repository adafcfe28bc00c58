"""From settings to what the data room takes; imports no torch, so that files are checked before anything loads."""

from __future__ import annotations

from dataclasses import replace

from rlvr_vocab.config.command_sections import CheckSettings
from rlvr_vocab.config.sections import DatasetSettings
from rlvr_vocab.data.overlap import OtherSet
from rlvr_vocab.data.reasoning_gym.tasks import REASONING_GYM, GymProblems, without_worked_solutions
from rlvr_vocab.data.source import ProblemSource
from rlvr_vocab.data.split import Split
from rlvr_vocab.data.table import PromptStyle
from rlvr_vocab.errors import UserError


def problem_source(dataset: DatasetSettings) -> ProblemSource:
    gym = _gym_problems(dataset)
    columns = dataset.columns
    if gym is not None and without_worked_solutions(gym.tasks):
        columns = replace(columns, reasoning=None)
    return ProblemSource(
        name=dataset.name,
        columns=columns,
        subset=dataset.subset,
        split=dataset.split,
        eval_split=dataset.eval_split,
        answer_format=dataset.answer_format,
        decimal=dataset.decimal,
        generator=dataset.generator if gym is None else gym,
    )


def _gym_problems(dataset: DatasetSettings) -> GymProblems | None:
    """The tasks of reasoning-gym that a problem set is made of; None for any other set."""
    if dataset.name != REASONING_GYM:
        if dataset.tasks is not None or dataset.num_problems is not None:
            raise UserError(f"dataset.tasks and dataset.num_problems belong to dataset={REASONING_GYM}")
        return None
    if dataset.tasks is None:
        raise UserError("dataset.tasks is missing: name families of reasoning-gym, as in dataset.tasks=[chain_sum,lcm]")
    if dataset.num_problems is None:
        raise UserError(f"dataset.num_problems is missing: choose the file, dataset={REASONING_GYM}")
    if dataset.eval_split is None:
        return GymProblems(dataset.tasks, dataset.num_problems, 0)
    if not dataset.eval_fraction:
        raise UserError(
            f"dataset.eval_fraction=0 leaves no problem for dataset.eval_split={dataset.eval_split}: set both, or "
            "dataset.eval_split=null beside it to hold none out"
        )
    return GymProblems(dataset.tasks, dataset.num_problems, max(1, round(dataset.eval_fraction * dataset.num_problems)))


def prompt_style(dataset: DatasetSettings) -> PromptStyle:
    turns = tuple((turn.problem, turn.answer) for turn in dataset.examples or ())
    return PromptStyle(dataset.system_prompt, turns)


def other_sets(settings: CheckSettings) -> list[OtherSet]:
    column = settings.against_problem_column or settings.dataset.columns.problem
    return [OtherSet(name, column, settings.against_subset, settings.against_split) for name in settings.against]


def problem_split(dataset: DatasetSettings, seed: int) -> Split:
    return Split(
        eval_fraction=0.0 if dataset.eval_split is not None else dataset.eval_fraction,
        max_train_samples=dataset.max_train_samples,
        max_eval_samples=dataset.max_eval_samples,
        seed=seed,
    )
