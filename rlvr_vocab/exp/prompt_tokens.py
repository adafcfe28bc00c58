"""Prompts rendered and counted with a model's own tokenizer; reads no weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from jinja2 import TemplateError

from rlvr_vocab.errors import UserError
from rlvr_vocab.exp.base_model import tiny_model
from rlvr_vocab.exp.model_wiring import planned
from rlvr_vocab.exp.prompt_facts import PromptFacts, ThinkingOpener, length_facts
from rlvr_vocab.exp.prompt_lengths import require_chat_template
from rlvr_vocab.exp.quiet import quiet_libraries
from rlvr_vocab.exp.typed_sections import CheckSettings, ModelSettings
from rlvr_vocab.vocab.chat import prefilled_ids
from rlvr_vocab.vocab.expand import ExpansionPlan
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import THINKING, region_of_next

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
