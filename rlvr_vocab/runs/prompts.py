"""The prompts of a run as its model reads them: their lengths, their template, and who opens the thinking."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Literal

import torch
from datasets import Dataset
from rich.console import Console

from rlvr_vocab.config.sections import RewardSettings, RunSettings, TrainingSettings
from rlvr_vocab.config.trl_fields import completions_together
from rlvr_vocab.data.rows import Messages, conversation_text
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.build import Reward, RewardContext, build_rewards
from rlvr_vocab.rewards.grader import is_form
from rlvr_vocab.rewards.guard import trial_columns
from rlvr_vocab.rewards.reward import traits_of
from rlvr_vocab.rewards.turns import THINK_TAGS
from rlvr_vocab.runs.rewards import answer_warnings, dummy_context, highest_reward_template, reward_context
from rlvr_vocab.text import pluralize, rows_in_words, short_text
from rlvr_vocab.vocab.chat import begins_answer, chat_ids, chat_texts, prefilled_ids
from rlvr_vocab.vocab.expand import ExpansionPlan
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import THINKING, region_of_next

ThinkingOpener = Literal["template", "model", "nobody"]
Tags = tuple[str, str]

_SHOWN, _ROWS_CHECKED = 3, 8


def fitting_prompts(
    train: Dataset, plan: ExpansionPlan, training: TrainingSettings, console: Console
) -> tuple[Dataset, list[int]]:
    """Leave out prompts longer than `training.max_prompt_length`, and print their number; none is ever cut.

    Returns:
        the problems that stay, and the tokens of each prompt.

    Raises:
        UserError: a prompt that stays does not fit the model's context together with its completion.
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
        counts: length -> number of prompts of that length.
        least: prompts that a limit on their length has to keep.
    """
    shortest, longest, total = min(counts), max(counts), sum(counts.values())
    advice = [f"training.max_completion_length={context - longest}"] if longest < context else []
    half = max(context // 2, shortest)
    for limit, more in ((context - max_completion, ""), (half, f" training.max_completion_length={context - half}")):
        if more and advice:  # both give way only where no prompt fits beside such a completion
            break
        kept = sum(count for length, count in counts.items() if length <= limit)
        if limit < context and kept >= least:
            left_out = f"which leaves out {total - kept} of {total} prompts"
            advice.append(f"training.max_prompt_length={limit}{more}, {left_out}")
    return f"set {', or '.join(advice)}" if advice else "take a model with a longer context"


def print_prompt_warnings(stages: Iterable[tuple[RunSettings, Dataset]], plan: ExpansionPlan, console: Console) -> None:
    """Print why prompts, template and rewards of each stage may not go together, each warning once."""
    found = [
        line
        for settings, train in stages
        for line in (
            *thinking_warnings(settings, train, plan),
            *prompt_warnings(train["prompt"][:], plan),
            *answer_warnings(settings, train[:_ROWS_CHECKED]["prompt"]),
        )
    ]
    for line in dict.fromkeys(found):
        console.print(f"warning: {line}", style="yellow", markup=False)


def prompt_warnings(
    prompts: Sequence[Messages], plan: ExpansionPlan, row_numbers: Sequence[int] | None = None
) -> Iterator[str]:
    """Why prompts may not reach the model as they are meant, a line each; `row_numbers` are those of their rows."""
    tokenizer, tags = plan.tokenizer, plan.expansion.think_tags
    if not begins_answer(tokenizer, tags):
        yield "the prompt has no turn for the answer: add one under add_generation_prompt to the chat template"
    texts = ["".join(text.split()) for text in chat_texts(tokenizer, prompts[:_ROWS_CHECKED])]
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


def thinking_warnings(settings: RunSettings, rows: Dataset, plan: ExpansionPlan) -> Iterator[str]:
    """Why a stage with reasoning tokens, or with an open think tag in its prompt, would not think, a line each."""
    prompt_ids = chat_ids(plan.tokenizer, rows[:_ROWS_CHECKED]["prompt"])
    openers = [thinking_opener(ids, plan.layout) for ids in prompt_ids]
    if plan.layout.size:
        shown = settings.warmup.max_steps > 0 and settings.model.think_tags[0] in highest_reward_template(
            settings, rows
        )
        found = [opening_warning(plan, ids, opener, shown) for ids, opener in zip(prompt_ids, openers, strict=True)]
        if None not in found:
            yield f"model.reasoning_vocab_size: {found[0]}"
    if plan.layout.size or "template" in openers:
        for reward in _format_rewards(settings.rewards, dummy_context(reward_context(settings))):
            yield from _format_warning(reward, rows[0], settings.model.think_tags, copies=plan.layout.size > 0)


def asks_to_think(prompts: Sequence[Messages], tags: Tags, rewards: RewardSettings | None, row: Any) -> bool:
    """Whether a run without copies is to think: a prompt names the opening tag, or a reward pays for its thinking.

    Args:
        rewards: None where there are none to look at.
        row: a problem to try them on.
    """
    if any(tags[0] in message["content"] for prompt in prompts[:_ROWS_CHECKED] for message in prompt):
        return True
    for reward in _format_rewards(rewards, dummy_context(RewardContext(tags))) if rewards is not None else ():
        (thinking, _), (plain, _) = (_highest(reward, row, _turns(each)) for each in (tags, None))
        if thinking is not None and plain is not None and thinking > plain:
            return True
    return False


def thinking_opener(prompt_ids: list[int], layout: VocabLayout) -> ThinkingOpener:
    """Who opens the thinking of a completion; nobody where the template closes it at once."""
    if region_of_next(torch.tensor([prompt_ids]), layout)[0] == THINKING:
        return "template"
    return "nobody" if layout.think_close_id in prefilled_ids(prompt_ids, layout) else "model"


def opening_warning(
    plan: ExpansionPlan, prompt_ids: list[int], opener: ThinkingOpener, shown: bool = False
) -> str | None:
    """Why the thinking would not be opened after a prompt, and a remedy; None where something opens it.

    Args:
        shown: whether a warm-up shows the model how to, which makes its tags tokens first.
    """
    tag = plan.expansion.think_tags[0]
    if opener == "nobody":
        return "the chat template closes the thinking before the model can think: take another with model.chat_template"
    if opener == "template" or shown:
        return None
    in_prompt = plan.layout.think_open_id in prompt_ids
    if plan.layout.think_open_id in plan.tag_pieces:
        seen = "has seen it in the prompt alone" if in_prompt else "never meets it: it will never think"
        return f"nobody opens the thinking: {tag} is new to this model, which {seen}; set dataset.open_thinking=prefill"
    if in_prompt or tag in str(plan.tokenizer.chat_template) or not plan.layout.size:
        return None
    return (
        f"nothing tells the model to think: system prompt, examples and chat template do not mention {tag}; name it in "
        "dataset.system_prompt, or set dataset.open_thinking=prefill"
    )


# Tags that format rewards of the library and of guides look for, and answers in their forms.
_XML_TAGS = ("<reasoning>", "</reasoning>")
_ANSWERS = ("\\boxed{42}", "<answer>42</answer>", "<answer>\n42\n</answer>\n", "42")


def _format_rewards(rewards: RewardSettings, context: RewardContext) -> Iterator[Reward]:
    """Those that score the form of a turn, and may be tried."""
    for spec, reward in zip(rewards.functions, build_rewards(rewards.functions, context), strict=True):
        if is_form(spec) and traits_of(reward.function).dry_run and reward.weight > 0:
            yield reward


def _format_warning(reward: Reward, row: dict[str, Any], tags: Tags, *, copies: bool) -> Iterator[str]:
    """A line where a format reward pays nothing for any turn that thinks, and more for one that does not."""
    others: list[Tags | None] = [None, *(each for each in (THINK_TAGS, _XML_TAGS) if each != tags)]
    plain = [(each, turn) for each in others for turn in _turns(each)]
    most_plain, first = _highest(reward, row, [turn for _, turn in plain])
    most_thinking, _ = _highest(
        reward, row, [*_turns(tags), *(block + turn for block in _blocks(tags) for _, turn in plain)]
    )
    if most_plain is None or most_thinking is None or most_thinking > 0 or most_thinking >= most_plain:
        return
    wanted = plain[first][0]
    remedy = "take a format reward that lets a turn think, such as think_format"
    if not copies:
        remedy = "set dataset.open_thinking=model, or " + remedy
    elif wanted is not None:
        remedy = f"set model.think_tags=[{','.join(wanted)}], which it wants, or {remedy}"
    yield f"reward {reward.name} gives {most_thinking:g} to any turn that thinks between {' and '.join(tags)}: {remedy}"


def _highest(reward: Reward, row: dict[str, Any], turns: Sequence[str]) -> tuple[float | None, int]:
    """The highest score of any turn, and the first turn that has it; None where no turn has a score."""
    completions = [[{"role": "assistant", "content": turn}] for turn in turns]
    scores = [score.value for score in reward.explain(**trial_columns([row] * len(turns), completions))]
    scored = [score for score in scores if score is not None]
    return (max(scored), scores.index(max(scored))) if scored else (None, 0)


def _turns(tags: Tags | None) -> list[str]:
    """Turns in good form, on lines and on one line, with their working between the tags."""
    return [block + answer for block, answer in product(_blocks(tags), _ANSWERS)]


def _blocks(tags: Tags | None) -> list[str]:
    if tags is None:
        return [""]
    opened, closed = tags
    return [f"{opened}\nWork it out.\n{closed}\n", f"{opened}Work it out.{closed}"]
