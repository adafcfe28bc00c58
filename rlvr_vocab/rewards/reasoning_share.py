"""Reward for the use of a reasoning vocabulary: which share of the tokens of the thinking are reasoning tokens."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from rlvr_vocab.rewards.length_units import sampled_ids
from rlvr_vocab.rewards.parameters import number, required, whole_number
from rlvr_vocab.rewards.reward import Mark, reward
from rlvr_vocab.rewards.turns import THINK_TAGS, turn_text

_MEANINGS = {
    "standard_size": "the number of standard token ids, from which on ids are reasoning tokens",
    "think_open_id": "the id of the tag that opens thinking",
    "think_close_id": "the id of the tag that closes thinking",
}


def share_mark(
    ids: Sequence[int],
    standard_size: int,
    think_open_id: int,
    think_close_id: int,
    begins_thinking: bool = False,
    target: float = 1.0,
) -> Mark:
    """How near the share of reasoning tokens among those sampled while thinking is to a target."""
    thinking, tokens, reasoning_tokens = begins_thinking, 0, 0
    for token in ids:
        # A token belongs to the region in which it was chosen: a closing tag was chosen while thinking.
        tokens += thinking
        reasoning_tokens += thinking and token >= standard_size
        thinking = token == think_open_id or (thinking and token != think_close_id)
    if not tokens:
        return Mark(None, "no thinking")
    # Exact until the end, so that with the target 1 the score is the share to the last digit.
    wanted = Fraction(str(target))
    distance = abs(Fraction(reasoning_tokens, tokens) - wanted)
    return Mark(float(1 - distance / max(wanted, 1 - wanted)), f"{reasoning_tokens} of {tokens} thinking tokens")


@reward(full_mark=1.0)
def reasoning_share(
    completions: Sequence[Any],
    completion_ids: Sequence[Sequence[int]] | None = None,
    standard_size: int | None = None,
    think_open_id: int | None = None,
    think_close_id: int | None = None,
    target: float = 1.0,
    think_tags: tuple[str, str] = THINK_TAGS,
    **_columns: Any,
) -> list[Mark]:
    """The share of reasoning tokens among the tokens sampled while thinking, or how near it is to a target.

    With share `s` and target `t` the score is `1 - |s - t| / max(t, 1 - t)`: the share itself for the target 1.
    Thinking lasts from an opening tag to a closing one, which counts. A completion that reads as if it began with the
    opening tag and was not sampled with it began to think in the prompt.

    Args:
        completions: assistant turns, as strings or lists of messages.
        completion_ids: sampled token ids per completion; a trainer passes them.
        standard_size: number of standard token ids; `standard_size + k` is a reasoning token.
        think_open_id: id of the opening tag.
        think_close_id: id of the closing tag.
        target: share that earns the full mark, from 0 to 1.
        think_tags: the tags as text.

    Returns:
        A score from 0 to 1 per completion; None for one without thinking.

    Raises:
        UserError: an id or `completion_ids` is missing, or the target is not from 0 to 1.

    Example:
        >>> turns, ids = ["<think>a b</think>c", "d"], [[90, 10, 111, 91, 12], [13]]
        >>> reasoning_share.marks(turns, ids, standard_size=100, think_open_id=90, think_close_id=91)[0]
        Mark(score=0.3333333333333333, reason='1 of 3 thinking tokens')
        >>> reasoning_share(turns, ids, standard_size=100, think_open_id=90, think_close_id=91, target=0.5)
        [0.6666666666666666, None]
    """
    given = {"standard_size": standard_size, "think_open_id": think_open_id, "think_close_id": think_close_id}
    size, open_id, close_id = (
        whole_number("reasoning_share", name, required("reasoning_share", name, value, _MEANINGS[name]))
        for name, value in given.items()
    )
    target = number("reasoning_share", "target", target, least=0, most=1)
    marks = []
    for completion, ids in zip(completions, sampled_ids("reasoning_share", completion_ids), strict=True):
        prefilled = turn_text(completion).startswith(think_tags[0]) and list(ids[:1]) != [open_id]
        marks.append(share_mark(ids, size, open_id, close_id, prefilled, target))
    return marks
