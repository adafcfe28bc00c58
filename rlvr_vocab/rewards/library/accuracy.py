"""Correctness: is the answer that follows the thinking the same as the gold answer?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlvr_vocab.data.answers import gold_text
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.parameters import number, shown
from rlvr_vocab.rewards.reward import Score, reward
from rlvr_vocab.rewards.turns import THINK_TAGS, after_thinking, turn_text
from rlvr_vocab.text import nearest_and_all
from rlvr_vocab.verify.boxed_answer import SOURCES, final_answer
from rlvr_vocab.verify.verifier import DEADLINE_SECONDS, TIMEOUT, Verdict, verify

# Where an answer may stand unless something else is asked for.
ANSWER_FROM = ("box",)
SHORTEST_DEADLINE = 0.01


@reward(grades=True, verifies=True, answer_in="box", aliases=("accuracy_reward", "reasoning_accuracy_reward"))  # TRL's
def accuracy(
    completions: Sequence[Any],
    solution: Sequence[Any],
    think_tags: tuple[str, str] = THINK_TAGS,
    answer_from: str | Sequence[str] = ANSWER_FROM,
    deadline: float = DEADLINE_SECONDS,
    **_columns: Any,
) -> list[Score]:
    r"""1 for a right answer, 0 for a wrong one, a missing one, or thinking that was never closed.

    The answer is what the last box after the thinking holds; boxes side by side, `\boxed{1}` and `\boxed{2}`, are one
    list. It is compared by value: exactly where both sides are numbers, by algebra where they are formulas, as text
    where one is text or a bare gold answer may be no mathematics (`7-11`, a date); tuples, intervals, sets, matrices
    and equations part by part. It is never accepted on doubt. Nothing in a completion can hang or crash the caller.

    Args:
        completions: assistant turns, as strings or lists of messages, the opening of their thinking included.
        solution: gold answers, one per completion: bare LaTeX, numbers, letters or words, in `$…$` or in a box. Of no
            use are lists, dicts and booleans.
        think_tags: what opens and closes the thinking.
        answer_from: where the answer may stand, the first that holds one decides: `box`, `answer_tag`
            (`<answer>…</answer>`), `hash` (after `####`), `phrase` (after "the answer is").
        deadline: seconds for one comparison; an answer that needs more scores 0.

    Returns:
        A score per completion; None where the gold answer cannot be used. `accuracy.explain` gives the reasons.

    Raises:
        UserError: `answer_from` or `deadline` is none that there can be.

    Example:
        >>> accuracy(["<think>6 * 7</think>\\boxed{42}", r"<think>\boxed{42}"], solution=["42", "42"])
        [1.0, 0.0]
        >>> accuracy.explain([r"\boxed{\frac24}", r"\boxed{0.6}"], solution=["1/2", "1/2"])
        [Score(value=1.0, reason='equal'), Score(value=0.0, reason='different: 3/5 is not 1/2')]
    """
    found = verdicts(completions, solution, think_tags, answer_from, deadline)
    return [Score(verdict.score, str(verdict), timed_out=verdict.reason == TIMEOUT) for verdict in found]


def verdicts(
    completions: Sequence[Any],
    solution: Sequence[Any],
    think_tags: tuple[str, str] = THINK_TAGS,
    answer_from: str | Sequence[str] = ANSWER_FROM,
    deadline: float = DEADLINE_SECONDS,
) -> list[Verdict]:
    """What `accuracy` scores, with both sides as they were read and the milliseconds.

    Raises:
        UserError: `answer_from` names a source that there is none of, or `deadline` is no time.
    """
    sources, deadline = sources_of(answer_from), number("accuracy", "deadline", deadline, least=SHORTEST_DEADLINE)
    golds = [gold_text(gold) for gold in solution]
    return verify(golds, [extracted_answer(turn_text(turn), think_tags, sources) for turn in completions], deadline)


def sources_of(answer_from: str | Sequence[str], reward: str = "accuracy") -> Sequence[str]:
    """Where an answer may stand, the first place first; one place may be named without a list.

    Raises:
        UserError: nothing is named, or a place that there is none of.
    """
    sources = [answer_from] if isinstance(answer_from, str) else answer_from
    if not isinstance(sources, list | tuple):
        raise UserError(f"{reward}: answer_from={shown(sources)} must be one or more of {', '.join(SOURCES)}")
    if not sources:
        raise UserError(f"{reward}: answer_from is empty: name at least one of {', '.join(SOURCES)}")
    for source in sources:
        if not isinstance(source, str) or source not in SOURCES:
            raise UserError(f"{reward}: answer_from={source}: no such source{nearest_and_all(str(source), SOURCES)}")
    return sources


def extracted_answer(
    turn: str, think_tags: tuple[str, str] = THINK_TAGS, answer_from: str | Sequence[str] = ANSWER_FROM
) -> str | None:
    """The final answer of a turn as `accuracy` looks for it; None where there is none, or thinking was never closed."""
    text = after_thinking(turn, think_tags)
    return None if text is None else final_answer(text, sources_of(answer_from))
