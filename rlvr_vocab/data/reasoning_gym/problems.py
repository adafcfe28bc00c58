"""From the tasks of a problem set to its problems: made from seeds, each problem once."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from rlvr_vocab.data.answers import MISSING_ANSWER
from rlvr_vocab.data.reasoning_gym.tasks import SPLITS, GymProblems, GymTask
from rlvr_vocab.data.reasoning_gym.worked_solutions import WORKED
from rlvr_vocab.data.reasoning_gym.workers import Entry, make_entries
from rlvr_vocab.data.rows import DroppedRow, Problem, UsableRows, short_text
from rlvr_vocab.errors import is_main_process
from rlvr_vocab.terminal import make_console, progress_bar

COLUMNS = ("problem", "answer", "reasoning", "task", "difficulty", "entry")
REPEATED = "the same problem as an earlier one"
NOT_MADE = "its generator failed"

_SEEDS_OF_A_SPLIT = 2**30
# Of a range, how many values make kinds of problems; and the characters of a difficulty.
_NARROW, _LONGEST_DIFFICULTY = 20, 80
# Problems of a task that are looked at for the words that it is asked in, and how many of them hold such a word.
_ASKED, _OFTEN = 20, 4


@lru_cache(maxsize=2)  # a command may ask twice, and some families take a second for a problem
def gym_rows(problems: GymProblems, split: str, seed: int) -> UsableRows:
    """The problems of a split, task by task; repeated ones, and what a generator could not make, are dropped.

    A task may have no answer of its own and score others all the same: the solution of its problems is None.

    Raises:
        UserError: A task takes too long, or too much memory.
    """
    usable: dict[str, Problem] = {}
    dropped: list[DroppedRow] = []
    for row_number, (task, entry) in enumerate(_entries(problems, split, seed), start=1):
        if entry.failure or entry.answer == "":
            reason = NOT_MADE if entry.failure else MISSING_ANSWER
            shown = short_text(entry.failure) if entry.failure else _end_of(entry.question)
            dropped.append(DroppedRow(row_number, f"{reason}, {task.name}", shown))
            continue
        problem = Problem(entry.question, entry.answer, _row(task, entry), row_number)
        if usable.setdefault(problem.key, problem) is not problem:
            dropped.append(DroppedRow(row_number, f"{REPEATED}, {task.name}", _end_of(problem.text)))
    return UsableRows(tuple(usable.values()), tuple(dropped), COLUMNS)


def _end_of(text: str) -> str:
    """What tells a problem from others of its task stands mostly at its end."""
    return short_text(text.strip()[-40:])


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

    The splits have no seed in common. Runs with neighbouring seeds begin far from each other, or one would have nearly
    the problems of the other.
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
    """What makes a problem as difficult as it is, in short: its place in a narrow range of the task, else the range.

    Example:
        >>> difficulty_of({"num_terms": 3, "difficulty": {"num_terms": (2, 6), "value": (1, 1000), "digits": (4, 4)}})
        'num_terms 3, value 1-1000, digits 4'
    """
    settings = metadata.get("difficulty")
    if not isinstance(settings, dict):
        return "" if settings is None else str(settings)
    shown = {name: _in_short(setting, metadata.get(name)) for name, setting in settings.items()}
    return short_text(", ".join(f"{name} {value}" for name, value in shown.items() if value), _LONGEST_DIFFICULTY)


def _in_short(setting: Any, own: Any) -> str:
    match setting:
        case (low, high) if isinstance(setting, tuple):
            narrow = isinstance(own, int) and low <= own <= high < low + _NARROW
            return str(own) if narrow else "-".join(map(str, dict.fromkeys(setting)))
        case bool() | int() | float() | str():
            return str(setting)
    return ""  # weights of kinds of problems, which are no difficulty


def wording_of(tasks: Sequence[GymTask]) -> list[str]:
    """The words that the tasks are asked in, for a tokenizer: each of them stands in several problems of its task."""
    words: dict[str, None] = {}
    for task in tasks:
        entries = make_entries(task.name, task.params, 0, _ASKED)
        asked = [set(re.findall(r"\s?[^\s\d]+", entry.question)) for entry in entries]
        counts = Counter(word for each in asked for word in each)
        words.update(dict.fromkeys(word for word in sorted(counts) if counts[word] >= _OFTEN))
    return list(words)
