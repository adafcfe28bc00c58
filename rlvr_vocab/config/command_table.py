"""The commands, a row each with the settings of its keys: `--help`, composing, checks and dispatch read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from os.path import commonpath
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Gt, Le, Lt, MinLen
from pydantic import AfterValidator, BeforeValidator

from rlvr_vocab.bounds import Count, NotNegative, Seed, UserPath
from rlvr_vocab.config.sections import (
    NONE_BELOW_0,
    DatasetSettings,
    Grader,
    ModelSettings,
    RewardSettings,
    RunSettings,
    ThinkTags,
    as_tuple,
)
from rlvr_vocab.data.source import AnswerFormat, Columns, ProblemSource
from rlvr_vocab.record.files import PROBE_FOLDER


def _runs_meant(folders: tuple[Path, ...]) -> tuple[Path, ...]:
    """The folders; where `*` or `?` are in a name, the runs that fit."""
    found: list[Path] = []
    for folder in folders:
        fitting = [folder]
        if {"*", "?"} & set(str(folder)):
            around = Path(folder.anchor or ".").glob(str(folder.relative_to(folder.anchor)))
            fitting = sorted(each for each in around if (each / "config.yaml").is_file())
        if not fitting:
            raise ValueError(f"no folder of a run fits {folder}")
        found += map(_named, fitting)
    return _each_once(tuple(found))


def _each_once(folders: tuple[Path, ...]) -> tuple[Path, ...]:
    places = [folder.resolve() for folder in folders]
    for place, folder in zip(places, folders, strict=True):
        if places.count(place) > 1:
            raise ValueError(f"{folder} is given twice")
    return folders


def _named(folder: Path) -> Path:
    """The folder as it was typed; its whole path for . and .., since reports and their commands name it."""
    return folder.resolve() if folder.name in ("", "..") else folder


def _none_is_empty(value: Any) -> Any:
    return () if value is None else as_tuple(value)


Runs = Annotated[tuple[UserPath, ...], BeforeValidator(as_tuple), MinLen(1), AfterValidator(_runs_meant)]
Names = Annotated[tuple[str, ...], BeforeValidator(as_tuple)]


@dataclass(frozen=True)
class DoctorSettings:
    run: UserPath
    format: Literal["text", "json"]


@dataclass(frozen=True)
class SamplesSettings:
    """`rlvr-vocab samples`. step: a step or a range of them, as it was typed; format: None for what `out` ends with."""

    run: UserPath
    step: str | None
    problem: str | None
    contains: str | None
    verdict: Literal["right", "wrong"] | None
    min_reward: float | None
    max_reward: float | None
    order: Literal["file", "lowest", "highest"]
    max_samples: Count | None
    format: Literal["text", "html"] | None
    out: UserPath | None


@dataclass(frozen=True)
class ReportSettings:
    run: Annotated[UserPath, AfterValidator(_named)]
    out: UserPath | None
    max_samples: Count

    @property
    def page(self) -> Path:
        return self.out or self.run / "report.html"


@dataclass(frozen=True)
class CompareSettings:
    """`rlvr-vocab compare`. key, baseline, evaluation, pair_seeds: None where they are to be found out."""

    runs: Runs
    key: str | None
    baseline: Any  # a value of that key, whatever it is
    evaluation: str | None
    pair_seeds: bool | None
    confidence: Annotated[float, Gt(0), Lt(1)]
    power: Annotated[float, Gt(0), Lt(1)]
    out: UserPath


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

    run: Runs
    arms: Names | None
    samples: Count
    draws: Count
    permutations: Count
    max_samples: Count | None
    backend: Literal["transformers", "vllm"]
    batch_size: Count
    telling_effect: Annotated[float, Gt(0)]
    out: UserPath | None
    seed: Seed

    @property
    def folder(self) -> Path:
        """`out`; one run has its probe beside it, several have what they come to together apart."""
        return self.out or (self.run[0] / PROBE_FOLDER if len(self.run) == 1 else Path("out", PROBE_FOLDER))


@dataclass(frozen=True)
class EvaluateSettings:
    """`rlvr-vocab evaluate`. checkpoint: one or several; out: None where several have their results beside them.

    rewards: without functions where the run of the checkpoint says what grades; grader, threshold: see `grader_spec`.
    """

    checkpoint: UserPath | Annotated[tuple[UserPath, ...], MinLen(1), AfterValidator(_each_once)]
    base: UserPath | None
    dataset: DatasetSettings
    rewards: RewardSettings
    grader: Grader
    threshold: float | None
    split: Literal["eval", "train"]
    samples: Count
    backend: Literal["transformers", "vllm"]
    batch_size: Count
    temperature: NotNegative | None
    max_new_tokens: Count | None
    max_samples: Count | None
    out: UserPath | None
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

    checkpoint: UserPath
    base: UserPath | None
    prompt: str | None
    prompts: UserPath | None
    system_prompt: str | None
    temperature: NotNegative | None
    top_p: Annotated[float, Gt(0), Le(1)]
    max_new_tokens: Count
    batch_size: Count
    format: Literal["text", "json"]
    seed: Seed


@dataclass(frozen=True)
class MergeSettings:
    checkpoint: UserPath
    base: UserPath | None
    out: UserPath
    dtype: Literal["auto", "fp32", "bf16", "fp16"]


@dataclass(frozen=True)
class CheckSettings:
    """`rlvr-vocab check`. model: None where no tokens are counted."""

    model: ModelSettings | None
    dataset: DatasetSettings
    against: Annotated[tuple[str, ...], BeforeValidator(_none_is_empty)]
    against_subset: str | None
    against_split: str
    against_problem_column: str | None
    seed: Seed


@dataclass(frozen=True)
class ScoreSettings:
    """`rlvr-vocab score`: completions, or the gold answers of a dataset, or a model's answers to its problems.

    think_tags: None for those of the run that the completions are from.
    """

    model: ModelSettings | None
    dataset: DatasetSettings | None
    rewards: RewardSettings
    completions: UserPath | None
    completion_column: str
    prompt_column: str | None
    solution_column: str | None
    solution_format: AnswerFormat
    think_tags: ThinkTags | None
    samples: Count
    batch_size: Count
    max_samples: Count | None
    show: NONE_BELOW_0
    order: Literal["lowest", "highest", "file"]
    out: UserPath | None
    seed: Seed


@dataclass(frozen=True)
class ExpandSettings:
    model: ModelSettings
    out: UserPath
    seed: Seed


_OF_COMPLETIONS = ("completion_column", "prompt_column", "solution_column", "solution_format")
_OF_A_MODEL = ("samples", "batch_size")


def keys_without_use(settings: Any, given: frozenset[str]) -> Iterator[str]:
    """A line for each key that was typed and that nothing would read."""
    for key in sorted(given):
        section = key.partition(".")[0]
        of_adapter = key.startswith("model.lora.") and key != "model.lora.enabled"
        if of_adapter and isinstance(settings, RunSettings) and not settings.model.trains_adapter:
            yield f"{key} has nothing to apply to: add model.lora.enabled=true"
        if isinstance(settings, CheckSettings | ScoreSettings) and settings.model is None and section == "model":
            yield f"{key} has no model to apply to: choose one with model=… or model.name=…"
        if isinstance(settings, ScoreSettings):
            if settings.model is None and key in _OF_A_MODEL:
                yield f"{key} has no model to apply to: choose one with model=… or model.name=…"
            if settings.dataset is None and section == "dataset":
                yield f"{key} has no problem set to apply to: choose one with dataset=… or dataset.name=…"
            if settings.completions is None and key in _OF_COMPLETIONS:
                yield f"{key} has no completions to apply to: give completions=FILE"


_GIB = re.compile(r"(\d+(?:\.\d+)?) *(?:GiB|GB|G)?", re.IGNORECASE)


def _memory_of_a_card(fit: str | None) -> str | None:
    found = _GIB.fullmatch((fit or "1").strip())
    if found is None or not float(found[1]):
        raise ValueError("expected the memory of a card, as 24GiB")
    return fit


@dataclass(frozen=True, kw_only=True)
class PlanSettings(RunSettings):
    """`rlvr-vocab plan`: a run, and what it is planned for.

    prompt_tokens, completion_tokens, train_problems: None where the configuration of the run is to tell.
    """

    gpu: str | None
    gpus: Count
    sharding: Literal["none", "fsdp2", "deepspeed_zero3"]
    fit: Annotated[str | None, AfterValidator(_memory_of_a_card)]
    prompt_tokens: Count | None
    completion_tokens: Count | None
    train_problems: Count | None
    format: Literal["text", "json", "slurm_time"]
    out: UserPath | None

    @property
    def fit_gib(self) -> float | None:
        """Memory of a card that the run is made to fit into."""
        found = None if self.fit is None else _GIB.fullmatch(self.fit.strip())
        return None if found is None else float(found[1])


def other_sets(settings: CheckSettings) -> list[ProblemSource]:
    """The evaluation sets of `against`; their problems alone are read."""
    column, subset = settings.against_problem_column or settings.dataset.columns.problem, settings.against_subset
    return [
        ProblemSource(name, Columns(column, None), subset, settings.against_split, problem_key="against_problem_column")
        for name in settings.against
    ]


@dataclass(frozen=True)
class Command:
    """One command of rlvr-vocab.

    settings: the dataclass of its keys.
    groups: the folders in `conf/` that it chooses from.
    config: its file in `conf/`; empty for the one of its name.
    over: the file in `conf/` whose keys and defaults it has besides.
    code: the module of `rlvr_vocab.commands` that carries it out; empty for its name.
    checks: module:function of `rlvr_vocab.config.checks` that refuses settings; empty for `commands:check_<name>`.
    """

    name: str
    summary: str
    example: str
    settings: type
    groups: tuple[str, ...] = ()
    config: str = ""
    over: str = ""
    code: str = ""
    checks: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "config", self.config or self.name)
        object.__setattr__(self, "code", self.code or self.name)
        object.__setattr__(self, "checks", self.checks or f"commands:check_{self.name}")

    def check(self, settings: Any) -> None:
        """Raises UserError for the first thing that cannot work; imports no torch."""
        module, _, function = self.checks.partition(":")
        getattr(import_module(f"rlvr_vocab.config.checks.{module}"), function)(settings)

    def run(self, settings: Any) -> int:
        """Carries the command out and returns the exit code."""
        return int(import_module(f"rlvr_vocab.commands.{self.code}").run(settings))


_TRAIN = Command(
    "train",
    "train a model with GRPO, with a reasoning vocabulary or without",
    "rlvr-vocab train dataset=gsm8k training=small_gpu model.reasoning_vocab_size=1000",
    RunSettings,
    ("model", "dataset", "training", "rewards", "logging", "experiment"),
    config="config",
    code="train",
    checks="run:check_run",
)
_ROWS = (
    _TRAIN,
    replace(
        _TRAIN,
        name="quickstart",
        summary="the whole pipeline on an embedded tiny model and task, on a CPU, in minutes",
        example="rlvr-vocab quickstart model.reasoning_vocab_size=0 seed=1",
    ),
    replace(
        _TRAIN,
        name="plan",
        summary="memory and time of a run before it is run, and settings that fit",
        example="rlvr-vocab plan model=qwen3_1.7b dataset=gsm8k model.reasoning_vocab_size=full gpu=h100 fit=40GiB",
        settings=PlanSettings,
        config="plan",
        over="config",
        code="plan",
        checks="",
    ),
    Command(
        "check",
        "what is in a problem set, as the model will see it, without training",
        "rlvr-vocab check dataset=gsm8k model=qwen3_0.6b against=test.jsonl",
        CheckSettings,
        ("model", "dataset"),
    ),
    Command(
        "score",
        "what rewards give for completions, gold answers or samples of a model, without training",
        "rlvr-vocab score rewards=[accuracy,boxed] completions=samples.jsonl",
        ScoreSettings,
        ("rewards", "dataset", "model"),
    ),
    Command(
        "expand",
        "write a checkpoint with a reasoning vocabulary, without training",
        "rlvr-vocab expand model=smollm2_135m model.reasoning_vocab_size=1000 out=./smollm2_1000",
        ExpandSettings,
        ("model",),
    ),
    Command(
        "evaluate",
        "accuracy of a checkpoint on a problem set, with per-problem results on disk",
        "rlvr-vocab evaluate checkpoint=out/grpo_baseline/final_model dataset=gsm8k samples=4",
        EvaluateSettings,
        ("rewards", "dataset"),
    ),
    Command(
        "generate",
        "chat answers of a checkpoint, thinking set apart and reasoning tokens marked",
        'rlvr-vocab generate checkpoint=out/grpo_baseline/final_model prompt="What is 17 + 25?"',
        GenerateSettings,
    ),
    Command(
        "merge",
        "fold an adapter into its base: a model folder for any tool, proven by loading it again",
        "rlvr-vocab merge checkpoint=out/grpo_baseline/checkpoint-500 out=production_model",
        MergeSettings,
    ),
    Command(
        "samples",
        "read what a run wrote: its completions in a pager, filtered, or written out",
        "rlvr-vocab samples run=out/grpo_baseline order=highest",
        SamplesSettings,
        checks="recorded_runs:check_samples",
    ),
    Command(
        "doctor",
        "name what is wrong with a run: evidence, probable cause, the key to change",
        "rlvr-vocab doctor run=out/grpo_baseline",
        DoctorSettings,
        checks="recorded_runs:check_doctor",
    ),
    Command(
        "report",
        "one HTML file of a run: outcome, curves, findings, samples, vocabulary",
        "rlvr-vocab report run=out/grpo_baseline",
        ReportSettings,
        checks="recorded_runs:check_report",
    ),
    Command(
        "compare",
        "arms of runs against each other: difference, interval, smallest effect, verdict",
        "rlvr-vocab compare runs=[out/a_seed0,out/a_seed1,out/b_seed0,out/b_seed1]",
        CompareSettings,
        checks="recorded_runs:check_compare",
    ),
    Command(
        "probe",
        "whether reasoning tokens carry meaning: thoughts with other ids of the same text, answered again",
        "rlvr-vocab probe run=out/grpo_reasoning_1000",
        ProbeSettings,
    ),
)
COMMANDS = {command.name: command for command in _ROWS}
