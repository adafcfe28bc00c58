"""`rlvr-vocab doctor`: what is wrong with a run, with evidence, the probable cause and the key to change."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from rich.console import Console
from rich.markup import escape

from rlvr_vocab.analysis.doctor.diagnose import diagnose, not_watched
from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.analysis.doctor.history import FEWEST_ROWS, steps_needed
from rlvr_vocab.config.command_settings import DoctorSettings
from rlvr_vocab.record.metrics import RunRecord
from rlvr_vocab.runs.record import run_record
from rlvr_vocab.terminal import make_console
from rlvr_vocab.text import pluralize

HEALTHY, SICK = 0, 1
_COLOUR = {"error": "bold red", "warning": "bold yellow"}


def run(settings: DoctorSettings) -> int:
    """Say what was found; 0 where that is nothing, 1 where it is something."""
    record = run_record(settings.run)
    findings = diagnose(record)
    if settings.format == "json":
        print(json.dumps(_as_json(record, findings), ensure_ascii=False, indent=2))
    else:
        _show(record, findings, make_console())
    return SICK if findings else HEALTHY


def _as_json(record: RunRecord, findings: Sequence[Finding]) -> dict[str, object]:
    return {
        "run": str(record.folder),
        "exp_name": record.facts.exp_name,
        "rows": len(record.rows),
        "last_step": _last_step(record),
        "finished": record.is_finished,
        "too_short": is_too_short(record),
        "damage": list(record.damage),
        "not_watched": list(not_watched(record)),
        "findings": [asdict(finding) for finding in findings],
    }


def _show(record: RunRecord, findings: Sequence[Finding], console: Console) -> None:
    for line in record.damage:
        console.print(f"warning: {line}", style="yellow", markup=False)
    for line in _about(record):
        console.print(line, markup=False)
    for finding in findings:
        style = _COLOUR[finding.severity]
        title = f"[{style}]{escape(finding.title)}[/]"
        console.print(f"\n{title} ({finding.severity} {finding.name}, step {finding.step})")
        console.print(f"  seen    {finding.evidence}", markup=False)
        console.print(f"  cause   {finding.cause}", markup=False)
        console.print(f"  try     {finding.remedy}", markup=False)
    if not findings and not is_too_short(record):
        console.print("nothing wrong was found", markup=False)
    if not is_too_short(record):
        for line in not_watched(record):
            console.print(line, markup=False)


def _about(record: RunRecord) -> Iterator[str]:
    if not record.rows:
        yield f"{record.folder}: no step is logged yet"
        return
    rows = f"{pluralize(len(record.rows), 'row')}"
    yield f"{record.folder}: {rows} up to step {_last_step(record):,}"
    if not record.is_finished:
        yield "the run has not finished: findings cover the rows logged so far"
    if is_too_short(record):
        window = steps_needed(record.facts)
        yield f"too short to judge: most findings need {window:g} steps, some {2 * window:g} or more"


def is_too_short(record: RunRecord) -> bool:
    """Whether there are too few steps for nearly every rule."""
    return _last_step(record) < steps_needed(record.facts) or len(record.rows) < FEWEST_ROWS


def _last_step(record: RunRecord) -> int:
    return int(record.rows[-1]["step"]) if record.rows else 0
