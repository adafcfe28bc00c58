"""The settings of the commands that look at runs: doctor, samples, report, compare."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True)
class DoctorSettings:
    run: Path
    format: Literal["text", "json"]


@dataclass(frozen=True)
class SamplesSettings:
    """`rlvr-vocab samples`. step: a step or a range of them, as it was typed; format: None for pages on a terminal."""

    run: Path
    step: str | None
    problem: str | None
    contains: str | None
    verdict: Literal["right", "wrong"] | None
    min_reward: float | None
    max_reward: float | None
    order: Literal["file", "lowest", "highest", "problem"]
    max_samples: int | None
    format: Literal["text", "html", "md"] | None
    out: Path | None


@dataclass(frozen=True)
class ReportSettings:
    run: Path
    out: Path
    max_samples: int


@dataclass(frozen=True)
class CompareSettings:
    """`rlvr-vocab compare`. key, baseline, evaluation, pair_seeds: None where they are to be found out."""

    runs: tuple[Path, ...]
    key: str | None
    baseline: Any  # a value of that key, whatever it is
    evaluation: str | None
    pair_seeds: bool | None
    confidence: float
    power: float
    out: Path
