"""What a run measured on held-out problems: their answers before and after, and the accuracy on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr_vocab.analysis.charts import Line
from rlvr_vocab.analysis.record import OF_AN_EVALUATION, RunRecord, is_number
from rlvr_vocab.statistics.intervals import share_interval


@dataclass(frozen=True)
class Answer:
    """One sampled answer to a held-out problem; `score` is None where its gold answer cannot be read."""

    problem: int
    prompt: str
    solution: str
    completion: str
    score: float | None

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Answer:
        """From a line of `evaluation/<when>.jsonl`."""
        return cls(row["problem"], row["prompt"], row["solution"], row["completion"], row["score"])


@dataclass(frozen=True)
class HeldOut:
    """The answers before GRPO and after it; empty where they were not measured (yet)."""

    before: Sequence[Answer] = ()
    after: Sequence[Answer] = ()

    def pairs(self) -> list[tuple[Answer, Answer]]:
        """Each problem that can be judged, before and after."""
        later = {(each.problem, each.prompt): each for each in self.after if each.score is not None}
        pairs = [(each, later.get((each.problem, each.prompt))) for each in self.before if each.score is not None]
        return [(one, other) for one, other in pairs if other is not None]


def is_right(answer: Answer) -> bool:
    return answer.score == 1.0


def accuracy(answers: Sequence[Answer]) -> tuple[int, int]:
    """Right ones, of how many that can be judged."""
    judged = [each for each in answers if each.score is not None]
    return sum(map(is_right, judged)), len(judged)


def accuracies(record: RunRecord, held_out: HeldOut) -> Line | None:
    """Accuracy over the steps, before and after among them, with its interval; None where nothing was measured."""
    points = [(0, *accuracy(held_out.before))]
    points += [
        (int(row["step"]), round(row[OF_AN_EVALUATION] * row["eval/problems"]), int(row["eval/problems"]))
        for row in record.evaluations
        if is_number(row[OF_AN_EVALUATION]) and is_number(row.get("eval/problems"))
    ]
    end = int(record.rows[-1]["step"]) if record.rows else 0
    if accuracy(held_out.after)[1]:
        points = [point for point in points if point[0] < end]
        points.append((end, *accuracy(held_out.after)))
    points = [(step, right, judged) for step, right, judged in points if judged]
    if not points:
        return None
    intervals = [share_interval([1.0] * right + [0.0] * (judged - right)) for _, right, judged in points]
    known = [(step, found) for (step, *_), found in zip(points, intervals, strict=True) if found is not None]
    return Line(
        "held-out problems",
        [step for step, _ in known],
        [found.estimate for _, found in known],
        [found.low for _, found in known],
        [found.high for _, found in known],
    )
