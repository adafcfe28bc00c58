"""What a run measures on its held-out problems, accuracy or reward, and how its figures are written; no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr_vocab.record.results import ProblemResult

_PLAIN = "accuracy"  # the grader that needs no mention, and the only one of older runs


@dataclass(frozen=True)
class Measure:
    """The share of right answers, or, where nothing is right or wrong, the mean score.

    Attributes:
        is_share: whether it is the former.
        grader: the name of what grades the answers.
    """

    is_share: bool = True
    grader: str = _PLAIN

    @classmethod
    def of_summary(cls, summary: Mapping[str, Any]) -> Measure:
        """That of a run, by its `summary.json`."""
        grader = (summary.get("grader") or {}).get("name", _PLAIN)
        return cls(summary.get("accuracy_before") is not None or summary.get("reward_before") is None, grader)

    @classmethod
    def of_answers(cls, answers: Sequence[ProblemResult], grader: str = _PLAIN) -> Measure:
        """That of answers which were graded."""
        return cls(not any(each.score is not None and each.right is None for each in answers), grader)

    @property
    def name(self) -> str:
        return "accuracy" if self.is_share else "reward"

    @property
    def by(self) -> str:
        """` by <grader>`; nothing for `accuracy`."""
        return "" if self.grader == _PLAIN else f" by {self.grader}"

    def of_run(self, summary: Mapping[str, Any]) -> tuple[float | None, float | None]:
        """Its value before a run and after it."""
        return summary.get(f"{self.name}_before"), summary.get(f"{self.name}_after")

    def value(self, value: float, space: str = "") -> str:
        """A value, `71.2%` or `0.712`.

        Args:
            space: what stands before the percent sign.
        """
        return f"{100 * value:.1f}{space}%" if self.is_share else f"{value:.3f}".replace("-", "−")

    def difference(self, value: float, sign: bool = True) -> str:
        """A difference, `+2.0 points` or `+0.020`, with a true minus."""
        number = 100 * value if self.is_share else value
        digits = 1 if self.is_share else 3
        text = f"{number:{'+' if sign else ''}.{digits}f}".replace("-", "−")
        return f"{text} points" if self.is_share else text


ACCURACY = Measure()
