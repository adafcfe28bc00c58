"""What `doctor`, `samples`, `report` and `compare` refuse before anything heavy is imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlvr_vocab.analysis.samples.sieve import TYPED, Sieve
from rlvr_vocab.errors import UserError
from rlvr_vocab.exp.checks import check_positive
from rlvr_vocab.exp.from_config import read, read_section
from rlvr_vocab.exp.look_sections import CompareSettings, DoctorSettings, ReportSettings, SamplesSettings
from rlvr_vocab.exp.output_folder import check_new_file
from rlvr_vocab.exp.recorded_config import read_recorded
from rlvr_vocab.nearest import did_you_mean


def read_report(config: dict[str, Any]) -> ReportSettings:
    run = _named(read(Path, config["run"], "run"))
    out = run / "report.html" if config["out"] is None else read(Path, config["out"], "out")
    return read_section(ReportSettings, config, ready={"run": run, "out": out})


def _named(folder: Path) -> Path:
    """The folder as it was typed; its whole path for . and .., since the command in the report is named after it."""
    return folder.resolve() if folder.name in ("", "..") else folder


def read_compare(config: dict[str, Any]) -> CompareSettings:
    named = read(tuple[Path, ...], config["runs"], "runs")
    runs = tuple(_named(run) for each in named for run in _meant_by(each))
    return read_section(CompareSettings, config, ready={"runs": runs})


def _meant_by(folder: Path) -> list[Path]:
    """The folder as it stands; where `*` or `?` are in its name, the runs that fit."""
    if not {"*", "?"} & set(str(folder)):
        return [folder]
    found = Path(folder.anchor or ".").glob(str(folder.relative_to(folder.anchor)))
    fitting = sorted(each for each in found if (each / "config.yaml").is_file())
    if not fitting:
        raise UserError(f"runs={folder}: no folder of a run fits")
    return fitting


def check_doctor(settings: DoctorSettings) -> None:
    check_run(settings.run, "run")


def check_samples(settings: SamplesSettings) -> None:
    check_run(settings.run, "run")
    check_positive({"max_samples": settings.max_samples})
    if settings.out is not None:
        check_new_file(settings.out, "out", ())
    sieve_of(settings)


def sieve_of(settings: SamplesSettings) -> Sieve:
    """Which completions are asked for; raises UserError where none could be."""
    return Sieve(**{name: getattr(settings, name) for name in TYPED})


def check_report(settings: ReportSettings) -> None:
    check_run(settings.run, "run")
    check_positive({"max_samples": settings.max_samples})
    check_new_file(settings.out, "out", ())


def check_compare(settings: CompareSettings) -> None:
    if len(settings.runs) < 2:
        raise UserError("runs: give two runs at least, as in runs=[out/a,out/b]")
    for run in settings.runs:
        check_run(run, "runs")
    for key, value in (("confidence", settings.confidence), ("power", settings.power)):
        if not 0 < value < 1:
            raise UserError(f"{key}={value}: must be above 0 and below 1")


def check_run(folder: Path, key: str) -> None:
    """Raises UserError where the folder is no run of ours, with the run that may be meant."""
    if not folder.is_dir():
        siblings = [str(path.parent) for path in folder.parent.glob("*/config.yaml")]
        raise UserError(f"{key}={folder}: no such folder{did_you_mean(str(folder), siblings)}")
    if not (folder / "config.yaml").is_file():
        around = next((each for each in folder.absolute().parents if (each / "config.yaml").is_file()), None)
        hint = "" if around is None else f"; did you mean {around}?"
        raise UserError(f"{key}={folder}: not the folder of a run (no config.yaml){hint}")
    read_recorded(folder, resolve=True)
