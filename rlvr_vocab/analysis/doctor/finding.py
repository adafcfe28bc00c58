"""A finding of the doctor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rlvr_vocab.record.metrics import Row


@dataclass(frozen=True)
class Finding:
    """One fault of a run; `Doctor` fills in `name`, and the last step where a rule gives none.

    Attributes:
        severity: `error` where the run cannot have learned its task, else `warning`.
        evidence: figures, steps, and the threshold that they passed.
        cause: the likeliest reason; remedy: a line with the keys to change.
        name: such as `kl_high`; each name is found once in a run. `title` is the same for people.
        step: the first step at which it could be seen.
    """

    title: str
    severity: Literal["warning", "error"]
    evidence: str
    cause: str
    remedy: str
    step: int = -1
    name: str = ""


def steps(rows: Sequence[Row]) -> str:
    first, last = rows[0]["step"], rows[-1]["step"]
    return f"step {first}" if first == last else f"steps {first} to {last}"
