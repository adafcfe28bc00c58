"""The prompts of a run as rendered for its model: lengths, template, and who opens the thinking."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import torch
from datasets import Dataset
from rich.console import Console

from rlvr_vocab.config.sections import RewardSettings, RunSettings, TrainingSettings
from rlvr_vocab.data.rows import Messages, conversation_text
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.build import RewardContext
from rlvr_vocab.runs.rewards import answer_warnings, example_forms, format_scores, highest_reward_form, reward_context
from rlvr_vocab.text import pluralize, rows_in_words, short_text
from rlvr_vocab.vocab.expand import ExpansionPlan
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import THINKING, region_of_next
from rlvr_vocab.vocab.tokenizer import begins_answer, chat_ids, chat_texts, prefilled_ids

ThinkingOpener = Literal["template", "model", "nobody"]
_ROWS_CHECKED = 8


def fitting_prompts(
    train: Dataset, plan: ExpansionPlan, training: TrainingSettings, console: Console
) -> tuple[Dataset, list[int]]:
    """Drop prompts longer than `training.max_prompt_length`, and print their number; no prompt is truncated.

    Returns:
        the remaining problems, and the number of tokens of each prompt.

    Raises:
        UserError: a remaining prompt and its completion exceed the model's context.
    """
    lengths = [len(ids) for ids in chat_ids(plan.tokenizer, train["prompt"][:])]
    limit = training.max_prompt_length
    if limit is not None:
        kept = [index for index, length in enumerate(lengths) if length <= limit]
        if len(kept) < len(lengths):
            console.print(
                f"left out {len(lengths) - len(kept)} of {pluralize(len(train), 'problem')} whose prompt is longer "
                f"than training.max_prompt_length={limit}",
                markup=False,
            )
        train, lengths = train.select(kept), [lengths[index] for index in kept]
    context, completion = plan.context_length, training.grpo["max_completion_length"]
    longest = max(lengths, default=0)
    if context is not None and longest + completion > context:
        text = train[lengths.index(longest)]["prompt"][-1]["content"]
        raise UserError(
            f"dataset: a prompt of {longest} tokens ({short_text(text)!r}) and a completion of up to {completion} do "
            f"not fit the model's context of {context}: {limits_that_fit(longest, context, completion)}"
        )
    return train, lengths


def limits_that_fit(longest: int, context: int, completion: int) -> str:
    """The keys to set so that prompts and completions fit the model's context."""
    limits = {"max_completion_length": context - longest, "max_prompt_length": context - completion}
    keys = [f"training.{name}={limit}" for name, limit in limits.items() if limit > 0]
    return f"set {' or '.join(keys)}" if keys else "lower training.max_prompt_length and max_completion_length"


def require_chat_template(plan: ExpansionPlan) -> None:
    """Raises UserError if the tokenizer has no chat template."""
    if plan.tokenizer.chat_template is None:
        raise UserError(
            f"model.name={plan.base}: its tokenizer has no chat template; name a Jinja file with "
            "model.chat_template=FILE, or take the instruction-tuned version of the model"
        )


def print_prompt_warnings(stages: Iterable[tuple[RunSettings, Dataset]], plan: ExpansionPlan, console: Console) -> None:
    """Print warnings on prompts, template and rewards of each stage that may be incompatible, each once."""
    found: list[str] = []
    for settings, train in stages:
        found += [*thinking_warnings(settings, train, plan), *prompt_warnings(train["prompt"][:], plan)]
        found += answer_warnings(settings, train[:_ROWS_CHECKED]["prompt"])
    for line in dict.fromkeys(found):
        console.print(f"warning: {line}", style="yellow", markup=False)


def prompt_warnings(
    prompts: Sequence[Messages], plan: ExpansionPlan, row_numbers: Sequence[int] | None = None
) -> Iterator[str]:
    """A line for each reason why the rendered prompts may be wrong; `row_numbers` are those of their rows."""
    tokenizer, tags = plan.tokenizer, plan.expansion.think_tags
    if not begins_answer(tokenizer, tags):
        yield "the prompt opens no turn for the answer: add one under add_generation_prompt to the chat template"
    for text, prompt in zip(chat_texts(tokenizer, prompts[:_ROWS_CHECKED]), prompts, strict=False):
        left_out = [
            each
            for each in prompt
            if each["role"] != "assistant" and "".join(each["content"].split()) not in "".join(text.split())
        ]
        if left_out:
            message = f"the {left_out[0]['role']}'s message {short_text(left_out[0]['content'])!r}"
            yield f"the chat template leaves out {message}: use another template"
            break
    special = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special} - set(tags)
    pattern = re.compile("|".join(map(re.escape, special)) or r"(?!)")
    matches = [(index, pattern.search(conversation_text(prompt))) for index, prompt in enumerate(prompts)]
    found = {index: match[0] for index, match in matches if match is not None}
    if found:
        problems = pluralize(len(found), "problem holds", "problems hold")
        where = "" if row_numbers is None else f" ({rows_in_words(sorted(row_numbers[index] for index in found))})"
        token = next(iter(found.values()))
        yield f"{problems} special tokens of the model{where}, such as {token}, which end or begin a turn: remove them"


def thinking_warnings(settings: RunSettings, rows: Dataset, plan: ExpansionPlan) -> Iterator[str]:
    """A line for each reason why a stage with reasoning tokens, or an open think tag in its prompt, would not think."""
    opened, closed = settings.model.think_tags
    prompt_ids = chat_ids(plan.tokenizer, rows[:_ROWS_CHECKED]["prompt"])
    openers = [thinking_opener(ids, plan.layout) for ids in prompt_ids]
    if plan.layout.size:
        found = [opening_warning(plan, ids, opener) for ids, opener in zip(prompt_ids, openers, strict=True)]
        shown = settings.warmup.max_steps > 0 and opened in warmup_form(settings, rows)  # with tags that are tokens
        if None not in found and (not shown or "nobody" in openers):
            yield f"model.reasoning_vocab_size: {found[0]}"
    if plan.layout.size or "template" in openers:
        remedy = f"use a format reward that allows thinking, such as think_format, {'or '}"
        remedy += "its tags as model.think_tags" if plan.layout.size else "dataset.open_thinking=model"
        for reward, thinking, plain in format_scores(settings.rewards.functions, reward_context(settings), rows[0]):
            if thinking <= 0 and thinking < plain:
                yield (
                    f"reward {reward.name} gives {thinking:g} to all turns that think between {opened} and {closed}: "
                    f"{remedy}"
                )


def warmup_form(settings: RunSettings, rows: Dataset) -> str:
    """The template of the worked answers of a warm-up, with fields `{reasoning}` and `{answer}`."""
    trial = [dict(row) for row in rows.select(range(min(_ROWS_CHECKED, len(rows))))]
    forms = example_forms(settings.model.think_tags)
    return highest_reward_form(settings.rewards.functions, reward_context(settings), forms, trial)


def asks_to_think(
    prompts: Sequence[Messages], tags: tuple[str, str], rewards: RewardSettings | None = None, row: Any = None
) -> bool:
    """Whether a run without copies should think: a prompt has the opening tag, or a reward favours thinking.

    Args:
        row: a problem to try the rewards on.
    """
    if any(tags[0] in message["content"] for prompt in prompts[:_ROWS_CHECKED] for message in prompt):
        return True
    if rewards is None:
        return False
    return any(thinking > plain for _, thinking, plain in format_scores(rewards.functions, RewardContext(tags), row))


def thinking_opener(prompt_ids: list[int], layout: VocabLayout) -> ThinkingOpener:
    """Who opens the thinking of a completion; "nobody" if the template closes it at once."""
    if region_of_next(torch.tensor([prompt_ids]), layout)[0] == THINKING:
        return "template"
    return "nobody" if layout.think_close_id in prefilled_ids(prompt_ids, layout) else "model"


def opening_warning(plan: ExpansionPlan, prompt_ids: list[int], opener: ThinkingOpener) -> str | None:
    """Why nothing opens the thinking after a prompt, and a remedy; None if something does."""
    tag, layout = plan.expansion.think_tags[0], plan.layout
    if opener == "nobody":
        return "the chat template closes the thinking at once: set another template with model.chat_template"
    is_new = layout.think_open_id in plan.tag_pieces
    mentioned = layout.think_open_id in prompt_ids or tag in str(plan.tokenizer.chat_template)
    if opener == "template" or not (is_new or (layout.size and not mentioned)):
        return None
    why = f"{tag} is new to this model" if is_new else f"no prompt and no template mentions {tag}"
    return f"nothing opens the thinking: {why}; set dataset.open_thinking=prefill"
