"""The end of a run: writes its summary, and on the next start checks what belongs to its outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accelerate.utils import gather_object
from rich.console import Console

from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.errors import UserError
from rlvr_vocab.files import atomic_write, json_text
from rlvr_vocab.record.files import SUMMARY, SUMMARY_KEYS, is_finished, read_record
from rlvr_vocab.record.manifest import MANIFEST, damage_of_run, write_run_manifest
from rlvr_vocab.record.metrics import MEMORY_OF_PHASE, is_number
from rlvr_vocab.runs.folder import RESUME_MODES, changes_of
from rlvr_vocab.training.metrics.step_clock import peak_memory


def finished_summary(settings: RunSettings, console: Console) -> dict[str, Any] | None:
    """The summary of a finished run; None for one that is to be trained, or trained further.

    Raises:
        UserError: the run is finished, and a file of its outcome is damaged or lost.
    """
    folder = settings.output_dir
    if settings.overwrite or not (folder / SUMMARY).is_file():
        return None
    if changes_of(settings) or settings.resume not in RESUME_MODES:
        return None
    records, samples = damage_of_run(folder, hashed=True)
    summary = None if records else read_record(folder, SUMMARY)
    if not records and not is_finished(summary):
        return None
    if summary is not None and (missing := [key for key in SUMMARY_KEYS if key not in summary]):
        records = [f"{SUMMARY} lacks {', '.join(missing)}"]
    if records:
        more = f" and {len(records) - 1} more" if len(records) > 1 else ""
        raise UserError(
            f"{folder}: this run is finished, and {records[0]}{more}. Put back what was there, or delete it and "
            f"{SUMMARY} to make them anew from the last checkpoint, or train again with overwrite=true"
        )
    if not (folder / MANIFEST).is_file():
        samples = [f"{MANIFEST} is missing: whether the files of this finished run are whole is not known"]
    for line in samples:
        console.print(f"warning: {folder}: {line}", style="yellow", markup=False)
    return summary


def peaks_of_run(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The peak of memory in each phase of a run, in GiB, of the process that has the highest; all of them call it.

    Those of steps are of the logged rows, those of the last stage, the others of the run's last start.
    """
    of_steps = [
        {phase.removeprefix("memory/"): row[phase] for phase in MEMORY_OF_PHASE.values() if is_number(row.get(phase))}
        for row in rows
    ]
    peak_memory.enter(None)
    highest: dict[str, float] = {}
    for peaks in [*gather_object([peak_memory.highest]), *of_steps]:
        highest |= {phase: max(peak, highest.get(phase, 0.0)) for phase, peak in peaks.items()}
    return {phase: round(peak, 3) for phase, peak in highest.items()}


def write_summary(folder: Path, summary: dict[str, Any]) -> None:
    """Write `summary.json`, which marks the run as finished, and before it the list of the files of the run."""
    text = json_text(summary)
    write_run_manifest(folder, text)
    atomic_write(folder / SUMMARY, text)
