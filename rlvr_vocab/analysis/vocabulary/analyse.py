"""Analyses what became of the vocabulary of a run, from its folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from rlvr_vocab.analysis.vocabulary.drift import drift_points, groups_of_copies, project, row_drift
from rlvr_vocab.analysis.vocabulary.models import ModelFolder, TokenRows, model_folders, token_tables
from rlvr_vocab.analysis.vocabulary.results import (
    Drift,
    DriftPoint,
    Projection,
    Side,
    Usage,
    VocabularyAnalysis,
    Window,
)
from rlvr_vocab.analysis.vocabulary.sampled_tokens import (
    MOST_STEPS,
    Tally,
    evenly_spread,
    read_step,
    recorded_kind,
    surface_ids,
)
from rlvr_vocab.analysis.vocabulary.token_text import TokenTexts
from rlvr_vocab.analysis.vocabulary.uncertainty import uncertainty
from rlvr_vocab.analysis.vocabulary.usage import separated_copies, usage
from rlvr_vocab.counted import counted
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.completions import CompletionFiles
from rlvr_vocab.record.files import COMPLETIONS, INITIAL_MODEL
from rlvr_vocab.record.metrics import RunRecord
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout
from rlvr_vocab.vocab.policy import open_copies

# Each end of a run, in steps that were read.
_SHARE_OF_A_WINDOW = 5


def analyse_vocabulary(record: RunRecord) -> VocabularyAnalysis | None:
    """What became of the vocabulary of a run, finished or not; None where no model of it has a layout.

    What cannot be read is left out, and a note says so.
    """
    models, notes = model_folders(record)
    folders = [record.folder / INITIAL_MODEL, *(model.path for model in reversed(models))]
    described = next((path for path in folders if (path / LAYOUT_FILE).is_file()), None)
    if described is None:
        return None
    with _one_thread():
        return _analysed(record, models, VocabLayout.load(described), described, notes)


def _analysed(
    record: RunRecord, models: list[ModelFolder], layout: VocabLayout, described: Path, notes: list[str]
) -> VocabularyAnalysis:
    files = CompletionFiles(record.folder / COMPLETIONS)
    tally = _tally(files, layout, notes)
    used = usage(tally) if tally and layout.size else None
    drift, projection = None, None
    if layout.size:
        drift, projection = _drift(record.folder / INITIAL_MODEL, models, layout, used, notes)
    else:
        notes.append("A baseline has no reasoning tokens: there is no use or drift of copies to tell of.")
    return VocabularyAnalysis(
        folder=record.folder,
        layout=layout,
        texts=TokenTexts(described, layout),
        steps=tuple(point.step for point in tally.points) if tally else (),
        steps_there=len(files.steps),
        notes=tuple(notes),
        usage=used,
        drift=drift,
        projection=projection,
        uncertainty=uncertainty(tally, tally.kind) if tally and tally.kind else None,
        separated_copies=separated_copies(used, drift.final[-1], tally) if used and drift and tally else (),
    )


def windows_of(steps: list[int]) -> tuple[Window, Window]:
    """The first and the last fifth of the steps, at least one each."""
    length = max(1, len(steps) // _SHARE_OF_A_WINDOW)
    return Window(steps[0], steps[length - 1]), Window(steps[-length], steps[-1])


def _tally(files: CompletionFiles, layout: VocabLayout, notes: list[str]) -> Tally | None:
    """Count the sampled tokens in one pass over the completions; None without any."""
    chosen = evenly_spread(files.steps, MOST_STEPS)
    if not chosen:
        notes.append("The run has left no completions: what was sampled is not known.")
        return None
    if len(chosen) < len(files.steps):
        notes.append(f"Of {len(files.steps):,} steps with completions {len(chosen)} were read, evenly spread.")
    tally = Tally(layout, windows_of(chosen), recorded_kind(files, [chosen[0], chosen[-1]]))
    surface = surface_ids(layout)
    for step in chosen:
        try:
            tally.add(read_step(files, step, tally.kind, layout, surface))
        except UserError as error:
            notes.append(f"{error}; it was left out.")
    return tally if tally.points else None


def _drift(
    initial: Path, models: list[ModelFolder], layout: VocabLayout, used: Usage | None, notes: list[str]
) -> tuple[Drift | None, Projection | None]:
    """Drift over the checkpoints, and the projection of the last; None where there is nothing to compare."""
    start = _tables(ModelFolder(0, INITIAL_MODEL, initial), layout, notes)
    if start is None:
        return None, None
    open_ks = (open_copies(layout)[0] - layout.standard_size).numpy()
    total = used.total if used else None
    groups = groups_of_copies(open_ks, total, layout)
    some = np.unique(np.concatenate([np.empty(0, np.int64), *groups.values()]))
    points: list[DriftPoint] = []
    last: tuple[str, list[tuple[Side, TokenRows, TokenRows]]] | None = None
    for model in [ModelFolder(0, INITIAL_MODEL, initial), *models]:
        now = _tables(model, layout, notes)
        if now is None:
            continue
        sides = _side_by_side(now, start)
        for side, table, began in sides:
            points += drift_points(model.step, model.name, row_drift(side, table, began, layout, some), groups)
        last = (model.name, sides) if model.path != initial else last
    if last is None:
        notes.append("The run has no trained model yet: drift cannot be told.")
        return None, None
    end, sides = last
    final = tuple(row_drift(side, table, began, layout, open_ks) for side, table, began in sides)
    broken = max(int((~np.isfinite(each.norm)).sum()) for each in final)
    if broken:
        notes.append(f"The rows of {counted(broken, 'copy', 'copies')} with NaN or infinity at the end: left out.")
    projection = project(*sides[0], layout, open_ks, total)
    return Drift(tuple(points), final, end, len(final) == 1), projection


def _side_by_side(now: dict[Side, TokenRows], start: dict[Side, TokenRows]) -> list[tuple[Side, TokenRows, TokenRows]]:
    """Each side of a model with the same side of the initial one; merging may take apart what was tied."""
    if "both" in now and "both" not in start:
        now = {"input": now["both"], "output": now["both"]}
    return [(side, table, start.get(side) or start["both"]) for side, table in now.items()]


def _tables(model: ModelFolder, layout: VocabLayout, notes: list[str]) -> dict[Side, TokenRows] | None:
    try:
        return token_tables(model.path, layout.rows)
    except UserError as error:
        notes.append(f"{model.name} was left out: {error}.")
        return None


@contextmanager
def _one_thread() -> Iterator[None]:
    """Small operations by the thousand, often beside a training run that has all cores: threads that wait for each
    other at every one of them take ten times as long as one alone."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
