"""Samples answers to a problem set, grades them, and takes their accuracy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rlvr_vocab.data.answers import cell_text
from rlvr_vocab.evaluation.sampling import Checkpoint, Completion, SamplingSettings, sample_completions
from rlvr_vocab.record.results import KINDS, ProblemResult, mean_over_problems
from rlvr_vocab.rewards.grader import Grade, Grader
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import ANSWERING, THINKING, regions_after, scored_regions


@dataclass(frozen=True)
class Question:
    """One sample that a problem asks for; `row` has `prompt` (messages), `problem` (text) and the other columns."""

    problem: int
    sample: int
    row: Mapping[str, Any]


def evaluate_checkpoint(
    checkpoint: Checkpoint,
    rows: Iterable[Mapping[str, Any]],
    grader: Grader,
    settings: SamplingSettings,
    samples: int = 1,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[ProblemResult]:
    """Sample `samples` answers to each problem and grade them.

    Args:
        rows: problems, as `Question` has them.
    """
    questions = [Question(index, sample, row) for index, row in enumerate(rows) for sample in range(samples)]
    prompts = [question.row["prompt"] for question in questions]
    completions = sample_completions(checkpoint, prompts, settings, on_progress)
    return graded_results(questions, completions, grader, checkpoint.layout)


def graded_results(
    questions: Sequence[Question],
    completions: Sequence[Completion],
    grader: Grader,
    layout: VocabLayout,
) -> list[ProblemResult]:
    """What the completions are worth, in the order of their questions."""
    grades = grader.grades(
        [question.row for question in questions],
        [completion.turn for completion in completions],
        [completion.completion_ids for completion in completions],
    )
    return [
        _result(question, completion, grade, layout, grader)
        for question, completion, grade in zip(questions, completions, grades, strict=True)
    ]


def accuracy_of(results: Sequence[ProblemResult]) -> float | None:
    """The expected accuracy of one answer to a problem; None where nothing is right or wrong."""
    return mean_over_problems(results, lambda result: result.right)


def _result(
    question: Question,
    completion: Completion,
    grade: Grade,
    layout: VocabLayout,
    grader: Grader,
) -> ProblemResult:
    thinking, reasoning, closed = _thinking_of(completion, layout)
    return ProblemResult(
        problem=question.problem,
        sample=question.sample,
        prompt=question.row["problem"],
        solution=question.row.get("solution"),
        completion=completion.turn,
        score=grade.score,
        tokens=len(completion.completion_ids),
        thinking_tokens=thinking,
        reasoning_tokens=reasoning,
        closed=closed,
        finished=completion.finished,
        answer=grade.answer,
        answer_read=grader.reads_answers,
        completion_ids=completion.completion_ids,
        threshold=grader.spec.threshold,
        in_format=grade.in_format,
        rewards=dict(grade.rewards),
        **{name: cell_text(question.row.get(name)) or "" for name in KINDS},
    )


def _thinking_of(completion: Completion, layout: VocabLayout) -> tuple[int, int, bool]:
    ids = torch.tensor([completion.prompt_ids + completion.completion_ids])
    thinking = int((scored_regions(ids, layout)[0, len(completion.prompt_ids) :] == THINKING).sum())
    reasoning = sum(token >= layout.standard_size for token in completion.completion_ids)
    return thinking, reasoning, bool(thinking) and bool(regions_after(ids, layout)[0, -1] == ANSWERING)
