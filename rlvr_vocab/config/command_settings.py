"""The commands: their keys as frozen dataclasses with their rules, and the table that `--help` and dispatch read.

The first line of a docstring is the line of the command in `--help`. The meanings of keys, and defaults: conf/.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from annotated_types import Gt, Le, Lt, MinLen
from pydantic import AfterValidator, BeforeValidator

from rlvr_vocab.bounds import Count, NewFolder, NotNegative, OutFile, OutFolder, Seed, UserPath, WholeFrom0
from rlvr_vocab.config.recorded import read_recorded, yaml_line
from rlvr_vocab.config.sections import (
    DatasetSettings,
    Environment,
    Grader,
    ModelSettings,
    PastThinking,
    RewardSettings,
    RunSettings,
    ToolNames,
    as_tuple,
    problem_source,
)
from rlvr_vocab.config.values import read
from rlvr_vocab.data.source import Columns, DecimalMark, ProblemSource
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.files import COMPARISON, PROBE_FOLDER
from rlvr_vocab.text import did_you_mean


def _run_folder(folder: Path) -> Path:
    """The folder of a run; its whole path for . and .., since reports and their commands name it."""
    if not folder.is_dir():
        siblings = [str(path.parent) for path in folder.parent.glob("*/config.yaml")]
        raise ValueError(f"no such folder{did_you_mean(str(folder), siblings)}")
    if not (folder / "config.yaml").is_file():
        raise ValueError("not the folder of a run (no config.yaml)")
    read_recorded(folder, resolve=True)
    return folder.resolve() if folder.name in ("", "..") else folder


def _matching_runs(folders: tuple[Path, ...]) -> tuple[Path, ...]:
    """The folders; one with `*` or `?` in its name stands for the runs that match it."""
    found: list[Path] = []
    for folder in folders:
        matching = [folder]
        if not {"*", "?"}.isdisjoint(str(folder)):
            paths = Path(folder.anchor or ".").glob(str(folder.relative_to(folder.anchor)))
            matching = sorted(each for each in paths if (each / "config.yaml").is_file())
        if not matching:
            raise ValueError(f"no folder of a run matches {folder}")
        found += map(_run_folder, matching)
    _refuse_twice(found)
    return tuple(found)


def _refuse_twice(folders: Sequence[Path]) -> None:
    places = [folder.resolve() for folder in folders]
    for place, folder in zip(places, folders, strict=True):
        if places.count(place) > 1:
            raise UserError(f"{folder} is given twice")


def _table_file(file: Path) -> Path:
    if file.suffix not in TABLE_FORMATS:
        raise ValueError(f"expected a name that ends in {', '.join(TABLE_FORMATS)}")
    return file


TABLE_FORMATS = (".csv", ".tex", ".md")
RunFolder = Annotated[UserPath, AfterValidator(_run_folder)]
Runs = Annotated[tuple[UserPath, ...], BeforeValidator(as_tuple), MinLen(1), AfterValidator(_matching_runs)]


@dataclass(frozen=True)
class DoctorSettings:
    """name what is wrong with a run: evidence, probable cause, the key to change

    Example: rlvr-vocab doctor run=out/grpo_baseline
    """

    run: RunFolder
    format: Literal["text", "json"]


@dataclass(frozen=True)
class SamplesSettings:
    """read what a run wrote: its completions in a pager, filtered, or written out

    Example: rlvr-vocab samples run=out/grpo_baseline order=highest
    """

    run: RunFolder
    step: str | None
    problem: str | None
    contains: str | None
    verdict: Literal["right", "wrong"] | None
    min_reward: float | None
    max_reward: float | None
    order: Literal["file", "lowest", "highest"]
    max_samples: Count | None
    out: OutFile | None


@dataclass(frozen=True)
class ReportSettings:
    """one HTML file of a run: outcome, curves, findings, samples, vocabulary; or what a comparison shows

    Example: rlvr-vocab report run=out/grpo_baseline
    """

    run: Annotated[UserPath, AfterValidator(lambda each: each if (each / COMPARISON).is_file() else _run_folder(each))]
    out: OutFile | None
    figures: OutFolder | None
    max_samples: Count

    @property
    def page(self) -> Path:
        return self.out or self.run / "report.html"


# `*` and `?` have a meaning of their own in YAML.
_HIDDEN, _SHOWN = str.maketrans("*?", "\ue000\ue001"), str.maketrans("\ue000\ue001", "*?")


@dataclass(frozen=True)
class CompareSettings:
    """arms of runs against each other: difference, interval, smallest effect, verdict

    Example: rlvr-vocab compare runs=[out/a_seed0,out/a_seed1,out/b_seed0,out/b_seed1]
    """

    runs: Runs | None
    arms: str | None
    key: str | None
    baseline: Any  # a name in `arms`, or a value of the key
    evaluation: str | None
    pair_seeds: bool | None
    tried: Runs | None
    confidence: Annotated[float, Gt(0), Lt(1)]
    power: Annotated[float, Gt(0), Lt(1)]
    table: Annotated[OutFile, AfterValidator(_table_file)] | None
    figures: OutFolder | None
    out: UserPath

    def __post_init__(self) -> None:
        if self.named:
            if self.runs is not None or self.key is not None:
                raise UserError("arms: names all runs with their arms; leave out runs= and key=")
        elif self.runs is None or len(self.runs) < 2:
            raise UserError("runs: give two runs at least, as in runs=[out/a,out/b]")
        elif self.arms is not None and self.key not in (None, self.arms):
            raise UserError(f"arms={self.arms} and key={self.key} are the same thing with two values: give one")

    @property
    def named(self) -> dict[str, tuple[Path, ...]]:
        """The runs of each arm that has a name, read as YAML; empty where a key divides the runs."""
        text = self.arms or ""
        if not text.startswith("{"):
            return {}
        try:
            content = json.dumps(yaml.load(text.translate(_HIDDEN), yaml.BaseLoader), ensure_ascii=False)
        except yaml.YAMLError as error:
            raise UserError(f"arms={text}: {yaml_line(error).translate(_SHOWN)}") from error
        arms: dict[str, tuple[Path, ...]] = read(dict[str, Runs], json.loads(content.translate(_SHOWN)), "arms")
        _refuse_twice([run for runs in arms.values() for run in runs])
        if len(arms) < 2:
            raise UserError("arms: give two arms at least, as in arms={baseline: out/a*, copies: out/b*}")
        return arms


@dataclass(frozen=True)
class ProbeSettings:
    """whether reasoning tokens carry meaning: answer again after exchanging ids of the same text in thoughts

    Example: rlvr-vocab probe run=out/grpo_reasoning_1000
    """

    run: Runs
    samples: Count
    draws: Count
    permutations: Count
    max_samples: Count | None
    batch_size: Count
    telling_effect: Annotated[float, Gt(0)]
    past_thinking: PastThinking
    out: OutFolder | None
    seed: Seed

    @property
    def folder(self) -> Path:
        """`out`; one run has its probe beside it, several have their common verdict in out/."""
        return self.out or (self.run[0] if len(self.run) == 1 else Path("out")) / self.folder_name

    @property
    def folder_name(self) -> str:
        """Of the answers of a run, in its folder."""
        return PROBE_FOLDER if self.past_thinking == "keep" else f"{PROBE_FOLDER}_{self.past_thinking}"


@dataclass(frozen=True)
class CheckpointSettings:
    """The keys of a command that samples from a checkpoint; one that may be None is then as in the checkpoint's run."""

    checkpoint: UserPath
    base: UserPath | None
    tools: Annotated[ToolNames | None, BeforeValidator(as_tuple)]
    environment: Environment
    max_tool_calling_iterations: WholeFrom0 | None
    past_thinking: PastThinking | None
    batch_size: Count
    temperature: NotNegative | None
    seed: Seed


@dataclass(frozen=True)
class EvaluateSettings(CheckpointSettings):
    """accuracy of a checkpoint on a problem set, with per-problem results on disk

    Example: rlvr-vocab evaluate checkpoint=out/grpo_baseline/final_model dataset=gsm8k samples=4
    """

    dataset: DatasetSettings
    rewards: RewardSettings
    grader: Grader
    threshold: float | None
    split: Literal["eval", "train", "all"] | None
    samples: Count
    backend: Literal["transformers", "vllm"]
    max_new_tokens: Count | None
    max_samples: Count | None
    out: OutFolder | None

    @property
    def folder(self) -> Path:
        return self.out or self.checkpoint / "evaluation" / Path(self.dataset.name).stem


@dataclass(frozen=True)
class GenerateSettings(CheckpointSettings):
    """chat answers of a checkpoint, thinking set apart and reasoning tokens marked

    Example: rlvr-vocab generate checkpoint=out/grpo_baseline/final_model prompt="What is 17 + 25?"
    """

    prompt: str | None
    prompts: UserPath | None
    system_prompt: str | None
    top_p: Annotated[float, Gt(0), Le(1)]
    max_new_tokens: Count
    format: Literal["text", "json"]

    def __post_init__(self) -> None:
        if (self.prompt is None) == (self.prompts is None) or self.prompt == "":
            raise UserError('give either prompt="…" or prompts=FILE')


@dataclass(frozen=True)
class MergeSettings:
    """fold an adapter into its base: a model folder for any tool, proven by loading it again

    Example: rlvr-vocab merge checkpoint=out/grpo_baseline/checkpoint-500 out=production_model
    """

    checkpoint: UserPath
    base: UserPath | None
    out: NewFolder
    dtype: Literal["auto", "fp32", "bf16", "fp16"]


@dataclass(frozen=True)
class CheckSettings:
    """what is in a problem set, as the model will see it, without training

    Example: rlvr-vocab check dataset=gsm8k model=qwen3_0.6b against=test.jsonl
    """

    model: ModelSettings | None
    dataset: DatasetSettings
    against: Annotated[tuple[str, ...], BeforeValidator(as_tuple)]
    against_subset: str | None
    against_split: str
    against_problem_column: str | None
    tools: Annotated[ToolNames, BeforeValidator(as_tuple)]
    environment: Environment
    seed: Seed

    def other_sets(self) -> list[ProblemSource]:
        own, subset, split = problem_source(self.dataset), self.against_subset, self.against_split
        columns, header = Columns(self.against_problem_column or "", None), None
        if self.against_problem_column is None:  # in the form of the set itself
            columns, header = replace(own.columns, answer=None, reasoning=None, tests=None), own.header
        return [
            ProblemSource(name, columns, subset, split, header=header, problem_key="against_problem_column")
            for name in self.against
        ]


@dataclass(frozen=True)
class ScoreSettings:
    """what rewards give for completions, gold answers or samples of a model, without training

    Example: rlvr-vocab score rewards=[accuracy,boxed] completions=samples.jsonl
    """

    model: ModelSettings | None
    dataset: DatasetSettings | None
    rewards: RewardSettings
    tools: Annotated[ToolNames, BeforeValidator(as_tuple)]
    environment: Environment
    max_tool_calling_iterations: WholeFrom0 | None
    completions: UserPath | None
    decimal: DecimalMark
    completion_column: str
    prompt_column: str | None
    solution_column: str | None
    samples: Count
    batch_size: Count
    max_samples: Count | None
    show: WholeFrom0
    order: Literal["lowest", "highest"]
    out: OutFile | None
    thoughts: bool | None
    seed: Seed

    def __post_init__(self) -> None:
        completions, dataset, model = self.completions, self.dataset, self.model
        if completions is None and dataset is None:
            raise UserError("nothing to score: give completions=FILE, dataset=… (gold answers), or model=… dataset=…")
        if completions is not None and (dataset is not None or model is not None):
            other = "dataset" if dataset is not None else "model"
            raise UserError(f"completions=… and {other}=… are two things to score: give one")
        if model is None and (self.tools or self.environment):
            raise UserError("tools and environment: no model could call them: give model=… and dataset=…")
        inputs = [each for each in (completions, dataset and dataset.name, dataset and dataset.eval_split) if each]
        if self.out is not None and self.out.resolve() in (Path(each).expanduser().resolve() for each in inputs):
            raise UserError(f"out={self.out}: this command reads it; give another file")


@dataclass(frozen=True)
class ExpandSettings:
    """write a checkpoint with a reasoning vocabulary, without training

    Example: rlvr-vocab expand model=smollm2_135m model.reasoning_vocab_size=1000 out=./smollm2_1000
    """

    model: ModelSettings
    out: NewFolder
    seed: Seed


def _in_gib(memory: Any) -> Any:
    found = re.fullmatch(r"(\d+(?:\.\d+)?) *(?:GiB|GB|G)?", str(memory).strip(), re.IGNORECASE)
    if memory is not None and (found is None or not float(found[1])):
        raise ValueError("expected the memory of a card, as 24GiB")
    return None if found is None else float(found[1])


@dataclass(frozen=True, kw_only=True)
class PlanSettings(RunSettings):
    """memory and time of a run before it is run, and settings that fit

    Example: rlvr-vocab plan model=qwen3_1.7b dataset=gsm8k model.reasoning_vocab_size=full gpu=h100 fit=40GiB
    """

    gpu: str | None
    gpus: Count
    sharding: Literal["none", "fsdp2", "deepspeed_zero3"]
    fit: Annotated[float | None, BeforeValidator(_in_gib)]  # GiB
    prompt_tokens: Count | None
    train_problems: Count | None
    format: Literal["text", "json", "slurm_time"]


@dataclass(frozen=True)
class Command:
    """One command of rlvr-vocab; its code is `rlvr_vocab.commands.<code>.run`.

    settings: its keys; the docstring has the line in `--help` and an example. groups: folders in conf/ to choose from.
    checks: `module:function` below `rlvr_vocab.config.checks`. positional: the keys of words that stand without one.
    """

    name: str
    settings: type
    groups: tuple[str, ...] = ()
    checks: str = ""
    code: str = ""
    doc: str = ""
    positional: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        return (self.doc or self.settings.__doc__ or "").splitlines()[0]

    @property
    def example(self) -> str:
        return (self.doc or self.settings.__doc__ or "").partition("Example: ")[2].partition("\n")[0]

    def check(self, settings: Any) -> None:
        """Raises UserError for the first thing that cannot work; imports no torch."""
        if self.checks:
            module, _, function = self.checks.partition(":")
            getattr(import_module(f"rlvr_vocab.config.checks.{module}"), function)(settings)

    def run(self, settings: Any) -> int:
        """Carries the command out and returns the exit code."""
        return int(import_module(f"rlvr_vocab.commands.{self.code or self.name}").run(settings))


_QUICKSTART = """the whole pipeline on an embedded tiny model and task, on a CPU, in minutes

Example: rlvr-vocab quickstart model.reasoning_vocab_size=0 seed=1"""
_OF_A_RUN = ("model", "dataset", "training", "rewards", "logging", "experiment")
_ROWS = (
    Command("train", RunSettings, _OF_A_RUN, "run:check_run"),
    Command("quickstart", RunSettings, _OF_A_RUN, "run:check_run", code="train", doc=_QUICKSTART),
    Command("plan", PlanSettings, _OF_A_RUN, "commands:check_plan"),
    Command("check", CheckSettings, ("model", "dataset"), "commands:check_check", positional=("dataset",)),
    Command("score", ScoreSettings, ("rewards", "dataset", "model"), "commands:check_score"),
    Command("expand", ExpandSettings, ("model",), "commands:check_expand"),
    Command(
        "evaluate", EvaluateSettings, ("rewards", "dataset"), "commands:check_evaluate", positional=("checkpoint",)
    ),
    Command("generate", GenerateSettings, (), "commands:check_generate", positional=("checkpoint", "prompt")),
    Command("merge", MergeSettings, (), "commands:check_merge", positional=("checkpoint",)),
    Command("samples", SamplesSettings, positional=("run",)),
    Command("doctor", DoctorSettings, positional=("run",)),
    Command("report", ReportSettings, positional=("run",)),
    Command("compare", CompareSettings, positional=("runs",)),
    Command("probe", ProbeSettings, (), "commands:check_probe", positional=("run",)),
)
COMMANDS = {command.name: command for command in _ROWS}
