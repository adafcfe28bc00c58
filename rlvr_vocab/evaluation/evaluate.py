"""Samples and grades answers to a problem set, with results on disk from which an interrupted evaluation continues."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from rlvr_vocab.data.answers import cell_text
from rlvr_vocab.errors import UserError
from rlvr_vocab.evaluation.sampling import Checkpoint, Completion, SamplingSettings, sample_completions
from rlvr_vocab.files import fingerprint_of, read_json_if_there
from rlvr_vocab.record.completions import sampled_flags
from rlvr_vocab.record.files import EVALUATION_RESULTS, EVALUATION_SETTINGS, SUMMARY
from rlvr_vocab.record.results import KINDS, ProblemResult, mean_over_problems, result_in, result_line, same_grader
from rlvr_vocab.rewards.grader import Grade, Grader, GraderSpec
from rlvr_vocab.text import pluralize
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout
from rlvr_vocab.vocab.regions import ANSWERING, THINKING, regions_after, scored_regions
from rlvr_vocab.vocab.weights import find_base, folder_with, is_adapter, weights_fingerprint

# `prompt` (messages), `problem` (its text) and the other columns.
Row = Mapping[str, Any]
# Takes the rows of a batch, and the place of the first among all questions.
Sampler = Callable[[Sequence[Row], int], list[Completion]]
# Files of a checkpoint, beside its weights, that change its prompts or how its answers are read.
_READ_BESIDE = (LAYOUT_FILE, "tokenizer.json", "chat_template.jinja", "generation_config.json")


@dataclass(frozen=True)
class Question:
    """One sample that a problem asks for."""

    problem: int
    sample: int
    row: Row


def evaluate_checkpoint(
    checkpoint: Checkpoint,
    rows: Iterable[Row],
    grader: Grader,
    settings: SamplingSettings,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[ProblemResult]:
    """Sample an answer to each problem and grade them."""
    questions = questions_of(rows, samples=1)
    completions = sample_completions(checkpoint, [each.row for each in questions], settings, on_progress)
    return graded_results(questions, completions, grader, checkpoint.layout)


def graded_results(
    questions: Sequence[Question], completions: Sequence[Completion], grader: Grader, layout: VocabLayout
) -> list[ProblemResult]:
    """The graded completions, in the order of their questions."""
    results = []
    grades = grades_of(grader, [question.row for question in questions], completions)
    for question, completion, grade in zip(questions, completions, grades, strict=True):
        row, completion_ids = question.row, completion.completion_ids
        ids = torch.tensor([completion.prompt_ids + completion_ids])
        sampled = torch.tensor(sampled_flags(completion.segments, len(completion_ids)))
        in_thinking = scored_regions(ids, layout)[0, len(completion.prompt_ids) :] == THINKING
        thinking = int((in_thinking & sampled).sum())
        result = ProblemResult(
            problem=question.problem,
            sample=question.sample,
            prompt=row["problem"],
            solution=row.get("solution"),
            completion=completion.turn,
            score=grade.score,
            tokens=int(sampled.sum()),
            thinking_tokens=thinking,
            reasoning_tokens=sum(token >= layout.standard_size for token in completion_ids),
            closed=bool(thinking) and bool(regions_after(ids, layout)[0, -1] == ANSWERING),
            finished=completion.finished,
            answer=grade.answer,
            answer_read=grader.reads_answers,
            completion_ids=completion_ids,
            threshold=grader.spec.threshold,
            in_format=grade.in_format,
            rewards=dict(grade.rewards),
            messages=completion.messages,
            segments=completion.segments,
            **{name: cell_text(row.get(name)) or "" for name in KINDS},
        )
        results.append(result)
    return results


def grades_of(grader: Grader, rows: Sequence[Row], completions: Sequence[Completion]) -> list[Grade]:
    """The grade of each completion, beside the row that it answers."""
    return grader.grades(
        rows,
        [each.messages or each.turn for each in completions],
        [each.completion_ids for each in completions],
        [each.environment for each in completions],
    )


def accuracy_of(results: Sequence[ProblemResult]) -> float | None:
    """The expected accuracy of one answer to a problem; None where nothing is right or wrong."""
    return mean_over_problems(results, lambda result: result.right)


# --- results on disk ---


def questions_of(rows: Iterable[Row], samples: int) -> list[Question]:
    """The first sample of every problem, then the second of every problem, …; more samples come at the end."""
    listed = list(rows)
    return [Question(problem, sample, row) for sample in range(samples) for problem, row in enumerate(listed)]


def complete_results(
    path: Path,
    kept: Sequence[ProblemResult],
    questions: Sequence[Question],
    batch_size: int,
    answer: Callable[[Sequence[Question], int], list[ProblemResult]],  # of a batch, and the place of its first question
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[ProblemResult]:
    """Results for all questions, in their order: those `kept` of the file, and new ones, appended to it by batches."""
    results = list(kept)
    on_progress(len(results), len(questions))
    for start, end in pairwise(_batch_ends(questions, batch_size)):
        if start < len(kept):
            continue
        batch = answer(questions[start:end], start)
        if start == len(kept) and path.exists():  # a killed process may have left part of a batch
            os.truncate(path, sum(len(line) + 1 for line in path.read_bytes().split(b"\n")[:start]))
        with path.open("ab") as file:
            file.write("".join(map(result_line, batch)).encode("utf-8", errors="surrogatepass"))
            file.flush()
            os.fsync(file.fileno())
        results += batch
        on_progress(len(results), len(questions))
    return results


def kept_results(path: Path, questions: Sequence[Question], batch_size: int) -> list[ProblemResult]:
    """The results in the file that form whole batches; UserError where they are more than the questions."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]  # what follows the last line break was being written
    if len(lines) > len(questions):
        raise UserError(
            f"{path} holds {pluralize(len(lines), 'answer')} and {pluralize(len(questions), 'is', 'are')} asked for: "
            "set samples at least as high as before, or choose another out"
        )
    whole = max(end for end in _batch_ends(questions, batch_size) if end <= len(lines))
    return [result_in(line, ProblemResult, path, number) for number, line in enumerate(lines[:whole], start=1)]


def seeded_sampler(checkpoint: Checkpoint, settings: SamplingSettings) -> Sampler:
    """Samples each batch from its own seed, by `settings.seed` and the place of the batch."""

    def sample(rows: Sequence[Row], first: int) -> list[Completion]:
        whole = replace(settings, seed=seed_at(settings.seed, first), batch_size=len(rows))
        return sample_completions(checkpoint, rows, whole)

    return sample


def seed_at(seed: int, place: int) -> int:
    """A seed below 2**31 for the question or batch at a place, unrelated to that of the next."""
    digest = hashlib.sha256(f"{seed} {place}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def _batch_ends(questions: Sequence[Question], batch_size: int) -> list[int]:
    """0 and the end of each batch; none spans two samples of the problems, so that more samples change no batch."""
    problems = sum(question.sample == 0 for question in questions)
    rounds = range(0, len(questions), problems) if problems else ()
    ends = range(batch_size, problems + batch_size, batch_size)
    return [0, *(min(end, problems) + first for first in rounds for end in ends)]


def result_settings(
    folder: Path, base: Path | None, rows: Sequence[Row], sampling: SamplingSettings, backend: str, grader: GraderSpec
) -> dict[str, Any]:
    """All settings that results depend on, except the number of samples, which may grow."""
    under = find_base(folder, base) if is_adapter(folder) else folder
    return {
        "weights": weights_fingerprint(folder),
        "base_weights": None if under is folder else weights_fingerprint(under),
        "files": {name: _file_hash(folder, base, name) for name in _READ_BESIDE},
        "problems": len(rows),
        "problems_sha256": fingerprint_of((row["prompt"], cell_text(row.get("solution"))) for row in rows),
        "grader": grader.record(),
        "format": grader.form_record(),
        **{key: getattr(sampling, key) for key in ("temperature", "max_new_tokens", "seed", "batch_size")},
        **sampling.truncation,
        "backend": backend,
    }


def require_same_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """UserError where the folder holds results of other settings; settings without results are ignored."""
    results, held = folder / EVALUATION_RESULTS, ""
    if results.is_file() and results.stat().st_size:
        if differing := differing_settings(read_json_if_there(folder / EVALUATION_SETTINGS) or {}, settings):
            held = f"an evaluation with {differing}"
    elif (folder / SUMMARY).exists():
        held = f"a {SUMMARY} without its {EVALUATION_RESULTS}"
    if held:
        raise UserError(f"out={folder}: holds {held}; choose another out, or delete it")


def differing_settings(there: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The settings that recorded results have otherwise, as `seed=1 (now 2), other weights`; empty without any."""
    found = []
    for key, value in now.items():
        if there.get(key) == value or (key == "grader" and same_grader(there.get(key), value)):
            continue
        is_shown = isinstance(value, int | float | str) and not key.endswith(("weights", "sha256"))
        found.append(f"{key}={there.get(key)} (now {value})" if is_shown else f"other {key.removesuffix('_sha256')}")
    return ", ".join(found)


def _file_hash(checkpoint: Path, base: Path | None, name: str) -> str | None:
    path = folder_with(name, checkpoint, base) / name
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
