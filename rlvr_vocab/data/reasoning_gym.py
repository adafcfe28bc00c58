"""Generates problems of reasoning-gym without repetition and scores answers to them, in worker processes.

Workers are used because a generator's problems may depend on Python's hash seed, which all workers of a pool share, and
because some scorers evaluate an answer as Python.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from rlvr_vocab.data.answers import MISSING_ANSWER
from rlvr_vocab.data.generators import GYM_COLUMNS, SPLITS, WORKED, GymProblems, GymTask
from rlvr_vocab.data.rows import DroppedRow, Problem, UsableRows
from rlvr_vocab.errors import UserError, is_main_process
from rlvr_vocab.sandbox.confinement import CannotConfine, confine, limit, readable_paths
from rlvr_vocab.sandbox.program import decoded, encoded
from rlvr_vocab.terminal import make_console, progress_bar
from rlvr_vocab.text import short_text
from rlvr_vocab.verify.worker_pool import Outcome, WorkerPool, describe

_SEEDS_OF_A_SPLIT = 2**30
_NARROW = 20  # most values of a range whose values are shown one by one
# Problems of a task that are searched for the words of its question, and how many of them must contain such a word.
_ASKED, _OFTEN = 20, 4
# Problems generated at once, and the seconds allowed for them.
_TOGETHER, _SECONDS = 10, 120.0
_SCORING_MEMORY = 2**30
# Functions that evaluate text as Python; sympy's parser does too.
_EVALUATES = re.compile(r"\b(?:eval|exec|parse_expr|sympify)\(")


@lru_cache(maxsize=2)  # a command may ask twice, and some families take a second for a problem
def gym_rows(problems: GymProblems, split: str, seed: int) -> UsableRows:
    """The problems of a split, task by task; repeated ones and failures of a generator are dropped.

    Some tasks have a scorer but no answer of their own: the solution of their problems is None.
    """
    usable: dict[str, Problem] = {}
    dropped: list[DroppedRow] = []
    console, row_number = make_console(quiet=not is_main_process()), 0
    for task, count in zip(problems.tasks, problems.shares(split), strict=True):
        with progress_bar(console, f"making problems of {task.name} ({split})", count) as display:
            first = first_seed(seed, task.name, split)
            entries = make_entries(task.name, task.params, first, count, display.update)
        for entry in entries:
            row_number += 1
            problem = Problem(entry.question, entry.answer, _row(task, entry), row_number)
            if entry.failure:
                reason = "its generator failed"
            elif entry.answer == "":
                reason = MISSING_ANSWER
            elif usable.setdefault(problem.key, problem) is not problem:
                reason = "the same problem as an earlier one"
            else:
                continue
            shown = entry.failure or entry.question.strip()[-40:]  # its end differs from other questions of the task
            dropped.append(DroppedRow(row_number, f"{reason}, {task.name}", short_text(shown)))
    return UsableRows(tuple(usable.values()), tuple(dropped), GYM_COLUMNS)


def first_seed(seed: int, task: str, split: str) -> int:
    """The seed of the first problem of a task in a split; that of the next problem is one more, and so on.

    The splits have no seed in common; two runs with consecutive seeds start far apart, or they would share problems.
    """
    digest = hashlib.sha256(f"{seed} {task}".encode()).digest()
    return int.from_bytes(digest[:4]) % _SEEDS_OF_A_SPLIT + SPLITS.index(split) * _SEEDS_OF_A_SPLIT


def _row(task: GymTask, entry: Entry) -> dict[str, Any]:
    has_working = task.name in WORKED and not entry.failure
    return {
        "problem": entry.question,
        "answer": entry.answer,
        "reasoning": WORKED[task.name](entry.metadata) if has_working else None,
        "task": task.name,
        "difficulty": difficulty_of(entry.metadata or {}),
        "entry": entry.encoded,
    }


def difficulty_of(metadata: Mapping[str, Any]) -> str:
    """A short difficulty label: the problem's own value if the task's range is narrow, else the range.

    >>> difficulty_of({"num_terms": 3, "difficulty": {"num_terms": (2, 6), "value": (1, 1000), "digits": (4, 4)}})
    'num_terms 3, value 1-1000, digits 4'
    """
    settings = metadata.get("difficulty")
    if not isinstance(settings, dict):
        return "" if settings is None else str(settings)
    shown = []
    for name, setting in settings.items():
        own = metadata.get(name)
        match setting:
            case (low, high) if isinstance(setting, tuple):
                narrow = isinstance(own, int) and low <= own <= high < low + _NARROW
                shown.append(f"{name} {own if narrow else '-'.join(map(str, dict.fromkeys(setting)))}")
            case bool() | int() | float() | str():  # not the weights of problem kinds, which are not a difficulty
                shown.append(f"{name} {setting}")
    return short_text(", ".join(shown), limit=80)


def wording_of(tasks: Sequence[GymTask]) -> list[str]:
    """The words of the tasks' questions, for a tokenizer: words that occur in several problems of their task."""
    words: dict[str, None] = {}
    for task in tasks:
        entries = make_entries(task.name, task.params, 0, _ASKED)
        counts = Counter(word for entry in entries for word in set(re.findall(r"\s?[^\s\d]+", entry.question)))
        words.update(dict.fromkeys(word for word in sorted(counts) if counts[word] >= _OFTEN))
    return list(words)


@dataclass(frozen=True)
class Entry:
    """A problem, or the exception of its generator as `failure`.

    `encoded` is the whole problem with its task and parameters, for its scorer: JSON text that preserves tuples.
    """

    encoded: str = ""
    question: str = ""
    answer: str | None = None
    metadata: Any = None
    failure: str = ""


def make_entries(
    task: str, params: dict[str, Any], seed: int, count: int, on_progress: Callable[[int], None] = lambda done: None
) -> list[Entry]:
    """The first problems of a task family for a seed; raises UserError if they take too long or too much memory."""
    starts = range(0, count, _TOGETHER)
    items = [["make", task, params, seed, count, start, min(start + _TOGETHER, count)] for start in starts]
    entries: list[Entry] = []
    for outcome in _pool().run(items, _SECONDS, lambda done, total: on_progress(min(done * _TOGETHER, count))):
        if outcome.failure is not None:
            why = f"{outcome.detail}; make them easier with its params, or leave it out"
            raise UserError(f"dataset.tasks: {task} could not make {_TOGETHER} problems: {why}")
        for text, failure in outcome.value:
            read = decoded(json.loads(text)) if text else {}
            entries.append(Entry(text, read.get("question", ""), read.get("answer"), read.get("metadata"), failure))
    return entries


def score_answers(pairs: Sequence[tuple[str, str]], deadline: float, allow_unsafe: bool) -> list[Outcome]:
    """Scores of pairs of an encoded entry and an answer, each by the scorer of its own task within `deadline` seconds.

    Raises CannotConfine if a scorer evaluates answers, the system cannot confine it, and `allow_unsafe` is false.
    """
    outcomes = _pool().run([["score", *pair, deadline, not allow_unsafe] for pair in pairs], deadline)
    for outcome in outcomes:
        if outcome.failure is None and isinstance(outcome.value, str):
            raise CannotConfine(outcome.value)
    return outcomes


@cache
def _pool() -> WorkerPool:
    return WorkerPool(f"{__name__}:work", preload=f"{__name__}:preload")


# --- in a worker ---


def preload() -> None:
    import reasoning_gym  # noqa: F401 - a second and a half, which the first item would wait for


def work(item: list[Any]) -> Any:
    job, *arguments = item
    return _make(*arguments) if job == "make" else _score(*arguments)


@lru_cache(maxsize=128)
def _family(task: str, params: str, seed: int, size: int) -> Any:
    from reasoning_gym.factory import create_dataset

    return create_dataset(task, **json.loads(params), seed=seed, size=size)


def _make(task: str, params: dict[str, Any], seed: int, count: int, start: int, stop: int) -> list[tuple[str, str]]:
    """Each entry encoded, or empty text and its failure."""
    import numpy

    family = _family(task, json.dumps(params), seed, count)
    made = []
    for place in range(start, stop):
        random.seed(seed + place)  # some use the global generators instead of their own
        numpy.random.seed(seed + place)
        try:
            entry = {**family[place], "task": task, "params": params}
            made.append((json.dumps(encoded(entry)), ""))
        except Exception as error:  # noqa: BLE001 - any error of a generator costs one problem
            made.append(("", describe(error)))
    return made


@cache
def _evaluates(module: str) -> bool:
    """Whether the module of a task family evaluates text as Python; that text may be an answer."""
    return _EVALUATES.search(inspect.getsource(sys.modules[module])) is not None


def _score(entry: str, answer: str, deadline: float, confined: bool) -> float | str:
    """A score, or why the system cannot confine the scorer."""
    read = decoded(json.loads(entry))
    family = _family(read["task"], json.dumps(read["params"]), 0, 1)
    if not _evaluates(type(family).__module__):
        return float(family.score_answer(answer, read))
    return _scored_apart(lambda: float(family.score_answer(answer, read)), deadline, confined)


def _scored_apart(score: Callable[[], float], deadline: float, confined: bool) -> float | str:
    """The score from a separate process, so that an evaluated answer cannot affect anything else."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            limit(deadline, _SCORING_MEMORY, 0)
            if confined:
                confine(readable_paths())
            result: list[Any] = [score(), ""]
        except CannotConfine as error:
            result = [str(error), ""]
        except BaseException as error:  # noqa: BLE001 - any error of a scorer is returned
            result = [0.0, describe(error)]
        os.write(writing, json.dumps(result).encode("ascii"))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answered = pipe.read()
    os.waitpid(child, 0)
    outcome, failure = json.loads(answered) if answered else (0.0, "its process ended")
    if failure:
        raise RuntimeError(failure)
    return outcome if isinstance(outcome, float) else str(outcome)
