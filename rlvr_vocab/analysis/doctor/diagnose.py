"""What is wrong with a run, from everything that it has logged so far."""

from __future__ import annotations

import heapq

from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.analysis.doctor.watch import Doctor
from rlvr_vocab.record.metrics import RunRecord


def diagnose(record: RunRecord) -> list[Finding]:
    """The findings of a run, finished or not: errors first, then by step, each name once.

    They are those of a `Doctor` that has looked at each row as it was logged, less what turned out to follow from
    something that was found later.
    """
    doctor = Doctor(record.facts, record.folder)
    for row in heapq.merge(record.rows, record.evaluations, key=lambda row: int(row["step"])):
        doctor.look(row)
    if record.summary is not None:
        doctor.close(record.summary)
    return doctor.findings()
