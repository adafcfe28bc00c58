"""The checks of the other commands, `check_<command>`: they refuse before anything heavy is imported."""

from __future__ import annotations

from rlvr_vocab.config.checks.model_folder import check_adapter, check_checkpoint, check_folder, check_model
from rlvr_vocab.config.checks.run import check_dataset, check_loss, check_rewards
from rlvr_vocab.config.command_settings import (
    CheckSettings,
    EvaluateSettings,
    ExpandSettings,
    GenerateSettings,
    MergeSettings,
    PlanSettings,
    ProbeSettings,
    ScoreSettings,
)
from rlvr_vocab.data.load import check_source
from rlvr_vocab.data.source import PromptStyle
from rlvr_vocab.errors import UserError, require_package
from rlvr_vocab.plan.devices import CARDS, CPU
from rlvr_vocab.record.files import FINAL_MODEL
from rlvr_vocab.rewards.grader import Grader
from rlvr_vocab.runs.folder import run_of_checkpoint
from rlvr_vocab.runs.rewards import dummy_context, grader_of_checkpoint
from rlvr_vocab.runs.tools import ToolUse, tools_of_run
from rlvr_vocab.training.settings import check_batches
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.weights import ADAPTER_CONFIG, is_adapter


def check_probe(settings: ProbeSettings) -> None:
    for run in settings.run:
        check_checkpoint(run / FINAL_MODEL, None)
        if not VocabLayout.load(run / FINAL_MODEL).size:
            raise UserError(f"run={run}: has no reasoning tokens to probe")


def check_generate(settings: GenerateSettings) -> None:
    check_checkpoint(settings.checkpoint, settings.base)
    tools_of_run(ToolUse.of(settings, run_of_checkpoint(settings.checkpoint)))


def check_merge(settings: MergeSettings) -> None:
    folder = settings.checkpoint
    if is_adapter(folder):
        check_adapter(folder, settings.base)
        return
    inside = sorted(folder.glob(f"*/{ADAPTER_CONFIG}"))  # in a run: of its checkpoints, and last the final one
    if not inside:
        check_folder(folder, f"checkpoint={folder}")
    hint = f"; did you mean {inside[-1].parent}?" if inside else ": nothing to merge"
    raise UserError(f"checkpoint={folder}: holds no adapter (no {ADAPTER_CONFIG}){hint}")


def check_check(settings: CheckSettings) -> None:
    check_dataset(settings.dataset)
    if settings.model is not None:
        check_model(settings.model)
    for other in settings.other_sets():  # which are read after much is printed
        check_source(other, PromptStyle(system_prompt=None))
    tools_of_run(settings)


def check_evaluate(settings: EvaluateSettings) -> None:
    folder = settings.checkpoint
    check_checkpoint(folder, settings.base)
    if settings.backend == "vllm":
        if is_adapter(folder):
            merge = f"rlvr-vocab merge checkpoint={folder} out=…"
            raise UserError(f"backend=vllm: {folder} is an adapter: fold it into its base first, {merge}")
        require_package("vllm", "backend=vllm", "leave backend=transformers")
    check_dataset(settings.dataset)
    trained = run_of_checkpoint(folder)
    Grader(grader_of_checkpoint(settings, trained.settings), dummy_context()).check_parameters()
    tools_of_run(ToolUse.of(settings, trained))  # last, as their schemas take an import of torch


def check_expand(settings: ExpandSettings) -> None:
    check_model(settings.model)


def check_score(settings: ScoreSettings) -> None:
    check_rewards(settings.rewards)
    if settings.dataset is not None:
        check_dataset(settings.dataset)
    if settings.model is not None:
        check_model(settings.model)
    tools_of_run(settings)


def check_plan(settings: PlanSettings) -> None:
    """The settings can be planned; a package or a file that this machine lacks is no fault of a plan."""
    check_model(settings.model)
    for each in (settings, *(stage.run for stage in settings.stages)):
        check_batches(each.training.grpo, settings.gpus, key="training.")
        check_loss(each.training.grpo)
    if settings.fit is not None and settings.gpu == CPU:
        raise UserError(f"fit with gpu=cpu: it is for a card; name one of {', '.join(CARDS)}, or none")
