"""Accuracy of a checkpoint on a problem set, with every problem's result."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from rlvr_vocab.atomic_file import write_whole
from rlvr_vocab.evaluation.sampling import Checkpoint, Completion, SamplingSettings, sample_completions
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import ANSWERING, THINKING, regions_after, scored_regions

Grader = Callable[..., list[float | None]]


@dataclass(frozen=True)
class ProblemResult:
    """One sampled answer to one problem; `score` is None where the grader cannot read the gold answer."""

    problem: int
    sample: int
    prompt: str
    solution: str
    completion: str
    score: float | None
    tokens: int
    thinking_tokens: int
    reasoning_tokens: int
    closed: bool
    finished: bool


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
        rows: problems with `prompt` (messages) and `solution`.
        grader: a reward function; a completion is right when it scores 1.
    """
    repeated = [(index, sample, row) for index, row in enumerate(rows) for sample in range(samples)]
    completions = sample_completions(checkpoint, [row["prompt"] for *_, row in repeated], settings, on_progress)
    turns = [[{"role": "assistant", "content": completion.turn}] for completion in completions]
    scores = grader(completions=turns, solution=[row["solution"] for *_, row in repeated])
    return [
        _result(checkpoint, index, sample, row, completion, score)
        for (index, sample, row), completion, score in zip(repeated, completions, scores, strict=True)
    ]


def accuracy_of(results: Sequence[ProblemResult]) -> float | None:
    """Share of gradable answers that are right: the expected accuracy of one sample. None where none is gradable."""
    scores = [result.score for result in results if result.score is not None]
    return sum(score == 1.0 for score in scores) / len(scores) if scores else None


def write_results(results: Sequence[ProblemResult], path: Path) -> None:
    """One JSON object a line, one line a problem and sample; the file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(asdict(result), ensure_ascii=False) for result in results)
    write_whole(path, "".join(f"{line}\n" for line in lines), errors="surrogatepass")


def read_results(path: Path) -> list[ProblemResult]:
    """What `write_results` wrote."""
    with path.open(encoding="utf-8", errors="surrogatepass") as lines:
        return [ProblemResult(**json.loads(line)) for line in lines]


def _result(
    checkpoint: Checkpoint,
    index: int,
    sample: int,
    row: Mapping[str, Any],
    completion: Completion,
    score: float | None,
) -> ProblemResult:
    thinking, reasoning, closed = _thinking_of(completion, checkpoint.layout)
    return ProblemResult(
        problem=index,
        sample=sample,
        prompt=row["prompt"][-1]["content"],
        solution=row["solution"],
        completion=completion.turn,
        score=score,
        tokens=len(completion.completion_ids),
        thinking_tokens=thinking,
        reasoning_tokens=reasoning,
        closed=closed,
        finished=completion.finished,
    )


def _thinking_of(completion: Completion, layout: VocabLayout) -> tuple[int, int, bool]:
    ids = torch.tensor([completion.prompt_ids + completion.completion_ids])
    thinking = int((scored_regions(ids, layout)[0, len(completion.prompt_ids) :] == THINKING).sum())
    reasoning = sum(token >= layout.standard_size for token in completion.completion_ids)
    return thinking, reasoning, bool(thinking) and bool(regions_after(ids, layout)[0, -1] == ANSWERING)
