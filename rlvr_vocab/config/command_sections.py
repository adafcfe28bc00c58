"""The settings of the commands that do not train, and how they are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from os.path import commonpath
from pathlib import Path
from typing import Annotated, Any, Literal

from rlvr_vocab.bounds import Bounds, Count, NotNegative, Seed
from rlvr_vocab.config.sections import DatasetSettings, ModelSettings, RewardSettings
from rlvr_vocab.config.values import read, read_section
from rlvr_vocab.data.source import AnswerFormat
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.files import PROBE_FOLDER
from rlvr_vocab.rewards.reward import RewardSpec


@dataclass(frozen=True)
class DoctorSettings:
    run: Path
    format: Literal["text", "json"]


@dataclass(frozen=True)
class SamplesSettings:
    """`rlvr-vocab samples`. step: a step or a range of them, as it was typed; format: None for what `out` ends with."""

    run: Path
    step: str | None
    problem: str | None
    contains: str | None
    verdict: Literal["right", "wrong"] | None
    min_reward: float | None
    max_reward: float | None
    order: Literal["file", "lowest", "highest"]
    max_samples: Count | None
    format: Literal["text", "html"] | None
    out: Path | None


@dataclass(frozen=True)
class ReportSettings:
    run: Path
    out: Path
    max_samples: Count


@dataclass(frozen=True)
class CompareSettings:
    """`rlvr-vocab compare`. key, baseline, evaluation, pair_seeds: None where they are to be found out."""

    runs: tuple[Path, ...]
    key: str | None
    baseline: Any  # a value of that key, whatever it is
    evaluation: str | None
    pair_seeds: bool | None
    confidence: Annotated[float, Bounds(above=0, below=1)]
    power: Annotated[float, Bounds(above=0, below=1)]
    out: Path


@dataclass(frozen=True)
class ProbeSettings:
    """`rlvr-vocab probe`.

    Attributes:
        run: one or several.
        draws: versions of each thought in each arm, and answers after it.
        permutations: of each thought, for the bits that its own choices hold beyond permuted ones.
        telling_effect: the largest effect that a verdict of no sign may have missed.
        out: where the verdict goes; the answers stay with their runs.
    """

    run: tuple[Path, ...]
    arms: tuple[str, ...] | None
    samples: Count
    draws: Count
    permutations: Count
    max_samples: Count | None
    backend: Literal["transformers", "vllm"]
    batch_size: Count
    telling_effect: Annotated[float, Bounds(above=0)]
    out: Path
    seed: Seed


@dataclass(frozen=True)
class EvaluateSettings:
    """`rlvr-vocab evaluate`. checkpoint: one or several; out: None where several have their results beside them.

    rewards: without functions where the run of the checkpoint says what grades; grader, threshold: see `grader_spec`.
    """

    checkpoint: Path | tuple[Path, ...]
    base: Path | None
    dataset: DatasetSettings
    rewards: RewardSettings
    grader: tuple[RewardSpec, ...] | None
    threshold: float | None
    split: Literal["eval", "train"]
    samples: Count
    backend: Literal["transformers", "vllm"]
    batch_size: Count
    temperature: NotNegative | None
    max_new_tokens: Count | None
    max_samples: Count | None
    out: Path | None
    seed: Seed

    @property
    def checkpoints(self) -> tuple[Path, ...]:
        return (self.checkpoint,) if isinstance(self.checkpoint, Path) else self.checkpoint

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where the results of each checkpoint go; under one `out` each has the end of its path that tells it apart."""
        if self.out is None:
            return tuple(each / "evaluation" / Path(self.dataset.name).stem for each in self.checkpoints)
        if isinstance(self.checkpoint, Path):
            return (self.out,)
        whole = [each.absolute() for each in self.checkpoints]
        shared = commonpath([each.parent for each in whole])
        return tuple(self.out / each.relative_to(shared) for each in whole)


@dataclass(frozen=True)
class GenerateSettings:
    """`rlvr-vocab generate`. One of prompt and prompts is given."""

    checkpoint: Path
    base: Path | None
    prompt: str | None
    prompts: Path | None
    system_prompt: str | None
    temperature: NotNegative | None
    top_p: Annotated[float, Bounds(above=0, most=1)]
    max_new_tokens: Count
    batch_size: Count
    format: Literal["text", "json"]
    seed: Seed


@dataclass(frozen=True)
class MergeSettings:
    checkpoint: Path
    base: Path | None
    out: Path
    dtype: Literal["auto", "fp32", "bf16", "fp16"]


@dataclass(frozen=True)
class CheckSettings:
    """`rlvr-vocab check`. model: None where no tokens are counted."""

    model: ModelSettings | None
    dataset: DatasetSettings
    against: tuple[str, ...]
    against_subset: str | None
    against_split: str
    against_problem_column: str | None
    out: Path | None
    seed: Seed


@dataclass(frozen=True)
class ScoreSettings:
    """`rlvr-vocab score`: completions, or the gold answers of a dataset, or a model's answers to its problems.

    think_tags: None for those of the run that the completions are from.
    """

    model: ModelSettings | None
    dataset: DatasetSettings | None
    rewards: RewardSettings
    completions: Path | None
    completion_column: str
    prompt_column: str | None
    solution_column: str | None
    solution_format: AnswerFormat
    think_tags: tuple[str, str] | None
    samples: Count
    batch_size: Count
    max_samples: Count | None
    show: Annotated[int, Bounds(least=0)]
    order: Literal["lowest", "highest", "file"]
    out: Path | None
    seed: Seed


@dataclass(frozen=True)
class ExpandSettings:
    model: ModelSettings
    out: Path
    seed: Seed


_OF_COMPLETIONS = ("completion_column", "prompt_column", "solution_column", "solution_format")
_OF_A_MODEL = ("samples", "batch_size")


def read_score(config: dict[str, Any], given: frozenset[str]) -> ScoreSettings:
    """Sections without a name are None: their other keys are defaults that nothing reads.

    Raises:
        UserError: a key was given that has nothing to apply to, or a value has the wrong type.
    """
    sections: dict[str, Any] = {"model": None, "dataset": None}
    if config["model"]["name"] is not None:
        sections["model"] = read(ModelSettings, config["model"], "model")
    if config["dataset"]["name"] is not None:
        sections["dataset"] = read(DatasetSettings, config["dataset"], "dataset")
    settings = read_section(ScoreSettings, config, ready=sections)
    for fault in _keys_without_use(settings, given):
        raise UserError(fault)
    return settings


def _keys_without_use(settings: ScoreSettings, given: frozenset[str]) -> Iterator[str]:
    """A line for each key that was given and that nothing would read."""
    for key in sorted(given):
        if settings.dataset is None and key.startswith("dataset."):
            yield f"{key} has no problem set to apply to: choose one with dataset=… or dataset.name=…"
        if settings.model is None and (key.startswith("model.") or key in _OF_A_MODEL):
            yield f"{key} has no model to apply to: choose one with model=… or model.name=…"
        if settings.completions is None and key in _OF_COMPLETIONS:
            yield f"{key} has no completions to apply to: give completions=FILE"


def read_report(config: dict[str, Any], given: frozenset[str]) -> ReportSettings:
    run = _named(read(Path, config["run"], "run"))
    out = run / "report.html" if config["out"] is None else read(Path, config["out"], "out")
    return read_section(ReportSettings, config, ready={"run": run, "out": out})


def _named(folder: Path) -> Path:
    """The folder as it was typed; its whole path for . and .., since the command in the report is named after it."""
    return folder.resolve() if folder.name in ("", "..") else folder


def read_compare(config: dict[str, Any], given: frozenset[str]) -> CompareSettings:
    named = read(tuple[Path, ...], config["runs"], "runs")
    runs = tuple(_named(run) for each in named for run in _meant_by(each))
    return read_section(CompareSettings, config, ready={"runs": runs})


def read_probe(config: dict[str, Any], given: frozenset[str]) -> ProbeSettings:
    """One run has its probe beside it; several have theirs each beside itself, and what they come to together apart."""
    named = [config["run"]] if isinstance(config["run"], str) else config["run"]
    runs = tuple(_named(run) for each in read(tuple[Path, ...], named, "run") for run in _meant_by(each))
    if not runs:
        raise UserError("run=[]: give at least one")
    default = runs[0] / PROBE_FOLDER if len(runs) == 1 else Path("out", PROBE_FOLDER)
    out = default if config["out"] is None else read(Path, config["out"], "out")
    arms = [config["arms"]] if isinstance(config["arms"], str) else config["arms"]
    return read_section(ProbeSettings, {**config, "arms": arms}, ready={"run": runs, "out": out})


def _meant_by(folder: Path) -> list[Path]:
    """The folder as it stands; where `*` or `?` are in its name, the runs that fit."""
    if not {"*", "?"} & set(str(folder)):
        return [folder]
    found = Path(folder.anchor or ".").glob(str(folder.relative_to(folder.anchor)))
    fitting = sorted(each for each in found if (each / "config.yaml").is_file())
    if not fitting:
        raise UserError(f"{folder}: no folder of a run fits")
    return fitting


def read_check(config: dict[str, Any], given: frozenset[str]) -> CheckSettings:
    """Without a name the model's other keys are defaults that nothing reads; given all the same, they are refused."""
    named = config["model"]["name"] is not None
    for key in sorted(key for key in given if key.startswith("model.") and not named):
        raise UserError(f"{key} has no model to apply to: choose one with model=… or model.name=…")
    model = read(ModelSettings, config["model"], "model") if named else None
    against = [config["against"]] if isinstance(config["against"], str) else config["against"] or []
    names = read(tuple[str, ...], against, "against")
    return read_section(CheckSettings, config, ready={"model": model, "against": names})


def read_evaluate(config: dict[str, Any], given: frozenset[str]) -> EvaluateSettings:
    dataset = read(DatasetSettings, config["dataset"], "dataset")
    checkpoints = read_checkpoints(config)
    one = isinstance(config["checkpoint"], str)
    default = checkpoints[0] / "evaluation" / Path(dataset.name).stem if one else None
    out = read(Path, config["out"], "out") if config["out"] is not None else default
    ready = {"out": out, "dataset": dataset, "checkpoint": checkpoints[0] if one else checkpoints}
    return read_section(EvaluateSettings, config, ready=ready)


def read_checkpoints(config: dict[str, Any]) -> tuple[Path, ...]:
    """`checkpoint`, which is one folder or a list of them."""
    given = config["checkpoint"]
    checkpoints: tuple[Path, ...] = read(tuple[Path, ...], [given] if isinstance(given, str) else given, "checkpoint")
    if not checkpoints:
        raise UserError("checkpoint=[]: give at least one")
    return checkpoints
