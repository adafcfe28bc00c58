"""What is refused of a training run before torch is imported: one clear line each, nothing written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rlvr_vocab.config.checks import machine
from rlvr_vocab.config.sections import (
    DatasetSettings,
    ModelSettings,
    RewardSettings,
    RunSettings,
    StageSettings,
    problem_source,
    prompt_style,
    stage_error_context,
)
from rlvr_vocab.config.trl_fields import completions_together
from rlvr_vocab.config.values import as_typed
from rlvr_vocab.data.generators import WORKED, without_worked_solutions
from rlvr_vocab.data.load import check_source
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.metrics import HELD_OUT_FIGURES
from rlvr_vocab.rewards.build import RewardContext, build_rewards, required_columns
from rlvr_vocab.rewards.grader import Grader
from rlvr_vocab.runs.folder import check_run_folder
from rlvr_vocab.runs.model_folder import check_model_source
from rlvr_vocab.runs.rewards import GOLD_COLUMNS, NAME_GOLD_ANSWERS, dummy_context, grader_of_run, solved_by
from rlvr_vocab.text import did_you_mean
from rlvr_vocab.vocab.layout import refuse_expanded
from rlvr_vocab.vocab.refuse_off_policy import OF_TRANSFORMERS, OF_VLLM, refuse_off_policy, refuse_off_policy_options

# What `until` of a stage may look at; docs/files.md says what each is.
LOGGED_METRICS = (
    *("reward", "reward_std", "frac_reward_zero_std", "loss", "grad_norm", "learning_rate", "entropy", "kl"),
    *("completions/mean_length", "completions/min_length", "completions/max_length", "completions/clipped_ratio"),
    *("completions/mean_terminated_length", "thinking/mean_length", "thinking/closed", "thinking/reasoning_share"),
    *("answering/mean_length", "num_tokens", "step_time"),
    *("entropy/text", "entropy/thinking", "entropy/answering", "entropy/copies"),
    *("hidden/capacity", "hidden/bound", "hidden/bound_per_thought"),
    *("groups/reward_std", "completions/duplicates", "completions/shared", "sampling/logp_gap", "weights/moved"),
    *("reward/sampled", "dynamic/rounds"),
)
EVAL = "eval/"
REWARD_FIGURES = ("mean", "std", "weight", "failures")


def check_run(settings: RunSettings) -> None:
    """Raises UserError for the first reason for which a training run cannot work."""
    check_model(settings.model)
    check_configuration(settings)
    check_files(settings)
    for stage in settings.stages:
        with stage_error_context(stage.name):
            check_training(stage.run)
            check_files(stage.run)
            check_until(stage)
    check_grader(settings)
    check_evaluations(settings)
    machine.check_wandb_login(settings.logging)
    check_run_folder(settings)


def check_configuration(settings: RunSettings) -> None:
    """The values alone: nothing is looked for, and no code of the user's is loaded."""
    check_warmup(settings)
    check_training(settings)


def check_files(settings: RunSettings) -> None:
    check_dataset(settings.dataset)
    check_rewards(settings.rewards)
    if not settings.stages:  # each of which is looked at by itself
        check_gold_answers(settings.rewards, settings.dataset)


# --- model ---


def check_model(model: ModelSettings) -> None:
    """The files that a model section names are there."""
    if model.chat_template is not None and not model.chat_template.is_file():
        raise UserError(f"model.chat_template={model.chat_template}: no such file")
    if model.tiny is None:
        check_model_source(model)


def check_packages(settings: RunSettings) -> None:
    """The optional packages that a model, its optimizer and its sampler need are installed, and go together."""
    model, grpo = settings.model, settings.training.grpo
    refuse_expanded(model.name)
    if model.bits is not None:
        key = f"model.model_kwargs.load_in_{model.bits}bit"
        machine.require("bitsandbytes", f"{key}=true", f"set {key}=false")
        if grpo["use_vllm"]:
            raise UserError(
                f"training.use_vllm=true with {key}=true: vLLM takes no weights of bitsandbytes; set {key}=false, or "
                "training.use_vllm=false"
            )
    attention = model.model_kwargs.get("attn_implementation")
    machine.check_attention(attention)
    half = next((name for name in ("bf16", "fp16") if grpo.get(name)), None)
    if attention in machine.FLASH_PACKAGES and model.loaded_dtype == "float32" and half is None:
        raise UserError(
            f"{machine.ATTENTION}={attention} computes in 16 bits: set training.bf16=true, or {machine.ATTENTION}=sdpa"
        )
    if model.model_kwargs.get("use_kernels"):
        machine.require("kernels", "model.model_kwargs.use_kernels=true", "leave it out")
    if grpo["use_vllm"]:
        machine.check_vllm()
    if grpo["optim"].startswith(_OF_BITSANDBYTES):
        machine.require("bitsandbytes", f"training.optim={grpo['optim']}", "set training.optim=adamw_torch_fused")
    if grpo.get("use_liger_kernel"):
        machine.require("liger_kernel", "training.use_liger_kernel=true", "set training.use_liger_kernel=false")
    if grpo.get("use_transformers_continuous_batching") and half is not None:
        raise UserError(
            f"training.use_transformers_continuous_batching=true with training.{half}=true: to sample, TRL then casts "
            "the weights that train to 16 bits, where most small updates are lost; set one of them to false"
        )


_OF_BITSANDBYTES = ("adamw_8bit", "adamw_bnb_8bit", "paged_", "ademamix", "lion_", "rmsprop_bnb")


# --- training ---


def check_training(settings: RunSettings) -> None:
    """The rules for each stage of a run."""
    check_sampling(settings)
    check_curriculum(settings)
    check_batches(settings.training.grpo)
    check_loss(settings.training.grpo)
    check_resumable(settings.training.grpo, staged=bool(settings.resolved["stages"]))
    check_packages(settings)


def check_sampling(settings: RunSettings) -> None:
    """The sampler must draw from the distribution that is trained: no truncation, no penalties."""
    grpo, options = settings.training.grpo, settings.model.generation_kwargs
    known = (*OF_VLLM, "max_new_tokens") if grpo["use_vllm"] else OF_TRANSFORMERS
    refuse_off_policy_options(options, grpo, known, "model.generation_kwargs.", "training.")
    refuse_off_policy(grpo, reasoning=settings.model.adds_copies, key="training.")


def check_curriculum(settings: RunSettings) -> None:
    if settings.dataset.curriculum.skip_solved is not None and solved_by(settings) is None:
        raise UserError(
            "dataset.curriculum.skip_solved: no reward of this run tells right from wrong; add one that does to "
            "rewards, with weight 0 if it is not to count"
        )


_MOST_ADVISED = 64  # completions of a group


def check_batches(grpo: Mapping[str, Any], processes: int | None = None) -> None:
    """Whole groups are drawn together; else numbers that would work.

    Args:
        processes: that train together; None: those that a launcher has begun.
    """
    at_once, steps = completions_together(grpo, processes)
    group, batch = grpo["num_generations"], grpo["generation_batch_size"]
    if batch is not None and batch % at_once:
        raise UserError(f"training.generation_batch_size={batch}: must be a multiple of {at_once} completions at once")
    if at_once * steps % group == 0:
        return
    unit = group // math.gcd(at_once, group)
    field, each = ("steps_per_generation", 1) if batch is None else ("generation_batch_size", at_once)
    divisors = [size for size in range(2, min(at_once * steps, _MOST_ADVISED) + 1) if at_once * steps % size == 0]
    groups = f", or training.num_generations={' or '.join(map(str, divisors[:6]))}" if divisors else ""
    raise UserError(
        f"training.num_generations={group} does not divide the {at_once * steps} completions drawn together "
        f"({at_once} at once, {steps} steps per generation): "
        f"set training.{field}={unit * -(-steps // unit) * each} (a multiple of {unit * each}){groups}"
    )


def check_loss(grpo: Mapping[str, Any]) -> None:
    """CISPO's bound is the largest importance ratio itself; TRL warns of other ratios that a loss is not made for."""
    highest = grpo["epsilon_high"]
    if grpo["loss_type"] == "cispo" and (highest is None or highest < 1):
        raise UserError(
            f"training.loss_type=cispo with training.epsilon_high={as_typed(highest)}: there it is the largest "
            "importance ratio itself, and would weigh every token down; set training.epsilon_high=5.0"
        )


# (field, its value, why it is refused and what to do instead)
REFUSED: tuple[tuple[str, Any, str], ...] = (
    ("lr_scheduler_type", "reduce_lr_on_plateau", "it follows a held-out loss, and GRPO has none; set cosine"),
    ("lr_scheduler_type", "greedy", "it follows a held-out loss, and GRPO has none; set cosine"),
    ("sync_ref_model", True, "the moved reference lies in no checkpoint; leave it out"),
    ("ignore_data_skip", True, "a resumed run would be given its first problems again; leave it out"),
    ("enable_jit_checkpoint", True, "a run saves at signals by itself; leave it out"),
    ("logging_strategy", "epoch", "a resume would lose or double the row of an epoch's end; set logging_steps"),
    ("eval_strategy", "epoch", "a resume would lose or double what is measured at an epoch's end; set steps"),
    ("eval_on_start", True, "every run is measured before it trains, in evaluation/before.jsonl; leave it out"),
    ("save_strategy", "best", "a signal would save nothing; set steps, and training.load_best_model_at_end=true"),
)


def check_resumable(grpo: Mapping[str, Any], *, staged: bool) -> None:
    """Raises UserError for what would be lost or doubled by an interruption."""
    for field, value, why in REFUSED:
        if grpo.get(field) == value:
            raise UserError(f"training.{field}={as_typed(value)}: {why}")
    looks_for_the_best = grpo.get("load_best_model_at_end") or grpo.get("metric_for_best_model")
    if looks_for_the_best and grpo["save_total_limit"] == 1:
        raise UserError(
            "training.save_total_limit=1 keeps the best checkpoint and not the last, which a resume needs: at least 2"
        )
    if grpo.get("load_best_model_at_end") and staged:
        raise UserError("training.load_best_model_at_end: a stage begins where the one before ended; leave it out")


def check_until(stage: StageSettings) -> None:
    """The metric that ends a stage is one that its steps log."""
    until, settings = stage.until, stage.run
    if until is None:
        return
    if settings.training.max_tokens is not None:
        raise UserError(f"until and training.max_tokens={settings.training.max_tokens}: a stage ends by one of the two")
    if (until.above is None) == (until.below is None):
        raise UserError("until: give either above or below, as a number")
    rewards = [reward.name for reward in build_rewards(settings.rewards.functions, RewardContext())]
    known = [*LOGGED_METRICS, *(f"rewards/{name}/{figure}" for name in rewards for figure in REWARD_FIGURES)]
    if settings.training.grpo["eval_steps"] is not None:
        known += [f"{EVAL}{name}" for name in HELD_OUT_FIGURES]
    elif until.metric.removeprefix(EVAL) in HELD_OUT_FIGURES and until.metric.startswith(EVAL):
        raise UserError(f"until.metric={until.metric}: held-out problems are measured with training.eval_steps=N alone")
    _require_known("until.metric", until.metric, known, "no step logs that")


def _require_known(key: str, name: str, known: list[str] | tuple[str, ...], why: str) -> None:
    if name not in known:
        near = did_you_mean(name, known) or f"; there are {', '.join(known)}"
        raise UserError(f"{key}={name}: {why}{near}")


# --- problems, rewards, measurements ---


def check_dataset(dataset: DatasetSettings) -> None:
    check_source(problem_source(dataset), prompt_style(dataset))


def check_warmup(settings: RunSettings) -> None:
    if not settings.warmup.max_steps:
        return
    for key, column in (("reasoning", settings.dataset.columns.reasoning), ("answer", settings.dataset.columns.answer)):
        if column is None:
            raise UserError(
                f"warmup.max_steps needs worked solutions and gold answers, and dataset.columns.{key}=null says that "
                "there are none: name their column, or set warmup.max_steps=0"
            )
    missing = without_worked_solutions(settings.dataset.tasks or ())
    if missing:
        embedded = "the embedded model cannot start without them: " if settings.model.tiny is not None else ""
        raise UserError(
            f"dataset.tasks: there are no worked solutions of {missing[0]} for a warm-up, only of {', '.join(WORKED)}: "
            f"{embedded}set warmup.max_steps=0 and a pretrained model, as in model=qwen3_0.6b"
        )


def check_rewards(rewards: RewardSettings) -> None:
    """Every function is there, takes its parameters and has a weight; user code is loaded."""
    if not rewards.functions:
        raise UserError("rewards.functions is empty: give at least one, e.g. rewards=accuracy")
    for reward in build_rewards(rewards.functions, dummy_context(RewardContext())):
        reward.check_parameters()


def check_gold_answers(rewards: RewardSettings, dataset: DatasetSettings) -> None:
    """Refuse rewards that cannot do without gold answers where the problem set is said to have none."""
    for spec in rewards.functions if dataset.columns.answer is None else ():
        if any(column in GOLD_COLUMNS for column in required_columns(spec)):
            raise UserError(
                f"reward {spec.name} needs gold answers, and dataset.columns.answer=null says that there are none: "
                f"{NAME_GOLD_ANSWERS}, or take another reward"
            )


def check_grader(settings: RunSettings) -> None:
    """The grader of held-out answers is there, and gives an accuracy where a key asks for one."""
    spec = grader_of_run(settings)
    Grader(spec, dummy_context(RewardContext())).check_parameters()
    check_gold_answers(RewardSettings(spec.functions), settings.dataset)
    if spec.threshold is not None:
        return
    runs = [stage.run for stage in settings.stages] or [settings]
    best = {run.training.grpo.get("metric_for_best_model") for run in runs}
    until = {stage.until.metric for stage in settings.stages if stage.until is not None}
    wanted = {
        "training.metric_for_best_model=accuracy": bool(best & {"accuracy", "eval_accuracy"}),
        f"until.metric={EVAL}accuracy": f"{EVAL}accuracy" in until,
    }
    for key in (key for key, asked in wanted.items() if asked):
        raise UserError(
            f"{key}: held-out answers are graded by {spec.name}, which calls none right or wrong: name one that "
            "does with evaluation.grader, or give evaluation.threshold"
        )


def check_evaluations(settings: RunSettings) -> None:
    """Refuse measurements without problems, at no interval, or judged by a figure that there is none of."""
    dataset = settings.dataset
    holds_out = (dataset.eval_split or dataset.eval_fraction) and dataset.max_eval_samples != 0
    for run in [stage.run for stage in settings.stages] or [settings]:
        grpo = run.training.grpo
        if grpo["eval_strategy"] != "no" and not holds_out:
            raise UserError(
                "training.eval_steps: nothing is held out to measure on: set dataset.eval_split or "
                "dataset.eval_fraction, and dataset.max_eval_samples above 0, or training.eval_steps=null"
            )
        best = grpo.get("metric_for_best_model")
        if best is not None and best.removeprefix("eval_") not in HELD_OUT_FIGURES:
            why = "nothing measures that on held-out problems"
            _require_known("training.metric_for_best_model", best, tuple(HELD_OUT_FIGURES), why)
