"""`rlvr-vocab doctor`: lists the problems of a run with evidence, probable cause and the key to change."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.markup import escape

from rlvr_vocab.analysis.doctor.diagnose import diagnose, too_short
from rlvr_vocab.analysis.doctor.history import Finding
from rlvr_vocab.config.command_settings import DoctorSettings
from rlvr_vocab.record.metrics import RunRecord
from rlvr_vocab.runs.folder import run_record
from rlvr_vocab.terminal import make_console
from rlvr_vocab.text import pluralize

_COLOUR = {"error": "bold red", "warning": "bold yellow"}


def run(settings: DoctorSettings) -> int:
    """Print the findings; returns 1 if there are any, else 0."""
    record = run_record(settings.run)
    findings = diagnose(record)
    if settings.format == "json":
        content = {
            "run": str(record.folder),
            "rows": len(record.rows),
            "last_step": record.last_step,
            "finished": record.is_finished,
            "too_short": bool(too_short(record)),
            "findings": [asdict(finding) for finding in findings],
        }
        print(json.dumps(content, ensure_ascii=False, indent=2))
    else:
        _show(record, findings, make_console())
    return 1 if findings else 0


def _show(record: RunRecord, findings: Sequence[Finding], console: Console) -> None:
    if not record.rows:
        console.print(f"{record.folder}: no step is logged yet", markup=False)
        return
    rows = pluralize(len(record.rows), "row")
    console.print(f"{record.folder}: {rows} up to step {record.last_step:,}", markup=False)
    if not record.is_finished:
        console.print("the run has not finished: findings cover the rows logged so far")
    for finding in findings:
        title = f"[{_COLOUR[finding.severity]}]{escape(finding.title)}[/]"
        console.print(f"\n{title} ({finding.severity} {finding.name}, step {finding.step})")
        console.print(f"  seen    {finding.evidence}", markup=False)
        console.print(f"  cause   {finding.cause}", markup=False)
        console.print(f"  try     {finding.remedy}", markup=False)
    if line := too_short(record) or ("" if findings else "nothing wrong was found"):
        console.print(line)
