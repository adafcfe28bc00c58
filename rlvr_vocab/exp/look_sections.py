"""The settings of the commands that look at runs: doctor, samples, report, compare."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class DoctorSettings:
    run: Path
    format: Literal["text", "json"]


@dataclass(frozen=True)
class SamplesSettings:
    """`rlvr-vocab samples`. step: a step or a range of them, as it was typed; format: None for pages on a terminal."""

    run: Path
    step: int | str | None
    problem: str | None
    contains: str | None
    min_reward: float | None
    max_reward: float | None
    order: Literal["file", "lowest", "highest", "problem"]
    max_samples: int | None
    format: Literal["text", "html", "md", "tex"] | None
    out: Path | None


@dataclass(frozen=True)
class ReportSettings:
    run: Path
    out: Path
    max_samples: int


@dataclass(frozen=True)
class CompareSettings:
    """`rlvr-vocab compare`. key, baseline, evaluation: None where they are to be found out."""

    runs: tuple[Path, ...]
    key: str | None
    baseline: str | float | None
    evaluation: str | None
    confidence: float
    power: float
    out: Path
