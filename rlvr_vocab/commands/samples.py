"""`rlvr-vocab samples`: the completions of a run, to page through in the terminal or to write out."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from rlvr_vocab.analysis.samples.documents import PIECES, Format
from rlvr_vocab.analysis.samples.filter import CorrectnessReward
from rlvr_vocab.analysis.samples.sample import SampleReader
from rlvr_vocab.analysis.samples.search import Matches, Search, search_all
from rlvr_vocab.atomic_file import write_text_whole
from rlvr_vocab.checks.commands import sample_filter_of
from rlvr_vocab.config.command_sections import SamplesSettings
from rlvr_vocab.config.recorded import read_recorded
from rlvr_vocab.config.sections import RewardSettings
from rlvr_vocab.config.values import read
from rlvr_vocab.counted import counted
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.completions import CompletionFiles
from rlvr_vocab.record.files import COMPLETIONS, INITIAL_MODEL, STEP_FILES
from rlvr_vocab.record.probe import told_by_probe
from rlvr_vocab.rewards.build import logged_names
from rlvr_vocab.rewards.grader import named_for_being_right
from rlvr_vocab.rewards.reward import traits_by_name
from rlvr_vocab.runs.record import run_facts
from rlvr_vocab.vocab.marking import Marker

if TYPE_CHECKING:
    from rlvr_vocab.analysis.samples.app import SamplesApp

_FORMATS: dict[str, Format] = {".html": "html", ".htm": "html", ".md": "md"}


def run(settings: SamplesSettings) -> int:
    """Pages on a terminal; else, or where a format or a file is named, one completion after the other."""
    if settings.format is None and settings.out is None and sys.stdin.isatty() and sys.stdout.isatty():
        return _page(settings)
    return _write(settings)


def samples_app(settings: SamplesSettings) -> SamplesApp:
    """The pages of a run, ready to be shown."""
    # Only here: what is written out needs no screen.
    from rlvr_vocab.analysis.samples.app import SamplesApp
    from rlvr_vocab.analysis.samples.browser import View

    files, reader = _opened(settings)
    model = settings.run / INITIAL_MODEL
    return SamplesApp(
        files, View(sample_filter_of(settings), settings.order), reader, lambda: Marker.from_folder(model)
    )


def _opened(settings: SamplesSettings) -> tuple[CompletionFiles, SampleReader]:
    files = CompletionFiles(settings.run / COMPLETIONS)
    if not files.steps:
        raise UserError(f"run={settings.run}: no completions yet (no {COMPLETIONS}/{STEP_FILES})")
    config = read_recorded(settings.run, resolve=True)
    correctness = _correctness_reward(read(RewardSettings, config.get("rewards") or {"functions": []}, "rewards"))
    if correctness is None and settings.verdict is not None:
        raise UserError(f"verdict={settings.verdict}: the run has no reward function that says what is right")
    return files, SampleReader(run_facts(config, settings.run).rewards, correctness)


def _page(settings: SamplesSettings) -> int:
    app = samples_app(settings)
    if app.run(mouse=False) is False:  # a mouse may go on selecting text
        raise _nothing_found(settings, app.browser.search)
    return app.return_code or 0


def _write(settings: SamplesSettings) -> int:
    files, reader = _opened(settings)
    search = Search(files, sample_filter_of(settings), reader.correctness, settings.order)
    matches = _all_found(search).first(settings.max_samples)
    for line in search.unreadable:
        print(f"left out: {line}", file=sys.stderr)
    if not len(matches):
        raise _nothing_found(settings, search)
    form = settings.format or _FORMATS.get(settings.out.suffix.lower() if settings.out else "", "text")
    heading = f"{counted(len(matches), 'completion')} of {settings.run}: {search.sample_filter}".rstrip(": ")
    reader = _with_marker(reader, settings.run)
    samples = (reader.sample(files.read_row(*matches.sample_id(index))) for index in range(len(matches)))
    pieces = PIECES[form](samples, heading, told_by_probe(settings.run))
    if settings.out is None:
        for piece in pieces:
            sys.stdout.write(piece)
    else:
        write_text_whole(settings.out, "".join(pieces), "out")
        print(f"{counted(len(matches), 'completion is', 'completions are')} in {settings.out}")
    return 0


def _all_found(search: Search) -> Matches:
    """Goes through all files; says how far it is where somebody is watching."""
    # Only here: whoever pages does not wait for it.
    from rlvr_vocab.progress import stage

    console = Console(stderr=True, highlight=False, quiet=not sys.stderr.isatty())
    with stage(console, "reading", search.number_of_steps) as display:
        for done, _ in search_all(search):
            display.update(done)
    return search.found()


def _with_marker(reader: SampleReader, run: Path) -> SampleReader:
    try:
        return replace(reader, marker=Marker.from_folder(run / INITIAL_MODEL))
    except UserError as error:
        print(f"reasoning tokens are not told apart: {error}", file=sys.stderr)
        return reader


def _nothing_found(settings: SamplesSettings, search: Search) -> UserError:
    if len(search.unreadable) == search.number_of_steps > 0:
        return UserError(f"no completion could be read: {search.unreadable[0]}")
    empty = "" if str(search.sample_filter) else ", which holds none"
    return UserError(f"{search.sample_filter or 'all'}: matches no completion of {settings.run}{empty}")


def _correctness_reward(rewards: RewardSettings) -> CorrectnessReward | None:
    """The first function that grades being right, by what the library says of it or by its name; None for none."""
    for name, each in zip(logged_names(rewards.functions), rewards.functions, strict=True):
        traits = traits_by_name(each.name)
        if traits.grades or named_for_being_right(each.name):
            return CorrectnessReward(name, traits.full_mark if each.full_mark is None else each.full_mark)
    return None
