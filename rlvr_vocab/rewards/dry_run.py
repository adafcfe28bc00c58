"""A reward function is called once before anything is trained, and refused where it makes a mistake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.guard import GuardedReward, Mistake, shown_row
from rlvr_vocab.rewards.reward import Score
from rlvr_vocab.rewards.turns import turn_text


def dry_run(reward: GuardedReward, rows: Sequence[dict[str, Any]], completions: Sequence[Any]) -> list[Score]:
    """Call a reward function once and refuse it where it raises or returns something else than scores.

    Args:
        rows: rows of the data set, with `prompt`.
        completions: an assistant's turn for each of them, as messages.

    Returns:
        What it scored each row, and why.

    Raises:
        UserError: naming the function, the row and what it returned or raised.
    """
    scores = reward.explain(**trial_columns(rows, completions))
    for row, score in enumerate(scores):
        if isinstance(score, Mistake):
            raise UserError(f"reward {reward.name} {score.reason}{_advice(reward, score, shown_row(completions, row))}")
    return scores


def trial_columns(rows: Sequence[Mapping[str, Any]], completions: Sequence[Any]) -> dict[str, Any]:
    """What a reward function is called with: as a trainer would, for completions that nobody sampled."""
    names = [name for name in rows[0] if name != "prompt"]
    return {
        **{name: [row[name] for row in rows] for name in names},
        "prompts": [row["prompt"] for row in rows],
        "completions": list(completions),
        "completion_ids": stand_in_ids(completions),
        **stand_in_trainer(),
    }


def _advice(reward: GuardedReward, mistake: Mistake, row: str) -> str:
    """Where in its trial a function made a mistake, and what would be right."""
    if mistake.timed_out:
        return " in its trial; a larger `deadline` beside its name gives it more time, null any time"
    if mistake.of_the_batch:
        return "; it must return a list with a number or None per row"
    # Alarms work in the main thread alone; math-verify and others raise elsewhere.
    needs_main_thread = reward.deadline is not None and "ValueError" in mistake.reason and "signal" in mistake.reason
    hint = "; `deadline: null` beside its name lets it run in the main thread, without a deadline"
    return f" for {row} in its trial{hint if needs_main_thread else ''}"


def stand_in_ids(completions: Sequence[Any]) -> list[list[int]]:
    """As many ids as a completion has characters, where nothing was sampled."""
    return [list(range(len(turn_text(completion)))) for completion in completions]


def stand_in_trainer() -> dict[str, Any]:
    """What a trainer hands over beside the columns, before there is one: the state of a run that has not begun."""
    state = SimpleNamespace(
        epoch=0.0,
        global_step=0,
        max_steps=1,
        num_train_epochs=1,
        num_input_tokens_seen=0,
        best_metric=None,
        log_history=[],
        is_local_process_zero=True,
        is_world_process_zero=True,
    )
    return {
        "trainer_state": state,
        "log_extra": lambda column, values: None,
        "log_metric": lambda name, value: None,
    }
