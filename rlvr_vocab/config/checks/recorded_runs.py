"""Checks of the commands that read recorded runs: doctor, samples, report, compare."""

from __future__ import annotations

from pathlib import Path

from rlvr_vocab.analysis.samples import SampleFilter
from rlvr_vocab.config.command_table import CompareSettings, DoctorSettings, ReportSettings, SamplesSettings
from rlvr_vocab.config.recorded import read_recorded
from rlvr_vocab.errors import UserError
from rlvr_vocab.runs.folder import check_new_file
from rlvr_vocab.text import did_you_mean


def check_is_run(folder: Path, key: str) -> None:
    """Raises UserError where the folder is no run of ours, with the run that may be meant."""
    if not folder.is_dir():
        siblings = [str(path.parent) for path in folder.parent.glob("*/config.yaml")]
        raise UserError(f"{key}={folder}: no such folder{did_you_mean(str(folder), siblings)}")
    if not (folder / "config.yaml").is_file():
        around = next((each for each in folder.absolute().parents if (each / "config.yaml").is_file()), None)
        hint = "" if around is None else f"; did you mean {around}?"
        raise UserError(f"{key}={folder}: not the folder of a run (no config.yaml){hint}")
    read_recorded(folder, resolve=True)


def check_doctor(settings: DoctorSettings) -> None:
    check_is_run(settings.run, "run")


def check_samples(settings: SamplesSettings) -> None:
    check_is_run(settings.run, "run")
    if settings.out is not None:
        check_new_file(settings.out, "out", ())
    sample_filter_of(settings)


def sample_filter_of(settings: SamplesSettings) -> SampleFilter:
    """Which completions are asked for; raises UserError where none could be."""
    names = ("step", "problem", "contains", "verdict", "min_reward", "max_reward")
    return SampleFilter(**{name: getattr(settings, name) for name in names})


def check_report(settings: ReportSettings) -> None:
    check_is_run(settings.run, "run")
    check_new_file(settings.page, "out", ())


def check_compare(settings: CompareSettings) -> None:
    if len(settings.runs) < 2:
        raise UserError("runs: give two runs at least, as in runs=[out/a,out/b]")
    for run in settings.runs:
        check_is_run(run, "runs")
