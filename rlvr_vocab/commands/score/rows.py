"""Rows of completions as reward functions get them in training, and what each function gave for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlvr_vocab.rewards.build import BuiltReward
from rlvr_vocab.rewards.dry_run import stand_in_trainer
from rlvr_vocab.rewards.guard import Mistake
from rlvr_vocab.rewards.reward import Score
from rlvr_vocab.verify.verdict import Verdict

OnProgress = Callable[[int, int], None]
# Scored together, but never fewer than all completions of one prompt: some rewards compare those.
_BATCH = 64
_NEARLY = 1e-6


@dataclass(frozen=True)
class ScoredRows:
    """Completions and the columns beside them.

    Attributes:
        places: where each row is from: {"row": 3}, or {"step": 10, "row": 3}.
        completions: an assistant's turn each, as messages.
        prompts: messages; None where they are not known.
        columns: what else is handed to reward functions, a value per row.
    """

    places: Sequence[Mapping[str, int | str]]
    completions: Sequence[Any]
    prompts: Sequence[Any] | None
    columns: dict[str, list[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.completions)

    def arguments(self, start: int, end: int) -> dict[str, Any]:
        """What a reward function is called with for some of the rows."""
        columns: dict[str, Any] = {name: values[start:end] for name, values in self.columns.items()}
        columns["completions"] = list(self.completions[start:end])
        if self.prompts is not None:
            columns["prompts"] = list(self.prompts[start:end])
        return {**columns, **stand_in_trainer()}

    def batches(self) -> Iterator[tuple[int, int]]:
        """Beginnings and ends of what is scored together; completions of one prompt stand side by side."""
        start = 0
        while start < len(self):
            end = min(start + _BATCH, len(self))
            while self.prompts is not None and end < len(self) and self.prompts[end] == self.prompts[end - 1]:
                end += 1
            yield start, end
            start = end


@dataclass(frozen=True)
class RewardScores:
    """What one reward gave: a score per row, a verdict per row where it verifies answers, and the time it took."""

    reward: BuiltReward
    scores: tuple[Score, ...]
    verdicts: tuple[Verdict, ...] | None
    seconds: float

    @property
    def values(self) -> list[float]:
        """The scores that there are."""
        return [score.value for score in self.scores if score.value is not None]

    @property
    def failed(self) -> list[int]:
        """The rows on which the function raised or returned no score."""
        return [row for row, score in enumerate(self.scores) if isinstance(score, Mistake)]

    def is_full(self, row: int) -> bool:
        """Whether a row leaves nothing to wish for."""
        score = self.scores[row].value
        return score is not None and score >= self.reward.full_mark - _NEARLY


def score_rows(rewards: Sequence[BuiltReward], rows: ScoredRows, on_progress: OnProgress) -> list[RewardScores]:
    """Every reward of every row.

    Args:
        on_progress: called with the number of rows that all rewards have scored, and of all rows.

    Raises:
        UserError: a function of the library says that it is used wrongly.
    """
    scores: list[list[Score]] = [[] for _ in rewards]
    verdicts: list[list[Verdict]] = [[] for _ in rewards]
    seconds = [0.0] * len(rewards)
    for start, end in rows.batches():
        arguments = rows.arguments(start, end)
        for index, reward in enumerate(rewards):
            started = time.perf_counter()
            scores[index] += reward.explain(**arguments)
            seconds[index] += time.perf_counter() - started
            verdicts[index] += reward.verdicts(**arguments) or []  # remembered, not judged again
        on_progress(end, len(rows))
    return [
        RewardScores(reward, tuple(given), tuple(judged) or None, spent)
        for reward, given, judged, spent in zip(rewards, scores, verdicts, seconds, strict=True)
    ]


def total_of(scores: Sequence[RewardScores], row: int) -> float | None:
    """The weighted sum over the rewards that score a row, as in training; None where none does."""
    given = [(each.reward.weight, each.scores[row].value) for each in scores]
    parts = [weight * score for weight, score in given if score is not None]
    return sum(parts) if parts else None
