"""A finding of the doctor, and the rule that leads to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from rlvr_vocab.analysis.doctor.history import History
from rlvr_vocab.record.metrics import Row

Severity = Literal["warning", "error"]


@dataclass(frozen=True)
class Finding:
    """One fault of a run.

    Attributes:
        name: such as `kl_high`; each name is found once in a run. `title` is the same for people.
        severity: `error` where the run cannot have learned its task, else `warning`.
        evidence: figures, steps, and the threshold that they passed.
        cause: the likeliest reason; remedy: a line with the keys to change.
        step: the first step at which it could be seen.
    """

    name: str
    title: str
    severity: Severity
    evidence: str
    cause: str
    remedy: str
    step: int


@dataclass(frozen=True)
class Symptom:
    """Evidence for a rule. Title, cause, remedy and severity replace those of the rule; `step` defaults to the last."""

    evidence: str
    title: str = ""
    cause: str = ""
    remedy: str = ""
    severity: Severity | None = None
    step: int | None = None


@dataclass(frozen=True)
class Rule:
    """Leads to one finding, which has the name of the function `look`; findings in `explains` follow from it."""

    look: Callable[[History], Symptom | None]
    severity: Severity
    title: str
    cause: str
    remedy: str
    explains: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.look.__name__

    def finding(self, history: History) -> Finding | None:
        """The finding, where the history shows it."""
        seen, stage = self.look(history), history.facts.stage
        if seen is None:
            return None
        return Finding(
            self.name,
            seen.title or self.title,
            seen.severity or self.severity,
            seen.evidence,
            seen.cause or self.cause,
            f"{f'in stage {stage}: ' if stage else ''}{seen.remedy or self.remedy}",
            history.step if seen.step is None else seen.step,
        )


def rule(
    *, severity: Severity, title: str = "", cause: str = "", remedy: str = "", explains: tuple[str, ...] = ()
) -> Callable[[Callable[[History], Symptom | None]], Rule]:
    """Make a rule of the decorated function."""
    return lambda look: Rule(look, severity, title, cause, remedy, explains)


# Findings that several others explain.
NO_SIGNAL = ("no_group_differs", "spread_lost")
INCOHERENT = (
    *(*NO_SIGNAL, "reward_flat", "reward_collapsed", "held_out_accuracy_falls", "format_reward_zero"),
    *("completions_cut_off", "mode_collapse"),
)
UNSTABLE = (*INCOHERENT, "kl_high", "entropy_collapsing")


def figure(value: float) -> str:
    """Three significant digits: 0.123, 12.3, 1e-06."""
    return f"{value:.3g}"


def share(value: float) -> str:
    """A percentage; below a tenth two significant digits."""
    return f"{value:.0%}" if value >= 0.1 or value == 0 else f"{value:.2g}"


def steps(rows: Sequence[Row]) -> str:
    first, last = rows[0]["step"], rows[-1]["step"]
    return f"step {first}" if first == last else f"steps {first} to {last}"
