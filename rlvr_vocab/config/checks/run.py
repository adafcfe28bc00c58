"""What can be refused before torch is imported: one clear line each, nothing written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rlvr_vocab.config.checks.machine import check_attention_precision, check_vllm, check_wandb_login
from rlvr_vocab.config.checks.model import (
    check_kernels,
    check_model,
    check_optimizer,
    check_rollouts,
    check_trained_model,
)
from rlvr_vocab.config.sections import (
    DatasetSettings,
    RewardSettings,
    RunSettings,
    StageSettings,
    UntilSettings,
    problem_source,
    prompt_style,
    stage_error_context,
)
from rlvr_vocab.config.trl_fields import completions_together
from rlvr_vocab.data.load import check_source
from rlvr_vocab.data.reasoning_gym.tasks import without_worked_solutions
from rlvr_vocab.data.reasoning_gym.worked_solutions import WORKED
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.metrics import HELD_OUT_FIGURES
from rlvr_vocab.rewards.build import RewardContext, build_rewards, required_columns
from rlvr_vocab.rewards.grader import Grader
from rlvr_vocab.runs.folder import check_run_folder
from rlvr_vocab.runs.rewards import GOLD_COLUMNS, NAME_GOLD_ANSWERS, dummy_context, grader_of_run, solved_by
from rlvr_vocab.text import did_you_mean
from rlvr_vocab.vocab.refuse_off_policy import OF_TRANSFORMERS, OF_VLLM, refuse_off_policy, refuse_off_policy_options

# What `until` of a stage may look at; docs/files.md says what each is.
LOGGED_METRICS = (
    *("reward", "reward_std", "frac_reward_zero_std", "loss", "grad_norm", "learning_rate", "entropy", "kl", "kl/ids"),
    *("completions/mean_length", "completions/min_length", "completions/max_length", "completions/clipped_ratio"),
    *("completions/mean_terminated_length", "thinking/mean_length", "thinking/closed", "thinking/reasoning_share"),
    *("answering/mean_length", "num_tokens", "step_time"),
    *("entropy/text", "entropy/thinking", "entropy/answering", "entropy/copies"),
    *("sampling/entropy/text", "sampling/entropy/thinking", "sampling/entropy/answering", "sampling/entropy/copies"),
    *("hidden/capacity", "hidden/bound", "hidden/bound_per_thought"),
    *("groups/reward_std", "completions/duplicates", "completions/shared", "sampling/logp_gap", "weights/moved"),
    *("reward/sampled", "dynamic/rounds"),
)
EVAL = "eval/"
REWARD_FIGURES = ("mean", "std", "weight", "failures")


def check_run(settings: RunSettings) -> None:
    """Refuses a training run that cannot work.

    Raises:
        UserError: the first thing that is wrong.
    """
    check_model(settings.model)
    check_configuration(settings)
    check_files(settings)
    for stage in settings.stages:
        check_stage(stage)
    check_grader(settings)
    check_evaluations(settings)
    check_wandb_login(settings.logging)
    check_run_folder(settings)


def check_configuration(settings: RunSettings) -> None:
    """What its values alone tell: nothing is looked for, and no code of the user's is loaded."""
    check_trained_model(settings.model)
    check_warmup(settings)
    check_training(settings)


def check_files(settings: RunSettings) -> None:
    check_dataset(settings.dataset)
    check_rewards(settings.rewards)
    if not settings.stages:  # each of which is looked at by itself
        check_gold_answers(settings.rewards, settings.dataset)


def check_training(settings: RunSettings) -> None:
    """What each stage of a run may set otherwise."""
    reasoning = settings.model.adds_copies
    check_sampling(settings, reasoning)
    check_curriculum(settings)
    check_batches(settings.training.grpo)
    check_loss(settings.training.grpo)
    check_resumable(settings.training.grpo, staged=bool(settings.resolved["stages"]))
    check_rollouts(settings.model, settings.training.grpo)
    check_vllm(settings.training.grpo)
    check_optimizer(settings.training.grpo)
    check_kernels(settings.training.grpo)
    check_attention_precision(
        settings.model.model_kwargs.get("attn_implementation"), settings.model.loaded_dtype, settings.training.grpo
    )


def check_stage(stage: StageSettings) -> None:
    with stage_error_context(stage.name):
        check_training(stage.run)
        check_files(stage.run)
        tokens = stage.run.training.max_tokens
        if stage.until is not None and tokens is not None:
            raise UserError(f"until and training.max_tokens={tokens}: a stage ends by one of the two")
        if stage.until is not None:
            check_until(stage.until, stage.run)


def check_until(until: UntilSettings, settings: RunSettings) -> None:
    if (until.above is None) == (until.below is None):
        raise UserError("until: give either above or below, as a number")
    rewards = [reward.name for reward in build_rewards(settings.rewards.functions, RewardContext())]
    known = [*LOGGED_METRICS, *(f"rewards/{name}/{figure}" for name in rewards for figure in REWARD_FIGURES)]
    if settings.training.grpo.get("eval_steps") is not None:
        known += [f"{EVAL}{name}" for name in HELD_OUT_FIGURES]
    elif until.metric.removeprefix(EVAL) in HELD_OUT_FIGURES and until.metric.startswith(EVAL):
        raise UserError(f"until.metric={until.metric}: held-out problems are measured with training.eval_steps=N alone")
    if until.metric not in known:
        near = did_you_mean(until.metric, known) or f"; there are {', '.join(known)}"
        raise UserError(f"until.metric={until.metric}: no step logs that{near}")


_MOST_ADVISED = 64  # a group of more completions than that is nobody's wish


def check_batches(grpo: Mapping[str, Any], processes: int | None = None) -> None:
    """Refuses batches that GRPOConfig refuses, before a model is loaded, with numbers that would work.

    Args:
        processes: that train together; None: those that a launcher has begun.
    """
    at_once, steps = completions_together(grpo, processes)
    group, batch = grpo["num_generations"], grpo["generation_batch_size"]
    if grpo["steps_per_generation"] is not None and batch is not None:
        raise UserError("training.steps_per_generation and training.generation_batch_size: set one of them")
    if grpo.get("auto_find_batch_size"):
        raise UserError("training.auto_find_batch_size=true: a smaller batch would split groups; set the batch size")
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


# Losses that add up over the tokens of a batch, so that a completion counts by its length.
_OF_TOKENS = ("bnpo", "cispo", "dapo", "dr_grpo")


def check_loss(grpo: Mapping[str, Any]) -> None:
    """Refuse importance ratios that a loss is not made for: TRL trains with most of them, and warns.

    Raises:
        UserError: naming both keys, and what the paper of the loss has.
    """
    loss, level = grpo["loss_type"], grpo["importance_sampling_level"]
    key, beside = f"training.loss_type={loss}", f"training.importance_sampling_level={level}"
    highest = grpo.get("epsilon_high")
    if loss == "cispo" and (highest is None or highest < 1):
        raise UserError(
            f"{key} with training.epsilon_high={'null' if highest is None else highest}: there it is the largest "
            "importance ratio itself, and would weigh every token down; set training.epsilon_high=5.0"
        )
    if loss in _OF_TOKENS and level == "sequence":
        raise UserError(
            f"{beside} with {key}, in which a completion counts by its length: such a ratio wants a mean over "
            "completions; set training.loss_type=grpo (training=gspo)"
        )
    if loss == "luspo" and level == "token":
        raise UserError(f"{key} with {beside}: it is made for ratios of completions; set sequence")
    if loss == "vespo" and level == "sequence":
        raise UserError(f"{key} with {beside}: it weighs whole completions by itself; set token")
    corrected = grpo.get("use_vllm") and grpo["vllm_importance_sampling_correction"]
    mode = grpo["vllm_importance_sampling_mode"]
    if loss == "vespo" and corrected and not mode.startswith("token"):
        raise UserError(
            f"{key} with training.vllm_importance_sampling_mode={mode}: it takes vLLM's ratios by token; set "
            "token_truncate or token_mask"
        )


def check_dataset(dataset: DatasetSettings) -> None:
    check_source(problem_source(dataset), prompt_style(dataset))


def check_curriculum(settings: RunSettings) -> None:
    if settings.dataset.curriculum.skip_solved is not None and solved_by(settings) is None:
        raise UserError(
            "dataset.curriculum.skip_solved: no reward of this run tells right from wrong; add one that does to "
            "rewards, with weight 0 if it is not to count"
        )


def check_warmup(settings: RunSettings) -> None:
    if settings.warmup.max_steps and settings.dataset.columns.answer is None:
        raise UserError(
            "warmup.max_steps needs worked solutions and gold answers, and dataset.columns.answer=null says that there "
            "are none: set warmup.max_steps=0"
        )
    missing = without_worked_solutions(settings.dataset.tasks or ())
    if settings.warmup.max_steps and missing:
        embedded = "the embedded model cannot start without them: " if settings.model.tiny is not None else ""
        raise UserError(
            f"dataset.tasks: there are no worked solutions of {missing[0]} for a warm-up, only of {', '.join(WORKED)}: "
            f"{embedded}it wants a pretrained model, as in model=qwen3_0.6b warmup.max_steps=0"
        )
    if settings.warmup.max_steps and settings.dataset.columns.reasoning is None:
        raise UserError(
            "warmup.max_steps needs worked solutions: name their column with dataset.columns.reasoning, "
            "or set warmup.max_steps=0"
        )


def check_rewards(rewards: RewardSettings) -> None:
    """Every function is there, takes its parameters and has a weight; user code is loaded."""
    if not rewards.functions:
        raise UserError("rewards.functions is empty: give at least one, e.g. rewards=accuracy")
    for reward in build_rewards(rewards.functions, dummy_context(RewardContext())):
        reward.check_parameters()


def check_grader(settings: RunSettings) -> None:
    """What grades held-out answers is there, and what looks at accuracy has right and wrong answers to look at."""
    spec = grader_of_run(settings)
    Grader(spec, dummy_context(RewardContext())).check_parameters()
    check_gold_answers(RewardSettings(spec.functions), settings.dataset)
    if spec.threshold is not None:
        return
    runs = [stage.run for stage in settings.stages] or [settings]
    best = any(run.training.grpo.get("metric_for_best_model") in ("accuracy", "eval_accuracy") for run in runs)
    wanted = (
        ("training.metric_for_best_model=accuracy", best),
        (f"until.metric={EVAL}accuracy", any(_looks_at(stage, f"{EVAL}accuracy") for stage in settings.stages)),
    )
    for key, asked in wanted:
        if asked:
            raise UserError(
                f"{key}: held-out answers are graded by {spec.name}, which calls none right or wrong: name one that "
                "does with evaluation.grader, or give evaluation.threshold"
            )


def _looks_at(stage: StageSettings, metric: str) -> bool:
    return stage.until is not None and stage.until.metric == metric


def check_gold_answers(rewards: RewardSettings, dataset: DatasetSettings) -> None:
    """Refuse rewards that cannot do without gold answers where the problem set is said to have none."""
    for spec in rewards.functions if dataset.columns.answer is None else ():
        if any(column in GOLD_COLUMNS for column in required_columns(spec)):
            raise UserError(
                f"reward {spec.name} needs gold answers, and dataset.columns.answer=null says that there are none: "
                f"{NAME_GOLD_ANSWERS}, or take another reward"
            )


def check_sampling(settings: RunSettings, reasoning: bool) -> None:
    """The sampler must draw from the distribution that is trained: no truncation, no penalties."""
    grpo, options = settings.training.grpo, settings.model.generation_kwargs
    known = (*OF_VLLM, "max_new_tokens") if grpo.get("use_vllm") else OF_TRANSFORMERS
    refuse_off_policy_options(options, grpo, known, "model.generation_kwargs.", "training.")
    refuse_off_policy(grpo, reasoning=reasoning, key="training.")


# (field, its value, what to do instead and why)
REFUSED: tuple[tuple[str, Any, str], ...] = (
    ("sync_ref_model", True, "the moved reference lies in no checkpoint; leave it out"),
    ("ignore_data_skip", True, "a resumed run would be given its first problems again; leave it out"),
    ("enable_jit_checkpoint", True, "a run saves at signals by itself; leave it out"),
    (
        "logging_strategy",
        "epoch",
        "a resume would lose or double the row of an epoch's end; set logging_steps",
    ),
    ("eval_strategy", "epoch", "a resume would lose or double what is measured at an epoch's end; set steps"),
    ("eval_on_start", True, "every run is measured before it trains, in evaluation/before.jsonl; leave it out"),
    ("save_strategy", "best", "a signal would save nothing; set steps, and training.load_best_model_at_end=true"),
)


def check_resumable(grpo: Mapping[str, Any], *, staged: bool) -> None:
    """Refuse what would be lost or doubled by an interruption.

    Raises:
        UserError: naming the field and what to do instead.
    """
    for field, value, why in REFUSED:
        if grpo.get(field) == value:
            raise UserError(f"training.{field}={str(value).lower() if value is True else value}: {why}")
    looks_for_the_best = grpo.get("load_best_model_at_end") or grpo.get("metric_for_best_model")
    if looks_for_the_best and grpo.get("save_total_limit") == 1:
        raise UserError(
            "training.save_total_limit=1 keeps the best checkpoint and not the last, which a resume needs: at least 2"
        )
    if grpo.get("load_best_model_at_end") and staged:
        raise UserError("training.load_best_model_at_end: a stage begins where the one before ended; leave it out")


def check_evaluations(settings: RunSettings) -> None:
    """Refuse measurements without problems, at no interval, or judged by a figure that there is none of.

    Raises:
        UserError: naming the key.
    """
    for run in [stage.run for stage in settings.stages] or [settings]:
        grpo = run.training.grpo
        interval = grpo.get("eval_steps")
        if interval is not None and not interval > 0:
            raise UserError(f"training.eval_steps={interval}: must be above 0; null measures at the end alone")
        if grpo.get("eval_strategy", "no") != "no" and not _holds_out(settings.dataset):
            raise UserError(
                "training.eval_steps: nothing is held out to measure on: set dataset.eval_split or "
                "dataset.eval_fraction, and dataset.max_eval_samples above 0, or training.eval_steps=null"
            )
        _check_best(grpo)


def _holds_out(dataset: DatasetSettings) -> bool:
    return bool(dataset.eval_split or dataset.eval_fraction) and dataset.max_eval_samples != 0


def _check_best(grpo: Mapping[str, Any]) -> None:
    metric = grpo.get("metric_for_best_model")
    if metric is not None and metric.removeprefix("eval_") not in HELD_OUT_FIGURES:
        near = did_you_mean(metric, HELD_OUT_FIGURES) or f"; there are {', '.join(HELD_OUT_FIGURES)}"
        raise UserError(f"training.metric_for_best_model={metric}: nothing measures that on held-out problems{near}")
