"""The end of a run: writes its summary, and on the next start checks and restores what belongs to its outcome."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from accelerate.utils import gather_object
from rich.console import Console

from rlvr_vocab.atomic_file import json_text, write_whole
from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.files import (
    CONFIG,
    FINAL_ADAPTER,
    FINAL_MODEL,
    SUMMARY,
    SUMMARY_KEYS,
    is_finished,
    read_record,
)
from rlvr_vocab.record.inventory import LISTED_IN, RunInventory, write_final_inventory
from rlvr_vocab.record.manifest import MANIFEST, set_aside
from rlvr_vocab.record.metrics import MEMORY_OF_PHASE, is_number
from rlvr_vocab.runs.folder import RESUME_MODES, changes_of
from rlvr_vocab.training.checkpointing.find import newest_checkpoint
from rlvr_vocab.training.metrics.peak_memory import peak_memory


def restored_summary(settings: RunSettings, console: Console) -> dict[str, Any] | None:
    """The summary of a finished run; None for one that is to be trained, or trained further.

    Damaged and missing files are restored from the copies in a checkpoint. A run that lacks more than these hold loses
    its summary, and is trained again from its last checkpoint.

    Raises:
        UserError: it lacks more, and has no whole checkpoint.
    """
    folder = settings.output_dir
    if settings.overwrite or not (folder / CONFIG).is_file():
        return None
    records = RunInventory.of(folder)
    said, lacking = records.restore()
    summary, why = _summary(folder, records)
    _warn(folder, [*records.damaged, *said, *filter(None, [why])], console)
    if changes_of(settings) or settings.resume not in RESUME_MODES:
        return None
    if not records.at_the_end and summary is None and not why:
        return None
    if not lacking and not why:
        return summary if is_finished(summary) else None
    _require_a_checkpoint(folder, [*lacking, MANIFEST if not records.at_the_end else SUMMARY][0])
    _discard_outcome(folder, lacking)
    _warn(folder, RunInventory.of(folder).restore()[0], console)
    return None


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
    lost = RunInventory.of(folder).lost()
    text = json_text({**summary, **({"lost": lost} if lost else {}), LISTED_IN: MANIFEST})
    write_final_inventory(folder, text)
    write_whole(folder / SUMMARY, text)


def _warn(folder: Path, lines: Iterable[str], console: Console) -> None:
    for line in lines:
        console.print(f"warning: {folder}: {line}", style="yellow", markup=False)


def _summary(folder: Path, records: RunInventory) -> tuple[dict[str, Any] | None, str]:
    """The summary, and what is wrong with it or with the manifest that was written before it."""
    try:
        summary = read_record(folder, SUMMARY)
    except UserError as error:
        set_aside(folder / SUMMARY, "broken")
        return None, str(error)
    missing = [] if summary is None else [key for key in SUMMARY_KEYS if key not in summary]
    if missing:
        return summary, f"{SUMMARY} lacks {', '.join(missing)}"
    if summary is not None and LISTED_IN in summary and not records.at_the_end:
        return summary, f"{MANIFEST}, which lists what the run consists of, is damaged or gone"
    return summary, ""


def _require_a_checkpoint(folder: Path, lacking: str) -> None:
    if not any(map(newest_checkpoint, (folder, *folder.glob("stages/*")))):
        raise UserError(
            f"{folder}: this run was finished, but lacks {lacking}, and it has no whole checkpoint to "
            "make it anew from: overwrite=true trains it again"
        )


def _discard_outcome(folder: Path, lacking: list[str]) -> None:
    for model in (FINAL_MODEL, FINAL_ADAPTER):  # with what was measured of it
        if f"{model}/{MANIFEST}" in lacking and (folder / model).exists():
            set_aside(folder / model, "broken")
    (folder / SUMMARY).unlink(missing_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
