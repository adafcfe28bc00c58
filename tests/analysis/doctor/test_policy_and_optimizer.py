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
    ("norm", "count", "sick"), [(1.1, 60, False), (3.0, 60, False), (5.1, 20, True), (50.0, 19, False)]
)
def test_gradients_far_above_the_limit(
    norm: float, count: int, sick: bool, rows_with: Callable[..., list[Row]], names_of: Named
) -> None:
    assert names_of(rows_with({"grad_norm": norm}, count)) == ["gradients_clipped"] * sick


@pytest.mark.parametrize(
    ("rate", "pure_bf16", "name", "said"),
    [
        (0.0, False, "learning_rate_zero", "is 0"),
        (1e-8, False, "learning_rate_zero", "too low"),
        (1e-6, False, "updates_rounded_away", "the learning rate is too low"),
        (1e-6, True, "updates_rounded_away", "16 bits"),
    ],
)
def test_weights_that_stay_have_the_cause_that_the_configuration_tells(
    rate: float, pure_bf16: bool, name: str, said: str, findings_of: Found
) -> None:
    stay = {"learning_rate": rate, "weights/moved": 0.2}
    [finding] = findings_of(stay, learning_rate=rate, pure_bf16=pure_bf16)
    assert finding.name == name and said in finding.cause
    assert ("model.pure_bf16=false" in finding.remedy) == pure_bf16


def test_the_end_of_a_decay_may_round_away(rows_with: Callable[..., list[Row]], names_of: Named) -> None:
    """The last ten rows have rates below 2e-4."""
    rows = rows_with(lambda row: {"weights/moved": 0.0 if row["step"] > 50 else 1.0})
    assert names_of(rows, learning_rate=2e-3) == []
    assert names_of(rows, learning_rate=1e-4) == ["weights_not_moving"]
