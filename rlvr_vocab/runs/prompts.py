"""Which prompts a run can train on: their lengths against the limit and the context of the model, and the batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from datasets import Dataset
from rich.console import Console

from rlvr_vocab.config.batches import completions_together
from rlvr_vocab.config.sections import TrainingSettings
from rlvr_vocab.counted import counted
from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.expand import ExpansionPlan

_SHOWN = 3


def fitting_prompts(
    train: Dataset, plan: ExpansionPlan, training: TrainingSettings, console: Console
) -> tuple[Dataset, list[int]]:
    """Leave out prompts longer than `training.max_prompt_length`, counted and said; none is ever cut.

    Returns:
        the problems that stay, and the tokens of each prompt.

    Raises:
        UserError: there is no chat template to render prompts with, or a prompt that stays does not fit the model's
            context together with its completion.
    """
    require_chat_template(plan)
    lengths = [len(ids) for ids in _prompt_ids(train, plan)]
    limit = training.max_prompt_length
    if limit is not None:
        too_long = [index for index, length in enumerate(lengths) if length > limit]
        if too_long:
            shown = ", ".join(
                f"{lengths[index]} tokens: {train[index]['prompt'][-1]['content'][:60]!r}"
                for index in too_long[:_SHOWN]
            )
            console.print(
                f"left out {len(too_long)} of {counted(len(train), 'problem')} whose prompt is longer than "
                f"training.max_prompt_length={limit}: {shown}",
                markup=False,
            )
        kept = [index for index, length in enumerate(lengths) if length <= limit]
        train, lengths = train.select(kept), [lengths[index] for index in kept]
    _require_context(train, lengths, plan, training)
    return train, lengths


def require_chat_template(plan: ExpansionPlan) -> None:
    """Raises UserError where there is none to render prompts with."""
    if plan.tokenizer.chat_template is None:
        raise UserError(
            f"model.name={plan.base}: its tokenizer has no chat template; name a Jinja file with "
            "model.chat_template=FILE, or take the instruction-tuned version of the model"
        )


def require_a_batch(train: Dataset, training: TrainingSettings) -> None:
    """Refuse a set smaller than one generation batch: the trainer would take no step and report success."""
    have, needed, group = len(train), _problems_in_a_batch(training), training.grpo["num_generations"]
    if have < needed:
        raise UserError(
            f"dataset: {counted(have, 'usable problem is', 'usable problems are')} fewer than one batch, which takes "
            f"{needed} ({needed * group} completions, {group} for each problem): add problems, or take a smaller "
            "training.per_device_train_batch_size or training.steps_per_generation"
        )


def _problems_in_a_batch(training: TrainingSettings) -> int:
    at_once, steps = completions_together(training.grpo)
    return at_once * steps // training.grpo["num_generations"]


def _prompt_ids(train: Dataset, plan: ExpansionPlan) -> list[list[int]]:
    return plan.tokenizer.apply_chat_template(list(train["prompt"]), add_generation_prompt=True, return_dict=False)


def _require_context(train: Dataset, lengths: list[int], plan: ExpansionPlan, training: TrainingSettings) -> None:
    if plan.context_length is None or not lengths:
        return
    longest, max_completion = max(range(len(lengths)), key=lengths.__getitem__), training.grpo["max_completion_length"]
    if lengths[longest] + max_completion > plan.context_length:
        least = _problems_in_a_batch(training)
        raise UserError(
            f"dataset: a prompt of {lengths[longest]} tokens ({train[longest]['prompt'][-1]['content'][:60]!r}…) and a "
            f"completion of up to {max_completion} do not fit the model's context of {plan.context_length}: "
            f"{limits_that_fit(Counter(lengths), plan.context_length, max_completion, least)}"
        )


def limits_that_fit(counts: Mapping[int, int], context: int, max_completion: int, least: int = 1) -> str:
    """The keys to set so that prompts and completions fit the model's context.

    Args:
        counts: Length -> number of prompts of that length.
        least: A limit on prompts has to keep so many of them.
    """
    advice, shortest, longest = [], min(counts), max(counts)
    if longest < context:
        advice.append(f"training.max_completion_length={context - longest}")
    # Where no prompt fits beside such a completion, both have to give way.
    half = max(context // 2, shortest)
    for limit, words in ((context - max_completion, ""), (half, f" training.max_completion_length={context - half}")):
        kept, total = sum(count for length, count in counts.items() if length <= limit), sum(counts.values())
        if limit < context and kept >= least and not (words and advice):
            advice.append(
                f"training.max_prompt_length={limit}{words}, which leaves out {total - kept} of {total} prompts"
            )
    return f"set {', or '.join(advice)}" if advice else "take a model with a longer context"
