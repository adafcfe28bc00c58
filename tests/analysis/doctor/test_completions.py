"""Findings on the completions: limits, thinking, and reasoning tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


def test_thinking_that_is_not_closed_is_told_with_the_limit_or_by_itself(
    findings_of: Callable[..., list[Finding]],
) -> None:
    for row, title in (
        (CUT, "Completions are cut off"),
        ({"completions/clipped_ratio": 0.0}, "Thinking is not closed"),
    ):
        found, *others = findings_of({**row, "thinking/closed": 0.1})
        assert found.name == "completions_cut_off" and found.title == title and found.severity == "error"
        assert "thinking/closed 10%" in found.evidence
        assert [each.name for each in others] == ["no_group_differs"] * (row is CUT)


def test_completions_that_mostly_do_not_think_are_not_judged_by_their_thinking(names_of: Named) -> None:
    assert names_of({"thinking/closed": 0.1, "thinking/mean_length": 2.0, "answering/mean_length": 12.0}) == []
