"""What the doctor says: one thing that is wrong, how it shows, where it probably comes from, and what to change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["warning", "error"]


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
        step: the first step at which it could be seen; None where it concerns the whole run.
    """

    name: str
    title: str
    severity: Severity
    evidence: str
    cause: str
    remedy: tuple[str, ...]
    step: int | None = None
