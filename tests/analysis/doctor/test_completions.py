"""Findings on the completions: limits, thinking, and reasoning tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rlvr_vocab.analysis.doctor.finding import Finding

Row = dict[str, Any]
Named = Callable[..., list[str]]
CUT = {
    "completions/clipped_ratio": 1.0,
    "answering/mean_length": 0.0,
    "reward": 0.0,
    "reward_std": 0.0,
    "groups/reward_std": 0.0,
    "frac_reward_zero_std": 1.0,
}


def test_a_tight_limit_explains_what_it_does(names_of: Named) -> None:
    assert names_of({**CUT, "thinking/closed": 0.3}) == ["completions_cut_off", "groups_too_hard"]
    none_closes = {**CUT, "thinking/closed": 0.0, "thinking/reasoning_share": 0.001}
    assert names_of(none_closes) == ["completions_cut_off", "thinking_never_closed"]


def test_a_longer_completion_stays_within_the_context(findings_of: Callable[..., list[Finding]]) -> None:
    for room, line in ((None, 48), (1000, 48), (30, 30)):
        [finding] = findings_of({"completions/clipped_ratio": 0.9}, longest_completion=room)
        assert finding.remedy[0] == f"training.max_completion_length={line}"


def test_replace_mode_uses_reasoning_tokens_for_everything(names_of: Named) -> None:
    assert names_of({"thinking/reasoning_share": 0.93}, reasoning_mode="replace") == []


@pytest.mark.parametrize(("thinks", "length"), [(0.05, 6), (0.1, 4), (0.3, 2), (1.0, 2)])
@pytest.mark.parametrize("used", [0.5, 0.9, 1.0])
def test_little_thinking_is_judged_by_the_tokens_that_could_be_either(
    thinks: float, length: int, used: float, rows_with: Callable[..., list[Row]], names_of: Named
) -> None:
    """`thinks` of the completions think, `length` tokens with the closing one, of which `used` of the others copies."""
    rows = rows_with(
        {
            "thinking/mean_length": thinks * length,
            "thinking/closed": thinks,
            "thinking/reasoning_share": used * (length - 1) / length,
            "answering/mean_length": 12.0,
        }
    )
    assert names_of(rows, completions_per_step=128) == ["reasoning_tokens_everywhere"] * (used == 1.0)
    enough = thinks == 1.0  # 13 steps of 8 completions, one token each that could be either
    names = names_of(rows[:13], completions_per_step=8)
    assert names == ["reasoning_tokens_everywhere"] * (used == 1.0 and enough)


def test_copies_of_a_few_tokens_that_do_not_occur_have_not_been_given_up(
    findings_of: Callable[..., list[Finding]],
) -> None:
    [finding] = findings_of({"thinking/reasoning_share": 0.0}, reasoning_copies=0.1)
    assert "hardly occur" in finding.cause and "reasoning_vocab_size=full" in finding.remedy[0]
    assert findings_of({"thinking/reasoning_share": 0.0}, reasoning_copies=1e-4) == []
