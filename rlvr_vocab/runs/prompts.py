"""Which prompts a run can train on: their lengths against the limit and the context of the model, and the batch."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from datasets import Dataset
from rich.console import Console

from rlvr_vocab.config.sections import TrainingSettings
from rlvr_vocab.config.trl_fields import completions_together
from rlvr_vocab.data.rows import Messages, conversation_text
from rlvr_vocab.errors import UserError
from rlvr_vocab.text import pluralize, rows_in_words, short_text
from rlvr_vocab.vocab.chat import begins_answer
from rlvr_vocab.vocab.chat_template import chat_ids, chat_texts
from rlvr_vocab.vocab.expand import ExpansionPlan

_SHOWN, _LOOKED_AT = 3, 8


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
    lengths = [len(ids) for ids in chat_ids(plan.tokenizer, train["prompt"][:])]
    limit = training.max_prompt_length
    if limit is not None:
        too_long = [index for index, length in enumerate(lengths) if length > limit]
        if too_long:
            shown = ", ".join(
                f"{lengths[index]} tokens: {train[index]['prompt'][-1]['content'][:60]!r}"
                for index in too_long[:_SHOWN]
            )
            console.print(
                f"left out {len(too_long)} of {pluralize(len(train), 'problem')} whose prompt is longer than "
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


def prompt_warnings(
    prompts: Sequence[Messages], plan: ExpansionPlan, row_numbers: Sequence[int] | None = None
) -> Iterator[str]:
    """Why prompts may not reach the model as they are meant, a line each; `row_numbers` are those of their rows."""
    tokenizer, tags = plan.tokenizer, plan.expansion.think_tags
    if not begins_answer(tokenizer, tags):
        yield "the prompt has no turn for the answer: add one under add_generation_prompt to the chat template"
    texts = ["".join(text.split()) for text in chat_texts(tokenizer, prompts[:_LOOKED_AT])]
    messages = [(text, each) for text, prompt in zip(texts, prompts, strict=False) for each in prompt]
    for text, each in messages:
        if each["role"] != "assistant" and "".join(each["content"].split()) not in text:
            message = short_text(each["content"])
            yield f"the chat template leaves out the {each['role']}'s message {message!r}: take another template"
            break
    special = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special} - set(tags)
    pattern = re.compile("|".join(map(re.escape, special)) or r"(?!)")
    found = {
        index: match[0]
        for index, prompt in enumerate(prompts)
        if (match := pattern.search(conversation_text(prompt))) is not None
    }
    if found:
        problems = pluralize(len(found), "problem holds", "problems hold")
        where = "" if row_numbers is None else f" ({rows_in_words(sorted(row_numbers[index] for index in found))})"
        token = next(iter(found.values()))
        yield f"{problems} special tokens of the model{where}, as {token}, which end or begin a turn: take them out"


def require_a_batch(train: Dataset, training: TrainingSettings) -> None:
    """Refuse a set smaller than one generation batch: the trainer would take no step and report success."""
    have, needed, group = len(train), _problems_in_a_batch(training), training.grpo["num_generations"]
    if have < needed:
        raise UserError(
            f"dataset: {pluralize(have, 'usable problem is', 'usable problems are')} fewer than one batch, which takes "
            f"{needed} ({needed * group} completions, {group} for each problem): add problems, or take a smaller "
            "training.per_device_train_batch_size or training.steps_per_generation"
        )


def _problems_in_a_batch(training: TrainingSettings) -> int:
    at_once, steps = completions_together(training.grpo)
    return at_once * steps // training.grpo["num_generations"]


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
