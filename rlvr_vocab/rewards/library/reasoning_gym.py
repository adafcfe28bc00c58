"""The reward for tasks of reasoning-gym: what the task's own scorer gives the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlvr_vocab.data.reasoning_gym import score_answers
from rlvr_vocab.errors import UserError, require_package
from rlvr_vocab.rewards.library.answers import AnswerFrom, Deadline, extracted_answer
from rlvr_vocab.rewards.reward import THINK_TAGS, Score, Tags, reward, turn_text
from rlvr_vocab.sandbox.confinement import CannotConfine
from rlvr_vocab.verify.worker_pool import Outcome

_LONGEST_ANSWER = 20_000  # characters; at the families' defaults a grid of 5,000 is the longest of their own


@reward(grades=True, answer_in="box", reads_thought="nothing")
def reasoning_gym(
    completions: Sequence[Any],
    entry: Sequence[str | None],
    *,
    answer_from: AnswerFrom = "box",
    deadline: Deadline = 5.0,
    allow_unsafe: bool = False,
    think_tags: Tags = THINK_TAGS,
    **_columns: Any,
) -> list[Score]:
    r"""The score of the task's own scorer for the final answer, mostly from 0 to 1; None for a row without an `entry`.
    Where a scorer evaluates answers as Python, Linux confines it; `allow_unsafe` evaluates them where it cannot.

    >>> from rlvr_vocab.data.reasoning_gym import make_entries
    >>> *_, made = make_entries("spell_backward", {"max_word_len": 4}, seed=1, count=3)
    >>> reasoning_gym(["\\boxed{htob}", "\\boxed{ht}", "htob"], entry=[made.encoded] * 3)
    [1.0, 0.5, 0.0]
    """
    require_package("reasoning_gym", "reward reasoning_gym")
    found = (extracted_answer(turn_text(completion), think_tags, answer_from) for completion in completions)
    answers = [None if answer is None else answer.strip() for answer in found]
    pairs: list[tuple[Any, Any]] = list(zip(entry, answers, strict=True))
    scores = {pair: _decided_here(*pair) for pair in dict.fromkeys(pairs)}
    asked = [pair for pair, score in scores.items() if score is None]
    try:
        outcomes = score_answers(asked, deadline, allow_unsafe)
    except CannotConfine as error:
        raise UserError(
            f"reasoning_gym: scorers that evaluate an answer cannot be confined here: {error}; on a machine that you "
            "can do without, params: {allow_unsafe: true} lets them do that all the same"
        ) from error
    scored = {pair: _score_of(outcome) for pair, outcome in zip(asked, outcomes, strict=True)}
    return [scores[pair] or scored[pair] for pair in pairs]


def _decided_here(entry: str | None, answer: str | None) -> Score | None:
    if not entry:
        return Score(None, "the row is of no task of reasoning-gym")
    if not answer:  # some scorers have full marks for nothing
        return Score(0.0, "no answer")
    return Score(0.0, "too large") if len(answer) > _LONGEST_ANSWER else None


def _score_of(outcome: Outcome) -> Score:
    if outcome.failure is None:
        return Score(outcome.value, f"{outcome.value:.3g} by the task's scorer")
    if outcome.failure == "timeout":
        return Score(0.0, "timeout", timed_out=True)
    return Score(0.0, f"the scorer failed: {outcome.detail}"[:90])
