"""A reward for the calls of a completion: which of them a tool answered, which failed, which are no calls at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Annotated, Any

from pydantic import Field, PositiveInt

from rlvr_vocab.bounds import Share
from rlvr_vocab.rewards.reward import ERRORS, THINK_TAGS, Score, Tags, after_thinking, assistant_turns, reward
from rlvr_vocab.text import pluralize, short_text


@reward(skip_gold_check="a made-up turn calls no tool", reads_thought="nothing")
def tool_calls(
    completions: Sequence[Any],
    *,
    least: PositiveInt = 1,
    most: PositiveInt | None = None,
    failed: Share = 0.2,
    unreadable: Share = 0.1,
    call_tag: Annotated[str, Field(min_length=1)] = "<tool_call>",
    think_tags: Tags = THINK_TAGS,
    **_columns: Any,
) -> list[Score]:
    """The mean credit of a completion's calls, as if there were at least `least`; calls past `most` have none.

    The credit is 1 where a tool answered, `failed` where it gave an error or nothing, and `unreadable` for a `call_tag`
    after the thinking that is no call.

    >>> call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add", "arguments": {}}}]}
    >>> tool_calls([[call, {"role": "tool", "content": "7"}], [call], "<tool_call>add</tool_call>", "7"])
    [1.0, 0.2, 0.1, 0.0]
    """
    credit = {"valid": 1.0, "failed": failed, "without a result": failed, "unreadable": unreadable}

    def score(completion: Any) -> Score:
        calls = list(_calls(completion, call_tag, think_tags))
        counts = Counter(kind for kind, _ in calls)
        others = "".join(f", {counts[kind]} {kind}" for kind in credit if kind != "valid" and counts[kind])
        error = next((f": {short_text(result, 40)}" for kind, result in calls if kind == "failed"), "")
        reason = f"{counts['valid']} of {pluralize(len(calls), 'call')} valid{others}{error}" if calls else "no call"
        return Score(sum(credit[kind] for kind, _ in calls[:most]) / max(least, len(calls)), reason)

    return list(map(score, completions))


def _calls(completion: Any, call_tag: str, think_tags: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """Kind and result of each call."""
    for turn in assistant_turns(completion):
        for _, result in zip_longest(turn.calls, turn.results):
            kind = "without a result" if result is None else "failed" if result.startswith(ERRORS) else "valid"
            yield kind, result or ""
        yield from [("unreadable", "")] * (after_thinking(turn.text, think_tags) or "").count(call_tag)
