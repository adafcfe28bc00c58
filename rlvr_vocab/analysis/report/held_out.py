"""What a run measured on held-out problems: their answers before and after, and the accuracy on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr_vocab.analysis.charts import Line
from rlvr_vocab.record.metrics import OF_AN_EVALUATION, RunRecord, is_number
from rlvr_vocab.statistics import share_interval


@dataclass(frozen=True)
class Answer:
    """One sampled answer to a held-out problem; `score` is None where its gold answer cannot be read.

    Attributes:
        completion: the whole turn, of which `completion_ids` were sampled; none of them in an older run.
    """

    problem: int
    prompt: str
    solution: str
    completion: str
    score: float | None
    completion_ids: Sequence[int] = ()

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Answer:
        """From a line of `evaluation/<when>.jsonl`."""
        given = row["problem"], row["prompt"], row["solution"], row["completion"], row["score"]
        return cls(*given, row.get("completion_ids", ()))


@dataclass(frozen=True)
class HeldOut:
    """The answers before GRPO and after it; empty where they were not measured (yet), or not kept whole.

    Attributes:
        damage: a line for each file that is not whole, and so counts for nothing.
    """

    before: Sequence[Answer] = ()
    after: Sequence[Answer] = ()
    damage: Sequence[str] = ()

    def pairs(self) -> list[tuple[Answer, Answer]]:
        """Of each problem that can be judged both times the first answer, before and after."""
        return [(early[0], late[0]) for early, late in self._of_a_problem()]

    def shares(self) -> list[tuple[float, float]]:
        """Of each problem that can be judged both times the share of right answers, before and after."""
        return [(_share(early), _share(late)) for early, late in self._of_a_problem()]

    def _of_a_problem(self) -> list[tuple[list[Answer], list[Answer]]]:
        before, after = _by_problem(self.before), _by_problem(self.after)
        return [(answers, after[problem]) for problem, answers in before.items() if problem in after]


def is_right(answer: Answer) -> bool:
    return answer.score == 1.0


def problem_shares(answers: Sequence[Answer]) -> list[float]:
    """The share of right answers of each problem that can be judged."""
    return list(map(_share, _by_problem(answers).values()))


def _by_problem(answers: Sequence[Answer]) -> dict[tuple[int, str], list[Answer]]:
    """The answers that can be judged."""
    found: dict[tuple[int, str], list[Answer]] = {}
    for answer in answers:
        if answer.score is not None:
            found.setdefault((answer.problem, answer.prompt), []).append(answer)
    return found


def _share(answers: Sequence[Answer]) -> float:
    return sum(map(is_right, answers)) / len(answers)


def accuracies(record: RunRecord, held_out: HeldOut) -> Line | None:
    """Accuracy over the steps, before and after among them, with its interval; None where nothing was measured."""
    points = [(0, problem_shares(held_out.before))]
    points += [
        (int(row["step"]), _marks(row[OF_AN_EVALUATION], int(row["eval/problems"])))
        for row in record.evaluations
        if is_number(row[OF_AN_EVALUATION]) and is_number(row.get("eval/problems"))
    ]
    end = int(record.rows[-1]["step"]) if record.rows else 0
    last = problem_shares(held_out.after)
    if last:
        points = [*((step, shares) for step, shares in points if step < end), (end, last)]
    known = [(step, found) for step, shares in points if (found := share_interval(shares)) is not None]
    if not known:
        return None
    return Line(
        "held-out problems",
        [step for step, _ in known],
        [found.estimate for _, found in known],
        [found.low for _, found in known],
        [found.high for _, found in known],
    )


def _marks(accuracy: float, problems: int) -> list[float]:
    """One mark for each problem, of which so many are right."""
    right = round(accuracy * problems)
    return [1.0] * right + [0.0] * (problems - right)
