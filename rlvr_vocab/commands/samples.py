"""`rlvr-vocab samples`: shows the completions of a run in a pager, or writes them to a file."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from functools import partial
from itertools import chain, islice
from pathlib import Path

from rich.console import Console
from rich.text import Text

from rlvr_vocab.analysis.samples import (
    CorrectnessReward,
    Sample,
    SampleFilter,
    find_samples,
    head_text,
    sample_text,
    shown_sample,
)
from rlvr_vocab.config.command_settings import SamplesSettings
from rlvr_vocab.errors import UserError
from rlvr_vocab.files import atomic_write
from rlvr_vocab.record.completions import CompletionFiles
from rlvr_vocab.record.files import COMPLETIONS, INITIAL_MODEL, STEP_FILES
from rlvr_vocab.record.results import read_probe
from rlvr_vocab.terminal import make_console, shows_colours
from rlvr_vocab.text import pluralize
from rlvr_vocab.vocab.marking import Marker


def run(settings: SamplesSettings) -> int:
    """Show the matching completions, or write them to `out`; list unreadable files at the end."""
    files, names = CompletionFiles(settings.run / COMPLETIONS), [field.name for field in fields(SampleFilter)]
    sample_filter = SampleFilter(**{name: getattr(settings, name) for name in names})
    if not files.steps:
        raise UserError(f"run={settings.run}: no completions yet (no {COMPLETIONS}/{STEP_FILES})")
    correctness, marker, unreadable = CorrectnessReward.of_run(settings.run), _marker(settings.run), list[str]()
    if correctness is None and settings.verdict is not None:
        raise UserError(f"verdict={settings.verdict}: no reward function of the run grades being right")
    found = find_samples(files, sample_filter, correctness, settings.order, unreadable)
    shown = islice(found, settings.max_samples)
    wanted = (shown_sample(files.read_row(*each), marker, correctness) for each in shown)
    first = next(wanted, None)
    if first is None:
        if len(unreadable) == len(files.steps):
            raise UserError(f"no completion could be read: {unreadable[0]}")
        if settings.verdict is not None and correctness is not None and not unreadable:
            scores = [f"reward/{correctness.name}"]
            if not any(files.table(step, scores).num_columns for step in files.steps):
                why = f"the completions have no scores of {correctness.name}, which grades held-out answers"
                raise UserError(f"verdict={settings.verdict}: {why}; use min_reward or max_reward")
        where = "; contains looks in completions, problem= in problems" * (settings.contains is not None)
        raise UserError(f"{sample_filter or 'all'}: matches no completion of {settings.run}{where}")
    heading = f"completions of {settings.run}: {sample_filter}".rstrip(": ")
    probe = read_probe(settings.run)
    copies = 0 if marker is None else max(marker.layout.copy_indices, default=0)
    sentence, tools = None if probe is None else probe["sentence"], bool(first.completion.messages)
    head = partial(head_text, heading, sentence, copies, tools=tools)
    _show(settings, chain([first], wanted), head)
    for line in unreadable:
        print(f"left out: {line}", file=sys.stderr)
    return 0


def _show(settings: SamplesSettings, samples: Iterator[Sample], head: Callable[..., Text]) -> None:
    if settings.out is None:
        with _pager() as console:
            colour = shows_colours(console)
            console.print(head(colour=colour), end="", soft_wrap=True)
            for sample in samples:
                console.print(sample_text(sample, colour=colour), end="", soft_wrap=True)
        return
    shown = list(samples)
    parts = [head(colour=False), *(sample_text(each, colour=False) for each in shown)]
    atomic_write(settings.out, "".join(part.plain for part in parts), "out")
    print(f"{pluralize(len(shown), 'completion is', 'completions are')} in {settings.out}")


@contextmanager
def _pager() -> Iterator[Console]:
    """A console that writes to the pager (`$PAGER` or less), or to the screen without a pager or a terminal."""
    screen, command = make_console(), shlex.split(os.environ.get("PAGER", "less"))
    if not (sys.stdin.isatty() and sys.stdout.isatty() and command and shutil.which(command[0])):
        yield screen
        return
    environment = {"LESS": "FRX", **os.environ}  # keep colours; exit at once if one screen is enough
    pager = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, text=True, encoding="utf-8")
    colours = shows_colours(screen)
    with suppress(SystemExit, KeyboardInterrupt):  # Rich exits where the pager has ended
        yield Console(
            file=pager.stdin, force_terminal=colours, color_system="standard" if colours else None, highlight=False
        )
    with suppress(BrokenPipeError, KeyboardInterrupt):
        pager.communicate()


def _marker(run: Path) -> Marker | None:
    try:
        return Marker.from_folder(run / INITIAL_MODEL)
    except UserError as error:
        print(f"reasoning tokens are not marked: {error}", file=sys.stderr)
        return None
