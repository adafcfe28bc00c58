"""From settings to what the data room takes; imports no torch, so that files are checked before anything loads."""

from __future__ import annotations

from rlvr_vocab.config.command_sections import CheckSettings
from rlvr_vocab.config.sections import DatasetSettings
from rlvr_vocab.data.overlap import OtherSet
from rlvr_vocab.data.source import ProblemSource
from rlvr_vocab.data.split import Split
from rlvr_vocab.data.table import PromptStyle


def problem_source(dataset: DatasetSettings) -> ProblemSource:
    return ProblemSource(
        name=dataset.name,
        columns=dataset.columns,
        subset=dataset.subset,
        split=dataset.split,
        eval_split=dataset.eval_split,
        answer_format=dataset.answer_format,
        generator=dataset.generator,
    )


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
