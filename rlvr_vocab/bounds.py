"""What a number of the configuration may be, said beside its type."""

import math
from dataclasses import dataclass
from typing import Annotated

from rlvr_vocab.errors import UserError


@dataclass(frozen=True)
class Bounds:
    """What a number may be, beside its type: `Annotated[int, Bounds(least=1)]`. None: no bound."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    def check(self, value: float, key: str) -> None:
        """Raises UserError where the number is outside."""
        if isinstance(value, float) and not math.isfinite(value):  # an int may be too large to be asked
            raise UserError(f"{key}={value}: must be finite")
        kept = (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )
        if not kept:
            raise UserError(f"{key}={value}: must be {self}")

    def __str__(self) -> str:
        if self.least is not None and self.most is not None:
            return f"from {self.least} to {self.most}"
        named = {"at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
        return " and ".join(f"{name} {bound}" for name, bound in named.items() if bound is not None)


Count = Annotated[int, Bounds(least=1)]
NotNegative = Annotated[float, Bounds(least=0)]
Share = Annotated[float, Bounds(least=0, most=1)]
Seed = Annotated[int, Bounds(least=0, most=2**31 - 1)]  # NumPy takes 32 bits, and later stages count up from it
