"""The commands, a row each: `--help`, composing, key checks, dispatch and the README's list are made from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from rlvr_vocab.config.command_sections import (
    CheckSettings,
    CompareSettings,
    DoctorSettings,
    EvaluateSettings,
    ExpandSettings,
    GenerateSettings,
    MergeSettings,
    ProbeSettings,
    ReportSettings,
    SamplesSettings,
    ScoreSettings,
)
from rlvr_vocab.config.sections import PlanSettings, RunSettings


@dataclass(frozen=True)
class Command:
    """One command of rlvr-vocab.

    name: what is typed.
    summary, example: its lines in `--help`.
    settings: the dataclass of its keys.
    groups: the folders in `conf/` that it chooses from.
    config: its file in `conf/`; empty for the one of its name.
    over: the file in `conf/` whose keys and defaults it has besides.
    module: what carries it out, its `run` takes the settings and returns the exit code; empty for
        `rlvr_vocab.commands.<name>`.
    checks: module:function that refuses settings before anything heavy is imported; empty for `check_<name>` in
        `rlvr_vocab.config.checks.commands`.
    """

    name: str
    summary: str
    example: str
    settings: type
    groups: tuple[str, ...] = ()
    config: str = ""
    over: str = ""
    module: str = ""
    checks: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "config", self.config or self.name)
        object.__setattr__(self, "module", self.module or f"rlvr_vocab.commands.{self.name}")
        object.__setattr__(self, "checks", self.checks or f"rlvr_vocab.config.checks.commands:check_{self.name}")

    def check(self, settings: Any) -> None:
        """Raises UserError for the first thing that cannot work; imports no torch."""
        module, _, function = self.checks.partition(":")
        getattr(import_module(module), function)(settings)

    def run(self, settings: Any) -> int:
        """Carries the command out and returns the exit code."""
        return int(import_module(self.module).run(settings))


_TRAIN = Command(
    "train",
    "train a model with GRPO, with a reasoning vocabulary or without",
    "rlvr-vocab train dataset=gsm8k training=small_gpu model.reasoning_vocab_size=1000",
    RunSettings,
    ("model", "dataset", "training", "rewards", "logging", "experiment"),
    config="config",
    checks="rlvr_vocab.config.checks.run:check_run",
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
        module="",
        checks="",
    ),
    Command(
        "check",
        "what is in a problem set, as the model will see it, without training",
        "rlvr-vocab check dataset=gsm8k model=qwen3_0.6b against=test.jsonl",
        CheckSettings,
        ("model", "dataset"),
        module="rlvr_vocab.commands.check.command",
    ),
    Command(
        "score",
        "what rewards give for completions, gold answers or samples of a model, without training",
        "rlvr-vocab score rewards=[accuracy,boxed] completions=samples.jsonl",
        ScoreSettings,
        ("rewards", "dataset", "model"),
        module="rlvr_vocab.commands.score.command",
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
        module="rlvr_vocab.commands.evaluate.command",
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
    ),
    Command(
        "doctor",
        "name what is wrong with a run: evidence, probable cause, the key to change",
        "rlvr-vocab doctor run=out/grpo_baseline",
        DoctorSettings,
    ),
    Command(
        "report",
        "one HTML file of a run: outcome, curves, findings, samples, vocabulary",
        "rlvr-vocab report run=out/grpo_baseline",
        ReportSettings,
    ),
    Command(
        "compare",
        "arms of runs against each other: difference, interval, smallest effect, verdict",
        "rlvr-vocab compare runs=[out/a_seed0,out/a_seed1,out/b_seed0,out/b_seed1]",
        CompareSettings,
    ),
    Command(
        "probe",
        "whether reasoning tokens carry meaning: thoughts with other ids of the same text, answered again",
        "rlvr-vocab probe run=out/grpo_reasoning_1000",
        ProbeSettings,
    ),
)
COMMANDS = {command.name: command for command in _ROWS}
