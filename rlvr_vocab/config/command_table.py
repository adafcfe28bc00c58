"""The commands, a row each: `--help`, composing, checks and dispatch read them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any


def _imported(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(f"rlvr_vocab.{module}"), name)


@dataclass(frozen=True)
class Command:
    """One command of rlvr-vocab; its code is `rlvr_vocab.commands.<code>.run`.

    schema: the dataclass of its keys, as `sections:Class` below `rlvr_vocab.config`.
    groups: the folders in `conf/` that it chooses from.
    config: its file in `conf/`; over: the file whose keys and defaults it has besides.
    checks: the function that refuses settings, as `run:function` below `rlvr_vocab.config.checks`.
    """

    name: str
    summary: str
    example: str
    schema: str
    groups: tuple[str, ...] = ()
    config: str = ""
    over: str = ""
    code: str = ""
    checks: str = ""

    @property
    def settings(self) -> type:
        """The dataclass of its keys; imported here, since other commands do not need it."""
        found: type = _imported(f"config.{self.schema}")
        return found

    def check(self, settings: Any) -> None:
        """Raises UserError for the first thing that cannot work; imports no torch."""
        if self.checks:
            _imported(f"config.checks.{self.checks}")(settings)

    def run(self, settings: Any) -> int:
        """Carries the command out and returns the exit code."""
        return int(_imported(f"commands.{self.code or self.name}:run")(settings))


_OF_A_RUN = ("model", "dataset", "training", "rewards", "logging", "experiment")
_ROWS = (
    Command(
        "train",
        "train a model with GRPO, with a reasoning vocabulary or without",
        "rlvr-vocab train dataset=gsm8k training=small_gpu model.reasoning_vocab_size=1000",
        "sections:RunSettings",
        _OF_A_RUN,
        config="config",
        checks="run:check_run",
    ),
    Command(
        "quickstart",
        "the whole pipeline on an embedded tiny model and task, on a CPU, in minutes",
        "rlvr-vocab quickstart model.reasoning_vocab_size=0 seed=1",
        "sections:RunSettings",
        _OF_A_RUN,
        config="config",
        code="train",
        checks="run:check_run",
    ),
    Command(
        "plan",
        "memory and time of a run before it is run, and settings that fit",
        "rlvr-vocab plan model=qwen3_1.7b dataset=gsm8k model.reasoning_vocab_size=full gpu=h100 fit=40GiB",
        "command_settings:PlanSettings",
        _OF_A_RUN,
        over="config",
        checks="commands:check_plan",
    ),
    Command(
        "check",
        "what is in a problem set, as the model will see it, without training",
        "rlvr-vocab check dataset=gsm8k model=qwen3_0.6b against=test.jsonl",
        "command_settings:CheckSettings",
        ("model", "dataset"),
        checks="commands:check_check",
    ),
    Command(
        "score",
        "what rewards give for completions, gold answers or samples of a model, without training",
        "rlvr-vocab score rewards=[accuracy,boxed] completions=samples.jsonl",
        "command_settings:ScoreSettings",
        ("rewards", "dataset", "model"),
        checks="commands:check_score",
    ),
    Command(
        "expand",
        "write a checkpoint with a reasoning vocabulary, without training",
        "rlvr-vocab expand model=smollm2_135m model.reasoning_vocab_size=1000 out=./smollm2_1000",
        "command_settings:ExpandSettings",
        ("model",),
        checks="commands:check_expand",
    ),
    Command(
        "evaluate",
        "accuracy of a checkpoint on a problem set, with per-problem results on disk",
        "rlvr-vocab evaluate checkpoint=out/grpo_baseline/final_model dataset=gsm8k samples=4",
        "command_settings:EvaluateSettings",
        ("rewards", "dataset"),
        checks="commands:check_evaluate",
    ),
    Command(
        "generate",
        "chat answers of a checkpoint, thinking set apart and reasoning tokens marked",
        'rlvr-vocab generate checkpoint=out/grpo_baseline/final_model prompt="What is 17 + 25?"',
        "command_settings:GenerateSettings",
        checks="commands:check_generate",
    ),
    Command(
        "merge",
        "fold an adapter into its base: a model folder for any tool, proven by loading it again",
        "rlvr-vocab merge checkpoint=out/grpo_baseline/checkpoint-500 out=production_model",
        "command_settings:MergeSettings",
        checks="commands:check_merge",
    ),
    Command(
        "samples",
        "read what a run wrote: its completions in a pager, filtered, or written out",
        "rlvr-vocab samples run=out/grpo_baseline order=highest",
        "command_settings:SamplesSettings",
    ),
    Command(
        "doctor",
        "name what is wrong with a run: evidence, probable cause, the key to change",
        "rlvr-vocab doctor run=out/grpo_baseline",
        "command_settings:DoctorSettings",
    ),
    Command(
        "report",
        "one HTML file of a run: outcome, curves, findings, samples, vocabulary",
        "rlvr-vocab report run=out/grpo_baseline",
        "command_settings:ReportSettings",
    ),
    Command(
        "compare",
        "arms of runs against each other: difference, interval, smallest effect, verdict",
        "rlvr-vocab compare runs=[out/a_seed0,out/a_seed1,out/b_seed0,out/b_seed1]",
        "command_settings:CompareSettings",
    ),
    Command(
        "probe",
        "whether reasoning tokens carry meaning: thoughts with other ids of the same text, answered again",
        "rlvr-vocab probe run=out/grpo_reasoning_1000",
        "command_settings:ProbeSettings",
        checks="commands:check_probe",
    ),
)
COMMANDS = {command.name: command for command in _ROWS}
