"""Results that are written as they come, and an evaluation that goes on where its file ends."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.evaluation.accuracy import Question
from rlvr_vocab.evaluation.sampling import Checkpoint, Completion, Messages, SamplingSettings, sample_completions
from rlvr_vocab.record.results import ProblemResult, result_in, result_line
from rlvr_vocab.text import pluralize

# Called with the prompts of a batch and the place of its first question among all.
Sampler = Callable[[Sequence[Messages], int], list[Completion]]


def questions_of(rows: Iterable[Mapping[str, Any]], samples: int) -> list[Question]:
    """The first sample of every problem, then the second of every problem, …: more samples are asked for at the end."""
    listed = list(rows)
    return [Question(problem, sample, row) for sample in range(samples) for problem, row in enumerate(listed)]


def complete_results(
    path: Path,
    kept: Sequence[ProblemResult],
    questions: Sequence[Question],
    batch_size: int,
    answer: Callable[[Sequence[Question], int], list[ProblemResult]],
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    before_writing: Callable[[], None] = lambda: None,
) -> list[ProblemResult]:
    """Results for all questions, in their order: those that the file keeps, and those that are missing, appended to it.

    A batch is on disk before the next one begins; until the first one is there, the file stays as it was.

    Args:
        kept: what `kept_results` read from the file.
        answer: gives the results of one batch, told the place of its first question; what it gives may depend on
                nothing else, so that an interrupted evaluation ends like an undisturbed one.
        before_writing: called once there is something to write, before it is written.
    """
    results = list(kept)
    on_progress(len(results), len(questions))
    for start, end in pairwise(_batch_ends(questions, batch_size)):
        if start < len(kept):
            continue
        batch = answer(questions[start:end], start)
        if start == len(kept):
            before_writing()
            _cut_after(path, len(kept))
        _append(path, batch)
        results += batch
        on_progress(len(results), len(questions))
    return results


def kept_results(path: Path, questions: Sequence[Question], batch_size: int) -> list[ProblemResult]:
    """What the file holds in whole batches; it is only read.

    Of a process that was killed the batch under way is lost: a line that was cut off, and the lines of a batch that is
    not whole, are to be asked for again.

    Raises:
        UserError: the file holds something else than results of these questions.
    """
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]  # what follows the last line break was being written
    if len(lines) > len(questions):
        raise UserError(
            f"{path} holds {pluralize(len(lines), 'answer')} and {pluralize(len(questions), 'is', 'are')} asked for: "
            "ask for as many samples as before or more, or choose another out"
        )
    whole = max(end for end in _batch_ends(questions, batch_size) if end <= len(lines))
    results = [result_in(line, path, number) for number, line in enumerate(lines[:whole], start=1)]
    for number, (result, question) in enumerate(zip(results, questions, strict=False), start=1):
        if (result.problem, result.sample) != (question.problem, question.sample):
            raise UserError(f"{path}, line {number}: not the answer that stands there; choose another out")
    return results


def seeded_sampler(checkpoint: Checkpoint, settings: SamplingSettings) -> Sampler:
    """Samples each batch from a seed of its own, which only `settings.seed` and the place of the batch decide."""

    def sample(prompts: Sequence[Messages], first: int) -> list[Completion]:
        whole = replace(settings, seed=seed_at(settings.seed, first), batch_size=len(prompts))
        return sample_completions(checkpoint, prompts, whole)

    return sample


def seed_at(seed: int, place: int) -> int:
    """A seed below 2**31 for the question, or the batch that begins, at a place; neighbours have nothing in common."""
    digest = hashlib.sha256(f"{seed} {place}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def _batch_ends(questions: Sequence[Question], batch_size: int) -> list[int]:
    """0, and where each batch ends.

    None goes on into the next sample of the problems: what is finished stays as it is when more samples are asked for.
    """
    problems = sum(question.sample == 0 for question in questions)
    rounds = range(0, len(questions), problems) if problems else ()
    return [0, *(min(end, problems) + first for first in rounds for end in _ends(problems, batch_size))]


def _ends(count: int, size: int) -> range:
    return range(size, count + size, size)


def _cut_after(path: Path, number: int) -> None:
    """Take off the file what follows so many lines: what a process that was killed has left of a batch."""
    if path.exists():
        lines = path.read_bytes().split(b"\n")[:number]
        os.truncate(path, sum(len(line) + 1 for line in lines))


def _append(path: Path, results: Sequence[ProblemResult]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write("".join(map(result_line, results)).encode("utf-8", errors="surrogatepass"))
        file.flush()
        os.fsync(file.fileno())
