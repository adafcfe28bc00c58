"""Weights that follow success: a reward that is rarely earned weighs more, one that is nearly always earned less."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rlvr_vocab.errors import UserError

# Weighted scores are summed in float32, where a far larger weight leaves nothing of the others, or infinity.
LARGEST_WEIGHT = 1e6


@dataclass(frozen=True)
class Adaptation:
    """When and how a weight moves.

    The success rate is the share of completions at full mark, over `window` batches of completions; after each full
    window the weight moves at most once and the window begins anew.

    Attributes:
        below: at a success rate below this the weight is multiplied by `raise_by`.
        above: at one above this it is multiplied by `lower_by`.
        least, most: bounds of the weight.
    """

    below: float = 0.3
    raise_by: float = 1.2
    above: float = 0.8
    lower_by: float = 0.9
    window: int = 20
    least: float = 0.1
    most: float = 10.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not math.isfinite(value):
                raise UserError(f"adaptive: {name}={value} must be a finite number")
        if not 0 <= self.below <= self.above <= 1:
            raise UserError(f"adaptive: below={self.below} and above={self.above} must be shares, the first no larger")
        if not 0 < self.lower_by <= 1 <= self.raise_by:
            factors = f"lower_by={self.lower_by} and raise_by={self.raise_by}"
            raise UserError(f"adaptive: {factors} must lie above 0 and on either side of 1")
        if not 0 < self.least <= self.most:
            raise UserError(f"adaptive: least={self.least} must be above 0 and at most most={self.most}")
        if self.most > LARGEST_WEIGHT:
            raise UserError(f"adaptive: most={self.most} must be at most {LARGEST_WEIGHT:,.0f}")
        if self.window < 1:
            raise UserError(f"adaptive: window={self.window} must be at least 1")


class AdaptiveWeight:
    """One weight and the success rates of the batches since it last moved.

    Example:
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
        """Count a batch; rows without a score say nothing."""
        given = [score for score in scores if score is not None]
        if not given:
            return
        self._rates.append(sum(score >= self._full_mark - 1e-6 for score in given) / len(given))
        if len(self._rates) < self._adaptation.window:
            return
        rate = sum(self._rates) / len(self._rates)
        self._rates = []
        rule = self._adaptation
        factor = rule.raise_by if rate < rule.below else rule.lower_by if rate > rule.above else 1.0
        self.value = min(max(self.value * factor, rule.least), rule.most) if factor != 1.0 else self.value

    def state(self) -> dict[str, Any]:
        """What a checkpoint has to keep."""
        return {"value": self.value, "rates": list(self._rates)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned."""
        self.value, self._rates = float(state["value"]), list(state["rates"])
