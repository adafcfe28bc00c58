"""The doctor beside a run that trains: what is wrong with it is told once, on the screen and to Weights & Biases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.analysis.doctor.watch import Doctor
from rlvr_vocab.analysis.record import Row, RunFacts, read_metrics
from rlvr_vocab.vocab.run_places import METRICS


class Watch:
    """Hands rows to a doctor and tells of each finding once in a run, over all its stages and resumes.

    Args:
        folder: that of the run.
        alert: told of each finding, wherever else it goes.
    """

    def __init__(self, facts: RunFacts, folder: Path, alert: Callable[[Finding], None]) -> None:
        self._facts, self._folder, self._alert = facts, folder, alert
        self._doctor = Doctor(facts, folder)
        self._told: set[str] = set()

    def begins(self) -> None:
        """A training begins, or goes on: what the rows on disk show has been told."""
        self._doctor = Doctor(self._facts, self._folder)
        for row in read_metrics(self._folder / METRICS):
            self._told.update(finding.name for finding in self._doctor.look(row))

    def look(self, row: Row) -> list[Finding]:
        """What a new row shows for the first time."""
        return self._new(self._doctor.look(row))

    def ends(self, summary: Row) -> list[Finding]:
        """All that was found in a run, with what its outcome adds."""
        self.begins()
        self._new(self._doctor.close(summary))
        return self._doctor.findings()

    def _new(self, findings: list[Finding]) -> list[Finding]:
        new = [finding for finding in findings if finding.name not in self._told]
        for finding in new:
            self._told.add(finding.name)
            self._alert(finding)
        return new
