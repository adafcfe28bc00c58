"""The commands, a row each: `--help`, composing, key checks, dispatch and the README's list are made from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
    ReportSettings,
    SamplesSettings,
    ScoreSettings,
    read_check,
    read_compare,
    read_evaluate,
    read_report,
    read_score,
)
from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.config.values import read_section


@dataclass(frozen=True)
class Command:
    """One command of rlvr-vocab.

    name: what is typed.
    summary, example: its lines in `--help`.
    settings: the dataclass of its keys.
    checks: module:function that refuses settings before anything heavy is imported.
    module: what carries the command out: its `run` takes the settings and returns the exit code.
    config: its file in `conf/`, and `groups` the folders there that it chooses from.
    read: makes the settings from the resolved configuration and the keys that were typed.
    """

    name: str
    summary: str
    example: str
    settings: type
    checks: str
    module: str
    config: str
    groups: tuple[str, ...] = ()
    read: Callable[[dict[str, Any], frozenset[str]], Any] | None = None  # None: key by key

    def read_settings(self, config: dict[str, Any], given: frozenset[str]) -> Any:
        """The settings from a resolved configuration and the keys that were typed."""
        return read_section(self.settings, config) if self.read is None else self.read(config, given)

    def check(self, settings: Any) -> None:
        """Raises UserError for the first thing that cannot work; imports no torch."""
        module, _, function = self.checks.partition(":")
        getattr(import_module(module), function)(settings)

    def run(self, settings: Any) -> int:
        """Carries the command out and returns the exit code."""
        return int(import_module(self.module).run(settings))


_OF_A_RUN = ("model", "dataset", "training", "rewards", "logging", "experiment")
_ROWS = (
    Command(
        "train",
        "train a model with GRPO, with a reasoning vocabulary or without",
        "rlvr-vocab train dataset=gsm8k training=small_gpu model.reasoning_vocab_size=1000",
        RunSettings,
        "rlvr_vocab.checks.run:check_run",
        "rlvr_vocab.commands.train",
        "config",
        _OF_A_RUN,
    ),
    Command(
        "quickstart",
        "the whole pipeline on an embedded tiny model and task, on a CPU, in minutes",
        "rlvr-vocab quickstart model.reasoning_vocab_size=0 seed=1",
        RunSettings,
        "rlvr_vocab.checks.run:check_run",
        "rlvr_vocab.commands.train",
        "config",
        _OF_A_RUN,
    ),
    Command(
        "check",
        "what is in a problem set, as the model will see it, without training",
        "rlvr-vocab check dataset=gsm8k model=qwen3_0.6b against=test.jsonl",
        CheckSettings,
        "rlvr_vocab.checks.commands:check_check",
        "rlvr_vocab.commands.check.command",
        "check",
        ("model", "dataset"),
        read_check,
    ),
    Command(
        "score",
        "what rewards give for completions, gold answers or samples of a model, without training",
        "rlvr-vocab score rewards=[accuracy,boxed] completions=samples.jsonl",
        ScoreSettings,
        "rlvr_vocab.checks.commands:check_score",
        "rlvr_vocab.commands.score.command",
        "score",
        ("rewards", "dataset", "model"),
        read_score,
    ),
    Command(
        "expand",
        "write a checkpoint with a reasoning vocabulary, without training",
        "rlvr-vocab expand model=smollm2_135m model.reasoning_vocab_size=1000 out=./smollm2_1000",
        ExpandSettings,
        "rlvr_vocab.checks.commands:check_expand",
        "rlvr_vocab.commands.expand",
        "expand",
        ("model",),
    ),
    Command(
        "evaluate",
        "accuracy of a checkpoint on a problem set, with per-problem results on disk",
        "rlvr-vocab evaluate checkpoint=out/grpo_baseline/final_model dataset=gsm8k samples=4",
        EvaluateSettings,
        "rlvr_vocab.checks.commands:check_evaluate",
        "rlvr_vocab.commands.evaluate.command",
        "evaluate",
        ("dataset",),
        read_evaluate,
    ),
    Command(
        "generate",
        "chat answers of a checkpoint, thinking set apart and reasoning tokens marked",
        'rlvr-vocab generate checkpoint=out/grpo_baseline/final_model prompt="What is 17 + 25?"',
        GenerateSettings,
        "rlvr_vocab.checks.commands:check_generate",
        "rlvr_vocab.commands.generate",
        "generate",
    ),
    Command(
        "merge",
        "fold an adapter into its base: a model folder for any tool, proven by loading it again",
        "rlvr-vocab merge checkpoint=out/grpo_baseline/checkpoint-500 out=production_model",
        MergeSettings,
        "rlvr_vocab.checks.commands:check_merge",
        "rlvr_vocab.commands.merge",
        "merge",
    ),
    Command(
        "samples",
        "read what a run wrote: page through its completions, filter them, write them out",
        "rlvr-vocab samples run=out/grpo_baseline order=highest",
        SamplesSettings,
        "rlvr_vocab.checks.commands:check_samples",
        "rlvr_vocab.commands.samples",
        "samples",
    ),
    Command(
        "doctor",
        "name what is wrong with a run: evidence, probable cause, the key to change",
        "rlvr-vocab doctor run=out/grpo_baseline",
        DoctorSettings,
        "rlvr_vocab.checks.commands:check_doctor",
        "rlvr_vocab.commands.doctor",
        "doctor",
    ),
    Command(
        "report",
        "one HTML file of a run: outcome, curves, findings, samples, vocabulary",
        "rlvr-vocab report run=out/grpo_baseline",
        ReportSettings,
        "rlvr_vocab.checks.commands:check_report",
        "rlvr_vocab.commands.report",
        "report",
        read=read_report,
    ),
    Command(
        "compare",
        "arms of runs against each other: difference, interval, smallest effect, verdict",
        "rlvr-vocab compare runs=[out/a_seed0,out/a_seed1,out/b_seed0,out/b_seed1]",
        CompareSettings,
        "rlvr_vocab.checks.commands:check_compare",
        "rlvr_vocab.commands.compare.command",
        "compare",
        read=read_compare,
    ),
)
COMMANDS = {command.name: command for command in _ROWS}
