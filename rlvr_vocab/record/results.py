"""The results of an evaluation, one JSON object a line for each sampled answer; no torch."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_origin, get_type_hints

from rlvr_vocab.errors import UserError
from rlvr_vocab.files import atomic_write

_ROUNDING = 1e-9  # of a sum of rewards
# Columns of a problem set that results and completions keep: by them a run is looked at.
KINDS = ("task", "difficulty")


def is_right(score: float | None, threshold: float | None) -> bool | None:
    """Whether a score is that of a right answer; None where there is none, or nothing is right or wrong."""
    return None if score is None or threshold is None else score >= threshold - _ROUNDING


@dataclass(frozen=True)
class ProblemResult:
    """One sampled answer to one problem; `score` is None where the grader has none for it.

    Attributes:
        solution: the gold answer, text or any JSON value; None where the problem has none.
        completion: the assistant's whole turn, with what the template prefilled of it; `completion_ids` were sampled.
        answer: what the verifier takes for the turn's final answer; None where there is none, or, with `answer_read`
            False, where nobody looked.
        threshold: the score from which it is right; None where nothing is right or wrong.
        in_format: what the run's own format reward says of it; None where there is none.
        rewards: the scores that `score` is the sum of, by name; empty where it is that of one reward.
        task, difficulty: of the problem; empty where its set has no such column.
    """

    problem: int
    sample: int
    prompt: str
    solution: Any
    completion: str
    score: float | None
    tokens: int
    thinking_tokens: int
    reasoning_tokens: int
    closed: bool
    finished: bool
    answer: str | None = None
    answer_read: bool = False
    completion_ids: list[int] = field(default_factory=list)  # older files have none of this and what follows
    threshold: float | None = 1.0
    in_format: bool | None = None
    rewards: dict[str, float | None] = field(default_factory=dict)
    task: str = ""
    difficulty: str = ""

    @property
    def right(self) -> bool | None:
        """Whether it is right; None where it has no score, or nothing is right or wrong."""
        return is_right(self.score, self.threshold)

    @property
    def value(self) -> float | None:
        """1 where it is right, 0 where it is wrong; its score where nothing is right or wrong."""
        return self.score if self.right is None else float(self.right)


def kind_in_words(task: str, difficulty: str) -> str:
    """`chain_sum (num_terms 2)`; empty for a problem of no kind."""
    return f"{task} ({difficulty})" if task and difficulty else task or difficulty


# A figure of an answer; None where the answer has none.
ValueOf = Callable[[ProblemResult], float | None]


def problem_means(results: Sequence[ProblemResult], value_of: ValueOf) -> dict[int, float]:
    """By its number the mean of each problem, over those of its answers that have the value."""
    values: dict[int, list[float]] = defaultdict(list)
    for result in results:
        value = value_of(result)
        if value is not None:
            values[result.problem].append(float(value))
    return {problem: sum(each) / len(each) for problem, each in values.items()}


def mean_over_problems(results: Sequence[ProblemResult], value_of: ValueOf) -> float | None:
    """What one answer to a problem is expected to have; None where no answer has it."""
    means = problem_means(results, value_of).values()
    return sum(means) / len(means) if means else None


# `isinstance` takes unions, and no `list[int]`.
_KINDS = {
    name: get_origin(kind) if get_origin(kind) in (list, dict) else kind
    for name, kind in get_type_hints(ProblemResult).items()
    if kind is not Any
}


def write_results(results: Sequence[ProblemResult], path: Path) -> None:
    """One JSON object a line, one line a problem and sample; the file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, "".join(map(result_line, results)), errors="surrogatepass")


def read_results(path: Path) -> list[ProblemResult]:
    """What `write_results` wrote.

    Raises:
        UserError: a line holds something else, or is cut short.
    """
    lines = path.read_bytes().split(b"\n")
    return [result_in(line, path, number) for number, line in enumerate(lines, start=1) if number < len(lines) or line]


def result_in(line: bytes, path: Path, number: int) -> ProblemResult:
    """The result in a line of a file; raises UserError, which names both, where it is none."""
    try:
        result = ProblemResult(**json.loads(line.decode("utf-8", errors="surrogatepass")))
        wrong = [name for name, kind in _KINDS.items() if not isinstance(getattr(result, name), kind)]
        if wrong:
            raise TypeError(f"{wrong[0]} is {getattr(result, wrong[0])!r:.40}")
    except (ValueError, TypeError) as error:
        raise UserError(f"{path}, line {number}: no result of an evaluation ({error})") from error
    return result


def result_line(result: ProblemResult) -> str:
    return json.dumps(asdict(result), ensure_ascii=False) + "\n"
