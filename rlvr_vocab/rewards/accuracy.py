"""Correctness: is the answer that follows the thinking the same as the gold answer?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rlvr_vocab.rewards.answer import THINK_TAGS, after_thinking, last_box, turn_text

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,300}")


def accuracy(
    completions: Sequence[Any],
    solution: Sequence[str],
    think_tags: tuple[str, str] = THINK_TAGS,
    **_columns: Any,
) -> list[float | None]:
    r"""1 for a right answer, 0 for a wrong one, a missing one, or thinking that was never closed.

    Where both sides are whole numbers they are compared as such; everything else is judged by TRL's
    `accuracy_reward` (math-verify), given the gold answer in a box, in which it parses, and the last box alone.

    Args:
        completions: assistant turns, as strings or lists of messages, the opening of their thinking included.
        solution: bare gold answers, one per completion.

    Returns:
        A score per completion; None where math-verify cannot read the gold answer.

    Example:
        >>> accuracy(["<think>6 * 7</think>\\boxed{42}", r"<think>\boxed{42}"], solution=["42", "42"])
        [1.0, 0.0]
    """
    return [
        _score(turn_text(completion), gold, think_tags) for completion, gold in zip(completions, solution, strict=True)
    ]


def _score(turn: str, gold: str, think_tags: tuple[str, str]) -> float | None:
    answer = after_thinking(turn, think_tags)
    if answer is None:
        return 0.0
    box = last_box(answer)
    if box is None:
        return _judged_by_math_verify(answer, gold)
    numbers = [side.strip() for side in (box, gold)]
    if all(_WHOLE_NUMBER.fullmatch(number) for number in numbers):
        return float(int(numbers[0]) == int(numbers[1]))
    return _judged_by_math_verify(f"\\boxed{{{box}}}", gold)


def _judged_by_math_verify(answer: str, gold: str) -> float | None:
    from trl.rewards import accuracy_reward

    wrapped = gold if "$" in gold or "\\boxed" in gold else f"\\boxed{{{gold}}}"
    try:
        return accuracy_reward([[{"role": "assistant", "content": answer}]], [wrapped])[0]
    except RecursionError:  # model output is untrusted: some of it nests deeper than the parser can follow
        return 0.0
