"""What the answers to held-out problems come to, in the figures that a run logs; imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlvr_vocab.evaluation.accuracy import ProblemResult

# In the log each has `eval/` before its name.
FIGURES = ("accuracy", "format", "mean_length", "clipped_ratio", "reasoning_share", "problems")


def figures_of(results: Sequence[ProblemResult], accuracy: float | None) -> dict[str, float | None]:
    """The figures of a measurement; no share of reasoning tokens where nothing was thought.

    Args:
        results: with their answers read.
        accuracy: what share of them is right; None where nothing could be graded.
    """
    answers = len(results)
    thinking = sum(result.thinking_tokens for result in results)
    figures: dict[str, float | None] = {
        "accuracy": accuracy,
        "format": sum(_well_formed(result) for result in results) / answers,
        "mean_length": sum(result.tokens for result in results) / answers,
        "clipped_ratio": sum(not result.finished for result in results) / answers,
        "problems": len({result.problem for result in results}),
    }
    if thinking:
        figures["reasoning_share"] = sum(result.reasoning_tokens for result in results) / thinking
    return figures


def _well_formed(result: ProblemResult) -> bool:
    """Whether it closed its thinking, ended by itself, and holds an answer that the verifier could find."""
    return result.closed and result.finished and result.answer is not None
