"""Finds the faults of a run, row by row as it is logged, or in all of its rows."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from rlvr_vocab.analysis.doctor import learning, policy, rewards
from rlvr_vocab.analysis.doctor.finding import Finding, Rule
from rlvr_vocab.analysis.doctor.history import History
from rlvr_vocab.record.metrics import Row, RunFacts, RunRecord

TOPICS = (rewards, learning, policy)
RULES = {each.name: each for topic in TOPICS for each in vars(topic).values() if isinstance(each, Rule)}


class Doctor:
    """Judges the rows of one run in their order, in bounded memory; `found` are all findings so far, by name."""

    def __init__(self, facts: RunFacts) -> None:
        self.found: dict[str, Finding] = {}
        self._history = History(facts)

    def look(self, row: Row) -> list[Finding]:
        """The new findings after this row, of a step or of an evaluation, less those that follow from another one."""
        self._history.add(row)
        if self._history.has_risen:  # a reward that was flat rested
            self.found.pop("reward_flat", None)
        return self._look()

    def close(self, summary: Row) -> list[Finding]:
        """The new findings by the outcome of a finished run."""
        self._history.summary = summary
        return self._look()

    def findings(self) -> list[Finding]:
        """All findings that follow from no other one, the gravest first."""
        return self._unexplained(self.found.values())

    def _look(self) -> list[Finding]:
        rules = [each for name, each in RULES.items() if name not in self.found]
        new = [found for each in rules if (found := each.finding(self._history)) is not None]
        self.found.update({each.name: each for each in new})
        return self._unexplained(new)

    def _unexplained(self, findings: Iterable[Finding]) -> list[Finding]:
        explained = {name for cause in self.found for name in RULES[cause].explains}
        kept = [each for each in findings if each.name not in explained]
        return sorted(kept, key=lambda each: (each.severity != "error", each.step, each.name))


def diagnose(record: RunRecord) -> list[Finding]:
    """The findings of a run, finished or not: errors first, then by step, each name once."""
    doctor = Doctor(record.facts)
    for row in heapq.merge(record.rows, record.evaluations, key=lambda row: int(row["step"])):
        doctor.look(row)
    if record.summary is not None:
        doctor.close(record.summary)
    return doctor.findings()


def not_watched(record: RunRecord) -> tuple[str, ...]:
    """A line on a KL that is not logged, and the key that logs it."""
    logged, _ = record.series("kl")
    if not record.rows or len(logged) > 1:
        return ()
    # The first one is of the initial model itself.
    so_far = f"is known at step {logged[0]} alone" if logged else "is not logged"
    often = max(1, min(50, int(record.rows[-1]["step"]) // 4))
    return (f"not watched: the KL to the initial model, which {so_far}; training.kl_log_steps={often} logs it",)
