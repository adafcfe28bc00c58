"""Findings on the policy and its updates: KL, entropy, gradients, and weights that stay where they were."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from rlvr_vocab.analysis.doctor.finding import Finding

Row = dict[str, Any]
Named = Callable[..., list[str]]
Found = Callable[..., list[Finding]]


def test_the_first_kl_is_kept(findings_of: Found) -> None:
    [finding] = findings_of(lambda row: {"kl": 0.9 if row["step"] >= 10 else 0.01 * row["step"]})
    assert finding.name == "kl_high" and "0.01 at step 1 " in finding.evidence


def test_a_policy_grows_sure_of_what_it_has_learned(rows_with: Callable[..., list[Row]], names_of: Named) -> None:
    def learned(row: Row) -> Row:
        part = min(1.0, 0.3 + 0.7 * row["step"] / 30)
        spread = (part * (1 - part)) ** 0.5
        sure = {name: max(0.005, row[name] * (1 - part) / 0.7) for name in row if name.startswith("entropy")}
        return {"reward": part, "reward_std": spread, "groups/reward_std": spread, **sure}

    rows = rows_with(learned)
    assert names_of(rows) == []
    wrong = [{**row, "reward": 0.3 + 0.01 * (row["step"] % 3)} for row in rows]
    assert "entropy_collapsing" in names_of(wrong)


def test_the_entropy_of_hardly_any_tokens_is_none(rows_with: Callable[..., list[Row]], names_of: Named) -> None:
    luck, few = random.Random(0), {"thinking/mean_length": 0.1, "thinking/closed": 0.05}
    rows = rows_with(lambda row: {**few, "entropy/thinking": luck.choice((0.0, 0.001, 3.0))}, 14)
    assert names_of(rows) == []


@pytest.mark.parametrize(
    ("rate", "moved", "title", "severity"),
    [
        (1e-8, 0.2, "The learning rate is next to 0", "error"),
        (1e-6, 0.2, "Most updates round away", "warning"),
        (1e-6, 0.0, "The parameters do not move", "error"),
    ],
)
def test_weights_that_stay_are_told_apart_by_their_rate_and_their_share(
    rate: float, moved: float, title: str, severity: str, findings_of: Found
) -> None:
    [finding] = findings_of({"learning_rate": rate, "weights/moved": moved}, learning_rate=rate)
    assert (finding.name, finding.title, finding.severity) == ("weights_not_moving", title, severity)


def test_the_end_of_a_decay_may_round_away(rows_with: Callable[..., list[Row]], names_of: Named) -> None:
    """The last ten rows have rates below 2e-4."""
    rows = rows_with(lambda row: {"weights/moved": 0.0 if row["step"] > 50 else 1.0})
    assert names_of(rows, learning_rate=2e-3) == []
    assert names_of(rows, learning_rate=1e-4) == ["weights_not_moving"]


@pytest.mark.parametrize(("clipped", "title"), [(1.0, "Completions are cut off"), (0.0, "Thinking is not closed")])
def test_thinking_that_is_not_closed_is_told_with_the_limit_or_by_itself(
    clipped: float, title: str, findings_of: Found
) -> None:
    [found] = findings_of({"completions/clipped_ratio": clipped, "thinking/closed": 0.1})
    assert (found.name, found.title, found.severity) == ("completions_cut_off", title, "error")
    assert "thinking/closed 10%" in found.evidence


def test_completions_that_mostly_do_not_think_are_not_judged_by_their_thinking(names_of: Named) -> None:
    assert names_of({"thinking/closed": 0.1, "thinking/mean_length": 2.0, "answering/mean_length": 12.0}) == []
