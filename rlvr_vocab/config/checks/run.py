"""What is refused of a training run before torch is imported: one clear line each, nothing written."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any

from rlvr_vocab.config.checks.model_folder import check_model
from rlvr_vocab.config.recorded import read_recorded
from rlvr_vocab.config.sections import (
    DatasetSettings,
    RewardSettings,
    RunSettings,
    StageSettings,
    problem_source,
    prompt_style,
    stage_error_context,
    stages_of,
)
from rlvr_vocab.config.values import as_typed
from rlvr_vocab.data.generators import WORKED, without_worked_solutions
from rlvr_vocab.data.load import check_source
from rlvr_vocab.errors import UserError, is_main_process, require_package
from rlvr_vocab.files import read_json
from rlvr_vocab.record.files import SUMMARY
from rlvr_vocab.record.metrics import HELD_OUT_FIGURES
from rlvr_vocab.rewards.build import build_rewards, load_attribute, overridden, required_columns
from rlvr_vocab.rewards.grader import Grader
from rlvr_vocab.rewards.reward import parameters_of
from rlvr_vocab.runs.folder import NOT_OF_A_RUN, changes_of, check_not_running
from rlvr_vocab.runs.rewards import GOLD_COLUMNS, NAME_GOLD_ANSWERS, dummy_context, grader_of_run, solved_by
from rlvr_vocab.runs.tools import tools_of_run
from rlvr_vocab.text import did_you_mean, listed, nearest_and_all
from rlvr_vocab.training.settings import check_batches
from rlvr_vocab.vocab.refuse_off_policy import refuse_off_policy

logger = logging.getLogger(__name__)


def check_run(settings: RunSettings) -> None:
    """Raises UserError for the first reason for which a training run cannot work."""
    check_model(settings.model)
    check_warmup(settings)
    for stage in (StageSettings("", None, settings), *settings.stages):
        with stage_error_context(stage.name):
            check_training(stage.run)
            _check_trainer(stage.run)
            check_dataset(stage.run.dataset)
            check_rewards(stage.run.rewards)
            if not stage.run.stages:  # each of which is checked by itself
                _check_gold_answers(stage.run.rewards, stage.run.dataset)
            _check_until(stage)
    _check_measurements(settings)
    _check_logins(settings)
    _check_run_folder(settings)
    tools_of_run(settings)  # last, as their schemas take an import of torch


_OF_BITSANDBYTES = ("adamw_8bit", "adamw_bnb_8bit", "paged_", "ademamix", "lion_", "rmsprop_bnb")


def _check_packages(settings: RunSettings) -> None:
    """The optional packages of a model, its optimizer and its sampler are installed, and work together."""
    model, grpo = settings.model, settings.training.grpo
    half = next((name for name in ("bf16", "fp16") if grpo.get(name)), None)
    if model.bits is not None:
        key = f"model.model_kwargs.load_in_{model.bits}bit"
        require_package("bitsandbytes", f"{key}=true", f"set {key}=false")
        if grpo["use_vllm"]:
            raise UserError(f"training.use_vllm=true: vLLM takes no weights of bitsandbytes; set it or {key} to false")
    attention = str(model.model_kwargs.get("attn_implementation"))
    if attention.startswith("flash_attention") and half is None and model.loaded_dtype == "float32":
        key = "model.model_kwargs.attn_implementation"
        raise UserError(f"{key}={attention} computes in 16 bits: set training.bf16=true, or {key}=sdpa")
    if grpo["use_vllm"]:
        require_package("vllm", "training.use_vllm=true", "set training.use_vllm=false")
    if grpo["optim"].startswith(_OF_BITSANDBYTES):
        require_package("bitsandbytes", f"training.optim={grpo['optim']}", "set training.optim=adamw_torch_fused")
    if grpo.get("use_liger_kernel"):
        require_package("liger_kernel", "training.use_liger_kernel=true", "set training.use_liger_kernel=false")
    if grpo.get("use_transformers_continuous_batching") and half is not None:
        key = "training.use_transformers_continuous_batching"
        raise UserError(f"{key}=true casts trained weights to 16 bits under training.{half}=true; set one to false")


def _check_logins(settings: RunSettings) -> None:
    """Trackers' packages are installed; without a terminal nobody can type the key that W&B asks for at its start."""
    from huggingface_hub import get_token

    if settings.training.grpo.get("push_to_hub") and get_token() is None:
        raise UserError("training.push_to_hub=true: no login to the hub: set HF_TOKEN or run `hf auth login`")
    trackers = settings.logging.report_to
    for tracker in trackers:
        require_package(tracker, f"logging={tracker}", "set logging=none")
    offline = {settings.logging.mode, os.environ.get("WANDB_MODE")} & {"offline", "disabled", "dryrun"}
    if "wandb" not in trackers or offline or os.environ.get("WANDB_API_KEY"):
        return
    from requests.utils import get_netrc_auth  # as W&B looks for it

    in_netrc = get_netrc_auth(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai") is not None
    if not in_netrc and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("no login to Weights & Biases: set WANDB_API_KEY, run `wandb login`, or add logging=offline")


# (field, its value, why it is refused and what to do instead)
_REFUSED: tuple[tuple[str, Any, str], ...] = (
    ("lr_scheduler_type", "reduce_lr_on_plateau", "it follows a held-out loss, and GRPO has none; set cosine"),
    ("sync_ref_model", True, "the moved reference lies in no checkpoint; leave it out"),
    ("ignore_data_skip", True, "a resumed run would be given its first problems again; leave it out"),
    ("enable_jit_checkpoint", True, "a run saves at signals by itself; leave it out"),
    ("logging_strategy", "epoch", "a resume would lose or double the row of an epoch's end; set logging_steps"),
    ("eval_strategy", "epoch", "a resume would lose or double the measurement at an epoch's end; set steps"),
    ("eval_on_start", True, "every run is measured before it trains, in evaluation/before.jsonl; leave it out"),
    ("save_strategy", "best", "a signal would save nothing; set steps, and training.load_best_model_at_end=true"),
)


def check_training(settings: RunSettings) -> None:
    """The rules on values for each stage of a run, and the optional packages that they need; loads no user code."""
    grpo = settings.training.grpo
    refuse_off_policy(grpo, reasoning=settings.model.adds_copies, key="training.")
    if settings.dataset.curriculum.skip_solved is not None and solved_by(settings) is None:
        raise UserError("dataset.curriculum.skip_solved: no reward of this run tells right from wrong; add one")
    check_batches(grpo, key="training.")
    check_loss(grpo)
    _check_tools(settings)
    _check_resumable(grpo, staged=bool(settings.resolved["stages"]))
    _check_packages(settings)


def _check_tools(settings: RunSettings) -> None:
    """The keys that go with tools alone, and those that do not go with them."""
    training = settings.training
    if settings.model.past_thinking != "keep":
        key = f"model.past_thinking={settings.model.past_thinking}"
        raise UserError(f"{key}: a training scores the ids that were sampled, earlier thoughts too; set keep")
    if not settings.uses_tools:
        if training.grpo.get("max_tool_calling_iterations") is not None:
            raise UserError("training.max_tool_calling_iterations: there is nothing to call: set tools or environment")
    elif training.dynamic_sampling or settings.dataset.curriculum.skip_solved is not None:
        keys = "training.dynamic_sampling and dataset.curriculum.skip_solved"
        raise UserError(f"{keys}: completions with tools cannot be drawn anew; leave them out, or the tools")


def _check_trainer(settings: RunSettings) -> None:
    """`training.trainer` names a subclass of ours; its file is loaded, which imports torch if it is one."""
    if (name := settings.training.trainer) is None:
        return
    key = f"training.trainer={name}"
    if name.startswith("{"):
        raise UserError(f"{key}: it takes no parameters; write file.py:Class, and a subclass for each value")
    found, above = load_attribute(name, "training.trainer"), "rlvr_vocab.training.trainer.RegionGRPOTrainer"
    bases = {f"{each.__module__}.{each.__qualname__}": each for each in getattr(found, "__mro__", ())}
    if (ours := bases.get(above)) is None:
        raise UserError(f"{key}: inherit from rlvr_vocab's GRPOTrainer, as `from rlvr_vocab import GRPOTrainer` has it")
    hooks = ("advantages", "keep_groups", "per_token_loss")
    near = next(filter(None, (did_you_mean(each, hooks) for each in vars(found))), "")
    if not overridden(found, ours) and (near or "__init__" not in vars(found)):
        raise UserError(f"{key}: overrides no method of GRPOTrainer{near or f', such as {listed(hooks)}'}")
    for hook in hooks:
        given = [*signature(getattr(ours, hook)).parameters]
        try:
            signature(getattr(found, hook)).bind(*given)
        except TypeError as error:
            raise UserError(f"{key}: {hook} is called with ({', '.join(given)}): {error}") from error


def check_loss(grpo: Mapping[str, Any]) -> None:
    """With CISPO, epsilon_high is the largest importance ratio itself, not its distance from 1."""
    highest = grpo["epsilon_high"]
    if grpo["loss_type"] == "cispo" and (highest is None or highest < 1):
        now = f"training.epsilon_high={as_typed(highest)}"
        raise UserError(f"training.loss_type=cispo: {now}, but it is the largest ratio itself: set it to 5.0")


def _check_resumable(grpo: Mapping[str, Any], *, staged: bool) -> None:
    """Raises UserError for what an interruption would lose or double."""
    for field, value, why in _REFUSED:
        if grpo.get(field) == value:
            raise UserError(f"training.{field}={as_typed(value)}: {why}")
    keeps_best = grpo.get("load_best_model_at_end")
    if (keeps_best or grpo.get("metric_for_best_model")) and grpo["save_total_limit"] == 1:
        raise UserError("training.save_total_limit=1 keeps the best checkpoint, and a resume needs the last: set 2")
    if keeps_best and staged:
        raise UserError("training.load_best_model_at_end: a stage begins where the one before ended; leave it out")


def _check_until(stage: StageSettings) -> None:
    """A stage ends by one rule, and held-out problems have the figure; its first logged step checks other metrics."""
    until, settings = stage.until, stage.run
    if until is None:
        return
    if settings.training.max_tokens is not None:
        raise UserError(f"until and training.max_tokens={settings.training.max_tokens}: a stage ends by one of the two")
    if (until.above is None) == (until.below is None):
        raise UserError("until: give either above or below, as a number")
    if settings.training.grpo["eval_steps"] is None and until.metric.startswith("eval/"):
        raise UserError(f"until.metric={until.metric}: held-out problems are measured with training.eval_steps=N alone")


def check_dataset(dataset: DatasetSettings) -> None:
    check_source(problem_source(dataset), prompt_style(dataset))


def check_warmup(settings: RunSettings) -> None:
    if not settings.warmup.max_steps:
        return
    columns, unsolved = settings.dataset.columns, without_worked_solutions(settings.dataset.tasks or ())
    missing = [f"dataset.columns.{key}=null" for key in ("reasoning", "answer") if getattr(columns, key) is None]
    missing += [f"there are no worked solutions of {task}, only of {', '.join(WORKED)}" for task in unsolved]
    if missing:
        remedy = "name their columns, or set warmup.max_steps=0 for a pretrained model"
        raise UserError(f"warmup.max_steps needs worked solutions and gold answers, and {missing[0]}: {remedy}")
    generator = settings.dataset.generator
    if generator is not None and generator.right_calls is not None and "calculator" not in settings.tools:
        raise UserError("warmup: the worked solutions of products call the tool calculator: add tools=[calculator]")


def check_rewards(rewards: RewardSettings) -> None:
    """Every function is there, takes its parameters and has a weight; user code is loaded."""
    if not rewards.functions:
        raise UserError("rewards is empty: give one, as rewards=[accuracy], or an environment with get_reward")
    for reward in build_rewards(rewards.functions, dummy_context()):
        reward.check_parameters()
        for name in reward.params.keys() - parameters_of(reward.function)[0]:
            logger.warning("reward %s has no parameter %s of its own, and takes it as one of **", reward.name, name)


def _check_gold_answers(rewards: RewardSettings, dataset: DatasetSettings) -> None:
    """Refuse rewards that need gold answers for a problem set without them."""
    for spec in rewards.functions if dataset.columns.answer is None else ():
        if any(column in GOLD_COLUMNS for column in required_columns(spec)):
            none = "dataset.columns.answer=null says that there are none"
            raise UserError(f"reward {spec.name} needs gold answers, and {none}: {NAME_GOLD_ANSWERS}")


def _check_measurements(settings: RunSettings) -> None:
    """Held-out answers have a grader, measurements have problems, and a figure that a key names exists."""
    spec, dataset = grader_of_run(settings), settings.dataset
    Grader(spec, dummy_context()).check_parameters()
    _check_gold_answers(RewardSettings(spec.functions), dataset)
    holds_out = (dataset.eval_split or dataset.eval_fraction) and dataset.max_eval_samples != 0
    for stage in stages_of(settings):
        grpo, until = stage.run.training.grpo, stage.until
        if grpo["eval_strategy"] != "no" and not holds_out:
            raise UserError("training.eval_steps: nothing is held out: set dataset.eval_fraction and max_eval_samples")
        best, metric = grpo.get("metric_for_best_model") or None, "" if until is None else until.metric
        named = {
            "training.metric_for_best_model=": best and best.removeprefix("eval_"),
            "until.metric=eval/": metric.removeprefix("eval/") if metric.startswith("eval/") else None,
        }
        for key, figure in named.items():
            if figure is not None and figure not in HELD_OUT_FIGURES:
                near = nearest_and_all(figure, HELD_OUT_FIGURES)
                raise UserError(f"{key}{figure}: nothing measures that on held-out problems{near}")
            if figure == "accuracy" and spec.threshold is None:
                why = f"held-out answers are graded by {spec.name}, which calls none right or wrong"
                raise UserError(f"{key}{figure}: {why}: set evaluation.grader or evaluation.threshold")


# Keys that `allow_changes` may name: the model is made, and the problems are divided.
_CHANGEABLE = ("training", "rewards", "model.generation_kwargs", "model.model_kwargs", "code")


def _check_run_folder(settings: RunSettings) -> None:
    """The folder is empty, or holds an earlier part of the same run that no other process writes."""
    if not is_main_process():  # which may have begun to write by now
        return
    folder, named = settings.output_dir, settings.resume != "auto"
    check_not_running(folder)
    if not folder.is_dir() or all(NOT_OF_A_RUN.fullmatch(path.name) for path in folder.iterdir()):
        if named:
            raise UserError(f"resume={settings.resume}: {folder} holds no run that could go on")
        return
    try:
        read_recorded(folder, resolve=True)
    except UserError as error:
        raise UserError(f"output_dir={folder}: not empty, and not a run of ours ({error})") from error
    if named and settings.overwrite:
        raise UserError(f"resume={settings.resume} continues the run that overwrite=true would delete: set one of them")
    checkpoints = [*folder.glob("checkpoint-*"), *folder.glob("stages/*/checkpoint-*")]
    if named and Path(settings.resume).expanduser().resolve() not in map(Path.resolve, checkpoints):
        listed = ", ".join(sorted(path.name for path in checkpoints)) or "none"
        raise UserError(f"resume={settings.resume}: no checkpoint of {folder}; there are {listed}")
    if not settings.overwrite:
        _check_changes(settings)
    # A config.yaml copied into a working folder or a repository does not make it a run's folder.
    elif (folder / ".git").exists() or Path.cwd().is_relative_to(folder.resolve()):
        raise UserError(f"output_dir={folder}: overwrite=true would delete more than a run; give another folder")


def _check_changes(settings: RunSettings) -> None:
    """Refuse changed keys that `allow_changes` does not name or that cannot change, and changes that train nothing."""
    folder, refused = settings.output_dir, dict[str, str]()
    changes = changes_of(settings)
    for key, there, here in changes:
        if not any(key == each or key.startswith(f"{each}.") for each in settings.allow_changes):
            refused[key] = f"{key}: {as_typed(there)} there, {as_typed(here)} here"
        elif key == "training.optim" or not key.startswith(_CHANGEABLE):
            raise UserError(f"allow_changes: {key} cannot change on resume; start a new run")
    if refused:
        shown = [*[*refused.values()][:3], *[f"{len(refused) - 3} more"] * (len(refused) > 3)]
        remedy = "choose another exp_name or output_dir, or add overwrite=true"
        if all(key.startswith(_CHANGEABLE) for key in refused):
            remedy += f", or allow_changes=[{','.join(refused)}]"
        raise UserError(f"output_dir={folder}: holds a run with another configuration ({'; '.join(shown)}); {remedy}")
    if changes and (folder / SUMMARY).is_file():
        finished = f"output_dir={folder}: this run is finished, and"
        if settings.stages or not any(folder.glob("checkpoint-*")):
            why = "its stages have ended" if settings.stages else "holds no checkpoint to go on from"
            raise UserError(f"{finished} {why}: choose another exp_name or output_dir to train anew")
        done, max_steps = read_json(folder / SUMMARY).get("steps", 0), settings.training.grpo["max_steps"]
        keys = [key for key, _, _ in changes]
        if not (max_steps > done if max_steps is not None else "training.num_train_epochs" in keys):
            raise UserError(f"{finished} these changes train nothing more: set training.max_steps above {done}")
