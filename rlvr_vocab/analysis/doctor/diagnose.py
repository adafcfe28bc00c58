"""Finds the faults of a run, row by row as it is logged, or in all of its rows."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import replace

from rlvr_vocab.analysis.doctor import learning, policy
from rlvr_vocab.analysis.doctor.history import FEWEST_ROWS, WINDOW, Finding, History, steps_of_enough_completions
from rlvr_vocab.data.source import FROM_PYTHON
from rlvr_vocab.record.metrics import Row, RunFacts, RunRecord

RULES: dict[str, Callable[[History], Finding | None]] = {
    rule.__name__: rule
    for rule in (
        *(learning.no_group_differs, learning.spread_lost, learning.no_gradient),
        *(learning.format_reward_zero, learning.rows_skipped),
        *(learning.reward_flat, learning.reward_collapsed, learning.held_out_accuracy_falls),
        learning.reward_reads_thought,
        *(policy.completions_cut_off, policy.no_calls, policy.calls_fail, policy.completions_end_in_calls),
        *(policy.mode_collapse, policy.kl_high, policy.entropy_collapsing),
        *(policy.sampler_disagrees, policy.loss_not_finite, policy.weights_not_moving),
    )
}
_NO_SIGNAL = ("no_group_differs", "spread_lost", "reward_flat")
_INCOHERENT = (
    *(*_NO_SIGNAL, "reward_collapsed", "held_out_accuracy_falls", "format_reward_zero", "completions_cut_off"),
    "mode_collapse",
)
_UNSTABLE = (*_INCOHERENT, "kl_high", "entropy_collapsing")
# Findings that follow from another one, and are not shown beside it.
EXPLAINS = {
    "no_group_differs": ("reward_flat", "weights_not_moving"),
    "spread_lost": ("reward_flat", "weights_not_moving"),
    "format_reward_zero": _NO_SIGNAL,
    "rows_skipped": _NO_SIGNAL,
    "reward_collapsed": (*_NO_SIGNAL, "format_reward_zero", "mode_collapse", "kl_high", "completions_cut_off"),
    "completions_cut_off": ("reward_flat", "format_reward_zero", "mode_collapse"),
    **dict.fromkeys(("no_calls", "calls_fail", "completions_end_in_calls", "mode_collapse"), _NO_SIGNAL),
    "entropy_collapsing": tuple(name for name in _INCOHERENT if name != "mode_collapse"),
    "sampler_disagrees": _UNSTABLE,
    "loss_not_finite": _UNSTABLE,
    **dict.fromkeys(("weights_not_moving", "no_gradient"), ("reward_flat",)),
}


class Doctor:
    """Judges the rows of one run in their order, in bounded memory; `found` are all findings so far, by name."""

    def __init__(self, facts: RunFacts) -> None:
        self.found: dict[str, Finding] = {}
        self._history = History(facts)

    def look(self, row: Row) -> list[Finding]:
        """The new findings after this row, of a step or of an evaluation, less those that follow from another one."""
        self._history.add(row)
        if self._history.has_risen:  # a reward that was flat is so no longer
            self.found.pop("reward_flat", None)
        return self._look()

    def close(self, summary: Row) -> list[Finding]:
        """The new findings by the outcome of a finished run."""
        self._history.close(summary)
        return self._look()

    def findings(self) -> list[Finding]:
        """All findings that follow from no other one, errors first."""
        return self._unexplained(self.found.values())

    def _look(self) -> list[Finding]:
        new, stage = list[Finding](), self._history.facts.stage
        for name, rule in RULES.items():
            if name not in self.found and (found := rule(self._history)) is not None:
                step = found.step if found.step >= 0 else self._history.step
                remedy = f"{f'in stage {stage}: ' if stage else ''}{found.remedy}"
                if self._history.facts.dataset.startswith(FROM_PYTHON):  # names of GRPOConfig and the trainer
                    remedy = remedy.replace("training.dynamic_sampling=true", "max_rounds=3").replace("training.", "")
                new.append(replace(found, name=name, step=step, remedy=remedy))
        self.found.update({finding.name: finding for finding in new})
        return self._unexplained(new)

    def _unexplained(self, findings: Iterable[Finding]) -> list[Finding]:
        explained = {name for cause in self.found for name in EXPLAINS.get(cause, ())}
        kept = [finding for finding in findings if finding.name not in explained]
        return sorted(kept, key=lambda finding: (finding.severity != "error", finding.step, finding.name))


def diagnose(record: RunRecord) -> list[Finding]:
    """The findings of a run, finished or not: errors first, then by step, each name once."""
    doctor = Doctor(record.facts)
    for row in heapq.merge(record.rows, record.evaluations, key=lambda row: int(row["step"])):
        doctor.look(row)
    if record.summary is not None:
        doctor.close({**record.summary, "thoughts": record.thoughts})
    return doctor.findings()


def too_short(record: RunRecord) -> str:
    """A line where there are too few steps for nearly every rule; else empty."""
    window, last = max(WINDOW, steps_of_enough_completions(record.facts)), record.last_step
    line = f"too short to judge: most findings need {window:g} steps, some {2 * window:g} or more"
    return line if last < window or len(record.rows) < FEWEST_ROWS else ""
