"""Weights that follow success: a reward that is rarely earned weighs more, one that is nearly always earned less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr_vocab.bounds import reaches
from rlvr_vocab.errors import UserError

# Weighted scores are summed in float32, where a far larger weight drowns the others, or becomes infinite.
LARGEST_WEIGHT = 1e6


@dataclass(frozen=True)
class Adaptation:
    """When and how a weight moves: at most once after each `window` batches of completions.

    The success rate is the share of completions at full mark in these batches. Below `below` the weight is multiplied
    by `raise_by`, above `above` by `lower_by`; it stays between `least` and `most`.
    """

    below: float = 0.3
    raise_by: float = 1.2
    above: float = 0.8
    lower_by: float = 0.9
    window: int = 20
    least: float = 0.1
    most: float = 10.0

    def __post_init__(self) -> None:
        rates, factors = 0 <= self.below <= self.above <= 1, 0 < self.lower_by <= 1 <= self.raise_by
        if not (rates and factors and 0 < self.least <= self.most <= LARGEST_WEIGHT and self.window >= 1):
            raise UserError(
                "adaptive: must have 0 <= below <= above <= 1, 0 < lower_by <= 1 <= raise_by, window >= 1 and "
                f"0 < least <= most <= {LARGEST_WEIGHT:,.0f}; there is {self}"
            )


class AdaptiveWeight:
    """One weight and the success rates of the batches since it last moved.

    >>> weight = AdaptiveWeight(1.0, full_mark=1.0, adaptation=Adaptation(window=1))
    >>> weight.observe([0.0, 0.0, 1.0, 0.0, None])
    >>> weight.value
    1.2
    """

    def __init__(self, value: float, full_mark: float, adaptation: Adaptation) -> None:
        if not adaptation.least <= value <= adaptation.most:
            bounds = f"least={adaptation.least} and most={adaptation.most}"
            raise UserError(f"adaptive: a weight of {value} does not lie between {bounds}")
        self.value = value
        self._full_mark = full_mark
        self._adaptation = adaptation
        self._rates: list[float] = []

    def observe(self, scores: Sequence[float | None]) -> None:
        """Count a batch; rows without a score are left out."""
        given = [score for score in scores if score is not None]
        if not given:
            return
        self._rates.append(sum(reaches(score, self._full_mark) for score in given) / len(given))
        rule = self._adaptation
        if len(self._rates) < rule.window:
            return
        rate = sum(self._rates) / len(self._rates)
        self._rates = []
        factor = rule.raise_by if rate < rule.below else rule.lower_by if rate > rule.above else 1.0
        self.value = min(max(self.value * factor, rule.least), rule.most)

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"value": self.value, "rates": list(self._rates)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.value, self._rates = float(state["value"]), list(state["rates"])
