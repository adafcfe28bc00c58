"""Figures beside the accuracy: told for each arm with their spread over seeds, and nothing claimed of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean

from rlvr_vocab.analysis.compare.comparison import spread
from rlvr_vocab.analysis.compare.stories import ArmStory, RunStory


@dataclass(frozen=True)
class Figure:
    """One figure of one arm: its mean over the runs that have it, and its standard deviation over them."""

    name: str
    arm: str
    mean: float
    spread: float | None
    runs: int
    percent: bool


def figures_of(arms: Sequence[ArmStory]) -> list[Figure]:
    """Those that some run of every arm has."""
    found = []
    for name, percent, of_run in _FIGURES:
        values = [[value for run in arm.runs if (value := of_run(run)) is not None] for arm in arms]
        if all(values):
            found += [
                Figure(name, arm.name, mean(each), spread(each), len(each), percent)
                for arm, each in zip(arms, values, strict=True)
            ]
    return found


def _answered(field: str) -> Callable[[RunStory], float | None]:
    """The mean of a field over the answers that have it."""

    def of_run(run: RunStory) -> float | None:
        values = [answer[field] for answer in run.answers if answer.get(field) is not None]
        return mean(map(float, values)) if values else None

    return of_run


def _summed_up(field: str) -> Callable[[RunStory], float | None]:
    return lambda run: None if run.summary is None else run.summary.get(field)


def _logged(metric: str) -> Callable[[RunStory], float | None]:
    return lambda run: run.last(metric)


def _held_out_format(run: RunStory) -> float | None:
    return next((row["eval/format"] for row in reversed(run.evaluations) if "eval/format" in row), None)


def _reasoning_share(run: RunStory) -> float | None:
    """Of the tokens that the answers thought in."""
    thought = [answer for answer in run.answers if answer.get("thinking_tokens") and "reasoning_tokens" in answer]
    tokens = sum(answer["thinking_tokens"] for answer in thought)
    return sum(answer["reasoning_tokens"] for answer in thought) / tokens if tokens else None


_FIGURES: tuple[tuple[str, bool, Callable[[RunStory], float | None]], ...] = (
    ("accuracy before training", True, _summed_up("accuracy_before")),
    ("tokens per answer", False, _answered("tokens")),
    ("tokens of thinking per answer", False, _answered("thinking_tokens")),
    ("thinking closed", True, _answered("closed")),
    ("ended by themselves", True, _answered("finished")),
    ("format kept", True, _held_out_format),
    ("reasoning tokens in thinking", True, _reasoning_share),
    ("steps", False, lambda run: run.steps),
    ("tokens trained on", False, _logged("num_tokens")),
    ("reward at the last step", False, _logged("reward")),
    ("seconds of the run", False, _summed_up("seconds")),
    ("seconds of GRPO", False, _summed_up("grpo_seconds")),
)
