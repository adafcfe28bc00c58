"""What the doctor says of a run, and how it writes figures; the thresholds that its rules compare with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rlvr_vocab.record.metrics import Row

Severity = Literal["warning", "error"]
GUIDE = "docs/guide.md, What to watch"
GUIDE_ON_RATES = "docs/guide.md, Learning rate"
QUICKSTART = "measured: healthy quickstart runs, see docs/doctor.md"
SIMULATED = "simulated: healthy quickstart rewards in batches of 16 to 128, see docs/doctor.md"
JUDGEMENT = "judgement"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a run.

    Attributes:
        name: what it is called everywhere, such as `kl_high`; each name is found once in a run.
        title: the same for people, in a few words.
        severity: `error` where the run cannot have learned what it was to learn, else `warning`.
        evidence: what was seen: figures, steps, and the threshold that they passed.
        cause: the likeliest reason.
        remedy: the configuration line to change, as it can be typed; more than one where there is a choice, and none
            where the run has all of it already.
        step: the first step at which it could be seen.
    """

    name: str
    title: str
    severity: Severity
    evidence: str
    cause: str
    remedy: tuple[str, ...]
    step: int


class Threshold(float):
    """A number that separates healthy from sick, with its unit, the reason for it, and the source of that."""

    unit: str
    reason: str
    source: str

    def __new__(cls, value: float, unit: str, reason: str, source: str = JUDGEMENT) -> Threshold:
        threshold = super().__new__(cls, value)
        threshold.unit, threshold.reason, threshold.source = unit, reason, source
        return threshold


def figure(value: float) -> str:
    """Three significant digits, no more zeros than needed: 0.123, 12.3, 1e-06."""
    return f"{value:.3g}"


def share(value: float) -> str:
    """A percentage; below a tenth two significant digits."""
    return f"{value:.0%}" if value >= 0.1 or value == 0 else f"{value:.2g}"


def steps(rows: Sequence[Row]) -> str:
    first, last = rows[0]["step"], rows[-1]["step"]
    return f"step {first}" if first == last else f"steps {first} to {last}"


def typed(value: float) -> str:
    """A number as it can stand in a configuration line."""
    return repr(float(f"{value:.2g}"))
