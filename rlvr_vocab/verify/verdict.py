"""What the verifier says of an answer: right or wrong, and why."""

from __future__ import annotations

from dataclasses import dataclass

EQUAL = "equal"
DIFFERENT = "different"
NO_ANSWER = "no answer"
UNPARSEABLE = "unparseable answer"
TOO_LARGE = "too large"
TIMEOUT = "timeout"
FAILED = "failed"
UNUSABLE_GOLD = "unusable gold answer"


@dataclass(frozen=True)
class Verdict:
    """One answer, judged.

    Attributes:
        correct: True or False; None where the gold answer cannot be used.
        reason: `equal`, `different`, `no answer`, `unparseable answer`, `too large`, `timeout`, `failed` (the
            comparison itself broke down) or `unusable gold answer`.
        gold: the gold answer as it was read.
        answer: the answer as it was read; None where there was none or it could not be read.
        detail: what went wrong, in words; mostly empty.
        milliseconds: what reading and comparing took.
    """

    correct: bool | None
    reason: str
    gold: str | None = None
    answer: str | None = None
    detail: str = ""
    milliseconds: float = 0.0

    @property
    def score(self) -> float | None:
        """1, 0, or None where the gold answer cannot be used."""
        return None if self.correct is None else float(self.correct)

    def __str__(self) -> str:
        if self.reason == DIFFERENT:
            return f"different: {self.answer} is not {self.gold}"
        return f"{self.reason}: {self.detail}" if self.detail else self.reason
