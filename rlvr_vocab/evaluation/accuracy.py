"""Samples answers to a problem set, grades them, and takes their accuracy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rlvr_vocab.evaluation.sampling import Checkpoint, Completion, SamplingSettings, sample_completions
from rlvr_vocab.record.results import ProblemResult
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import ANSWERING, THINKING, regions_after, scored_regions

Grader = Callable[..., list[float | None]]
ReadAnswer = Callable[[str], str | None]


@dataclass(frozen=True)
class Question:
    """One sample that a problem asks for; `row` has `prompt` (messages) and `solution`."""

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
    read_answer: ReadAnswer | None = None,
) -> list[ProblemResult]:
    """Sample `samples` answers to each problem and grade them.

    Args:
        rows: problems with `prompt` (messages) and `solution`.
        grader: a reward function; a completion is right when it scores 1.
        read_answer: the final answer of a turn, as the grader looks for it.
    """
    questions = [Question(index, sample, row) for index, row in enumerate(rows) for sample in range(samples)]
    prompts = [question.row["prompt"] for question in questions]
    completions = sample_completions(checkpoint, prompts, settings, on_progress)
    return graded_results(questions, completions, grader, checkpoint.layout, read_answer)


def graded_results(
    questions: Sequence[Question],
    completions: Sequence[Completion],
    grader: Grader,
    layout: VocabLayout,
    read_answer: ReadAnswer | None = None,
) -> list[ProblemResult]:
    """What the completions are worth, in the order of their questions."""
    turns = [[{"role": "assistant", "content": completion.turn}] for completion in completions]
    scores = grader(completions=turns, solution=[question.row["solution"] for question in questions])
    return [
        _result(question, completion, score, layout, read_answer)
        for question, completion, score in zip(questions, completions, scores, strict=True)
    ]


def accuracy_of(results: Sequence[ProblemResult]) -> float | None:
    """The expected accuracy of one sample to a problem: the mean over problems of the share of their answers that are
    right. Answers without a score do not count; None where there are no others.
    """
    scores: dict[int, list[bool]] = defaultdict(list)
    for result in results:
        if result.score is not None:
            scores[result.problem].append(result.right)
    shares = [sum(marks) / len(marks) for marks in scores.values()]
    return sum(shares) / len(shares) if shares else None


def _result(
    question: Question,
    completion: Completion,
    score: float | None,
    layout: VocabLayout,
    read_answer: ReadAnswer | None,
) -> ProblemResult:
    thinking, reasoning, closed = _thinking_of(completion, layout)
    return ProblemResult(
        problem=question.problem,
        sample=question.sample,
        prompt=question.row["prompt"][-1]["content"],
        solution=question.row["solution"],
        completion=completion.turn,
        score=score,
        tokens=len(completion.completion_ids),
        thinking_tokens=thinking,
        reasoning_tokens=reasoning,
        closed=closed,
        finished=completion.finished,
        answer=None if read_answer is None else read_answer(completion.turn),
        answer_read=read_answer is not None,
        completion_ids=completion.completion_ids,
    )


def _thinking_of(completion: Completion, layout: VocabLayout) -> tuple[int, int, bool]:
    ids = torch.tensor([completion.prompt_ids + completion.completion_ids])
    thinking = int((scored_regions(ids, layout)[0, len(completion.prompt_ids) :] == THINKING).sum())
    reasoning = sum(token >= layout.standard_size for token in completion.completion_ids)
    return thinking, reasoning, bool(thinking) and bool(regions_after(ids, layout)[0, -1] == ANSWERING)
