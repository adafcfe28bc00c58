"""From the tasks of a problem set to its problems: made from seeds, each problem once."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from rlvr_vocab.data.answers import MISSING_ANSWER
from rlvr_vocab.data.reasoning_gym.tasks import SPLITS, WORKED, GymProblems, GymTask
from rlvr_vocab.data.reasoning_gym.workers import Entry, make_entries
from rlvr_vocab.data.rows import DroppedRow, Problem, UsableRows
from rlvr_vocab.errors import is_main_process
from rlvr_vocab.terminal import make_console, progress_bar
from rlvr_vocab.text import short_text

COLUMNS = ("problem", "answer", "reasoning", "task", "difficulty", "entry")

_SEEDS_OF_A_SPLIT = 2**30
_NARROW = 20  # values of a range that make kinds of problems
# Problems of a task that are searched for the words of its question, and how many of them hold such a word.
_ASKED, _OFTEN = 20, 4


@lru_cache(maxsize=2)  # a command may ask twice, and some families take a second for a problem
def gym_rows(problems: GymProblems, split: str, seed: int) -> UsableRows:
    """The problems of a split, task by task; repeated ones and failures of a generator are dropped.

    A task may have no answer of its own and score others all the same: the solution of its problems is None.

    Raises:
        UserError: a task takes too long, or too much memory.
    """
    usable: dict[str, Problem] = {}
    dropped: list[DroppedRow] = []
    for row_number, (task, entry) in enumerate(_entries(problems, split, seed), start=1):
        problem = Problem(entry.question, entry.answer, _row(task, entry), row_number) if not entry.failure else None
        if problem is None or entry.answer == "":
            reason, shown = (
                ("its generator failed", entry.failure) if entry.failure else (MISSING_ANSWER, entry.question)
            )
        elif usable.setdefault(problem.key, problem) is not problem:
            reason, shown = "the same problem as an earlier one", entry.question
        else:
            continue
        # The end of a question tells it from others of its task.
        shown = short_text(shown) if entry.failure else short_text(shown.strip()[-40:])
        dropped.append(DroppedRow(row_number, f"{reason}, {task.name}", shown))
    return UsableRows(tuple(usable.values()), tuple(dropped), COLUMNS)


def _entries(problems: GymProblems, split: str, seed: int) -> Iterator[tuple[GymTask, Entry]]:
    shares, before = problems.shares(split), 0
    console = make_console(quiet=not is_main_process())
    with progress_bar(console, f"making problems ({split})", sum(shares)) as display:

        def show(made: int) -> None:
            display.update(before + made)

        for task, count in zip(problems.tasks, shares, strict=True):
            first = first_seed(seed, task.name, split)
            yield from ((task, entry) for entry in make_entries(task.name, task.params, first, count, show))
            before += count


def first_seed(seed: int, task: str, split: str) -> int:
    """The seed of the first problem of a task in a split; that of the next problem is one more, and so on.

    The splits have no seed in common. Neighbouring seeds of runs begin far from each other, or one run would have
    nearly the problems of the other.
    """
    digest = hashlib.sha256(f"{seed} {task}".encode()).digest()
    return int.from_bytes(digest[:4]) % _SEEDS_OF_A_SPLIT + SPLITS.index(split) * _SEEDS_OF_A_SPLIT


def _row(task: GymTask, entry: Entry) -> dict[str, Any]:
    return {
        "problem": entry.question,
        "answer": entry.answer,
        "reasoning": WORKED[task.name](entry.metadata) if task.name in WORKED else None,
        "task": task.name,
        "difficulty": difficulty_of(entry.metadata),
        "entry": entry.encoded,
    }


def difficulty_of(metadata: Mapping[str, Any]) -> str:
    """The difficulty of a problem in short: its place in a narrow range of the task, else the range.

    Example:
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
            case bool() | int() | float() | str():  # not the weights of kinds of problems, which are no difficulty
                shown.append(f"{name} {setting}")
    return short_text(", ".join(shown), limit=80)


def wording_of(tasks: Sequence[GymTask]) -> list[str]:
    """The words of the tasks' questions, for a tokenizer: each of them stands in several problems of its task."""
    words: dict[str, None] = {}
    for task in tasks:
        entries = make_entries(task.name, task.params, 0, _ASKED)
        asked = [set(re.findall(r"\s?[^\s\d]+", entry.question)) for entry in entries]
        counts = Counter(word for each in asked for word in each)
        words.update(dict.fromkeys(word for word in sorted(counts) if counts[word] >= _OFTEN))
    return list(words)
