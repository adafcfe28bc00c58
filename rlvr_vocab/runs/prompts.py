"""Prompts as the model will see them: too long for the limit, too long for the model, too few for a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from datasets import Dataset
from jinja2 import TemplateError
from rich.console import Console

from rlvr_vocab.config.batches import completions_together, smaller_batch
from rlvr_vocab.config.command_sections import CheckSettings
from rlvr_vocab.config.sections import ModelSettings, TrainingSettings
from rlvr_vocab.counted import counted
from rlvr_vocab.errors import UserError
from rlvr_vocab.runs.base_model import planned, tiny_model
from rlvr_vocab.runs.prompt_facts import PromptFacts, ThinkingOpener, length_facts, limits_that_fit
from rlvr_vocab.terminal import quiet_libraries
from rlvr_vocab.vocab.chat import prefilled_ids
from rlvr_vocab.vocab.expand import ExpansionPlan
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import THINKING, region_of_next

_SHOWN = 3


def fitting_prompts(
    train: Dataset, plan: ExpansionPlan, training: TrainingSettings, console: Console
) -> tuple[Dataset, int]:
    """Leave out prompts longer than `training.max_prompt_length`, counted and said; none is ever cut.

    Returns:
        the problems that stay, and the tokens of their longest prompt.

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
    return train, max(lengths, default=0)


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
        smaller = smaller_batch(training.grpo, have) if have else ""
        raise UserError(
            f"dataset: {counted(have, 'usable problem is', 'usable problems are')} fewer than one batch, which takes "
            f"{needed} ({needed * group} completions, {group} for each problem): add problems"
            f"{f', or set {smaller}' if smaller else ''}"
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


Messages = list[dict[str, str]]
_AT_ONCE = 256


def prompt_plan(model: ModelSettings, settings: CheckSettings) -> ExpansionPlan:
    """What training would render its prompts with.

    Raises:
        UserError: the model cannot be had, or its tokenizer has no chat template.
    """
    quiet_libraries()
    base = model.name
    if model.tiny is not None:
        base = str(tiny_model(model, settings.dataset.system_prompt, settings.seed))
    plan = planned(base, model, settings.seed, settings.dataset.open_thinking)
    require_chat_template(plan)
    return plan


def prompt_facts(
    model: ModelSettings,
    plan: ExpansionPlan,
    prompts: Sequence[Messages],
    row_number: int,
    on_progress: Callable[[int, int], None],
) -> PromptFacts:
    """Render and count all prompts, and show the first one, which is of row `row_number`."""
    lengths = []
    for ids in _rendered(model, plan, prompts):
        lengths.append(len(ids))
        if len(lengths) % _AT_ONCE == 0 or len(lengths) == len(prompts):
            on_progress(len(lengths), len(prompts))
    [first_ids] = _ids(model, plan, prompts[:1])
    return PromptFacts(
        model=model.name,
        text=plan.tokenizer.apply_chat_template(prompts[0], add_generation_prompt=True, tokenize=False),
        tokens=len(first_ids),
        row_number=row_number,
        opener=thinking_opener(first_ids, plan.layout),
        think_tag=model.think_tags[0],
        knows_tag=plan.layout.think_open_id not in plan.tag_pieces,
        context_length=plan.context_length,
        max_completion=model.generation_kwargs["max_new_tokens"],
        embedded_model=model.tiny is not None,
        lengths=length_facts(lengths),
    )


def thinking_opener(prompt_ids: list[int], layout: VocabLayout) -> ThinkingOpener:
    """Who opens the thinking of a completion to this prompt."""
    if region_of_next(torch.tensor([prompt_ids]), layout)[0] == THINKING:
        return "template"
    return "nobody" if layout.think_close_id in prefilled_ids(prompt_ids, layout) else "model"


def _rendered(model: ModelSettings, plan: ExpansionPlan, prompts: Sequence[Messages]) -> Iterator[list[int]]:
    for start in range(0, len(prompts), _AT_ONCE):
        yield from _ids(model, plan, prompts[start : start + _AT_ONCE])


def _ids(model: ModelSettings, plan: ExpansionPlan, prompts: Sequence[Messages]) -> list[list[int]]:
    arguments: dict[str, Any] = {"add_generation_prompt": True, "return_dict": False}
    try:
        return plan.tokenizer.apply_chat_template(list(prompts), **arguments)
    except TemplateError as error:
        raise UserError(
            f"model.name={model.name}: its chat template refuses these prompts: {error}; a template that knows no "
            "system message needs dataset.system_prompt=null"
        ) from error
