"""What the answers to held-out problems come to, in the figures that a run logs; imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlvr_vocab.rewards.turns import after_thinking
from rlvr_vocab.rewards.verify.extraction import final_answer

if TYPE_CHECKING:
    from rlvr_vocab.evaluation.accuracy import ProblemResult

# In the log each has `eval/` before its name.
FIGURES = ("accuracy", "format", "mean_length", "clipped_ratio", "reasoning_share", "problems")


def figures_of(
    results: Sequence[ProblemResult], accuracy: float | None, think_tags: tuple[str, str], answer_from: Sequence[str]
) -> dict[str, float | None]:
    """The figures of a measurement; no share of reasoning tokens where nothing was thought.

    Args:
        accuracy: what share of them is right; None where nothing could be graded.
        answer_from: where the verifier looks for the answer, the first place first.
    """
    answers = len(results)
    thinking = sum(result.thinking_tokens for result in results)
    figures: dict[str, float | None] = {
        "accuracy": accuracy,
        "format": sum(_well_formed(result, think_tags, answer_from) for result in results) / answers,
        "mean_length": sum(result.tokens for result in results) / answers,
        "clipped_ratio": sum(not result.finished for result in results) / answers,
        "problems": len({result.problem for result in results}),
    }
    if thinking:
        figures["reasoning_share"] = sum(result.reasoning_tokens for result in results) / thinking
    return figures


def _well_formed(result: ProblemResult, think_tags: tuple[str, str], answer_from: Sequence[str]) -> bool:
    """Whether it closed its thinking, ended by itself, and holds an answer that the verifier could find."""
    answer = after_thinking(result.completion, think_tags)
    found = answer is not None and final_answer(answer, answer_from) is not None
    return result.closed and result.finished and found
