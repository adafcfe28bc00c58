"""What the doctor says of a run, and what a rule is that leads to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from rlvr_vocab.analysis.doctor.history import History
from rlvr_vocab.record.metrics import Row

Severity = Literal["warning", "error"]


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a run.

    Attributes:
        name: what it is called everywhere, such as `kl_high`; each name is found once in a run.
        title: the same for people, in a few words.
        severity: `error` where the run cannot have learned what it was to learn, else `warning`.
        evidence: figures, steps, and the threshold that they passed.
        cause: the likeliest reason.
        remedy: a line with the keys to change.
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
    """What a rule has seen. Title, cause, remedy and severity go over those of the rule; `step` is else the last."""

    evidence: str
    title: str = ""
    cause: str = ""
    remedy: str = ""
    severity: Severity | None = None
    step: int | None = None


@dataclass(frozen=True)
class Rule:
    """What leads to one finding, which has the name of the function that looks for it.

    Attributes:
        look: returns what it has seen in the rows so far, or None.
        explains: findings that follow from this one, and are not told beside it.
    """

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
    """Make a rule of the decorated function; its symptoms may have a title, a cause and a remedy of their own."""
    return lambda look: Rule(look, severity, title, cause, remedy, explains)


# Findings that several others explain.
NO_SIGNAL = ("no_group_differs", "spread_lost")
INCOHERENT = (
    *(*NO_SIGNAL, "reward_flat", "reward_collapsed", "held_out_accuracy_falls", "format_reward_zero"),
    *("completions_cut_off", "mode_collapse"),
)
UNSTABLE = (*INCOHERENT, "kl_high", "entropy_collapsing")


def figure(value: float) -> str:
    """Three significant digits, no more zeros than needed: 0.123, 12.3, 1e-06."""
    return f"{value:.3g}"


def share(value: float) -> str:
    """A percentage; below a tenth two significant digits."""
    return f"{value:.0%}" if value >= 0.1 or value == 0 else f"{value:.2g}"


def steps(rows: Sequence[Row]) -> str:
    first, last = rows[0]["step"], rows[-1]["step"]
    return f"step {first}" if first == last else f"steps {first} to {last}"
