"""What `doctor`, `samples`, `report` and `compare` refuse before anything heavy is imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlvr_vocab.analysis.samples.filter import FILTER_KEYS, SampleFilter
from rlvr_vocab.checks.run import check_positive, check_serving_temperature
from rlvr_vocab.config.command_sections import CompareSettings, DoctorSettings, ReportSettings, SamplesSettings
from rlvr_vocab.config.recorded import read_recorded
from rlvr_vocab.config.sections import GenerateSettings, MergeSettings
from rlvr_vocab.config.values import read, read_section
from rlvr_vocab.data.prompt_file import check_prompt_file
from rlvr_vocab.errors import UserError
from rlvr_vocab.nearest import did_you_mean
from rlvr_vocab.runs.model_folder import check_adapter_folder, check_checkpoint_folder, check_folder
from rlvr_vocab.runs.output_folder import check_new_file, check_new_folder
from rlvr_vocab.vocab.peft.adapter_base import ADAPTER_CONFIG, is_adapter


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
    sample_filter_of(settings)


def sample_filter_of(settings: SamplesSettings) -> SampleFilter:
    """Which completions are asked for; raises UserError where none could be."""
    return SampleFilter(**{name: getattr(settings, name) for name in FILTER_KEYS})


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


def check_generate(settings: GenerateSettings) -> None:
    check_checkpoint_folder(settings.checkpoint, settings.base)
    check_positive({"max_new_tokens": settings.max_new_tokens, "batch_size": settings.batch_size})
    check_serving_temperature(settings.temperature)
    if not 0 < settings.top_p <= 1:
        raise UserError(f"top_p={settings.top_p}: must be above 0 and at most 1")
    if (settings.prompt is None) == (settings.prompts is None):
        raise UserError('give either prompt="…" or prompts=FILE')
    if settings.prompt is not None and not settings.prompt.strip():
        raise UserError('prompt is empty: give it as prompt="…"')
    if settings.prompts is not None:
        check_prompt_file(settings.prompts)


def check_merge(settings: MergeSettings) -> None:
    check_new_folder(settings.out, "out")
    folder = settings.checkpoint
    if is_adapter(folder):
        check_adapter_folder(folder, settings.base)
        return
    inside = _adapters_inside(folder)
    if inside:
        raise UserError(f"checkpoint={folder}: no adapter itself; did you mean {inside[0]}?")
    check_folder(folder, f"checkpoint={folder}")
    raise UserError(f"checkpoint={folder}: a whole model already, no adapter (no {ADAPTER_CONFIG}): nothing to merge")


def _adapters_inside(folder: Path) -> list[Path]:
    """Adapters in a run's folder: the final one first, then the newest."""
    found = [path for pattern in ("*", "stages/*/*") for path in folder.glob(f"{pattern}/{ADAPTER_CONFIG}")]
    newest = sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)
    return sorted((path.parent for path in newest), key=lambda path: path.name != "final_adapter")
