"""Whether a run can think: who opens the thinking, and whether its format rewards take a turn that thinks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Literal

import torch

from rlvr_vocab.config.sections import RewardSettings, RunSettings
from rlvr_vocab.data.rows import Messages
from rlvr_vocab.rewards.build import Reward, RewardContext, build_rewards
from rlvr_vocab.rewards.dry_run import trial_columns
from rlvr_vocab.rewards.grader import is_form
from rlvr_vocab.rewards.reward import traits_of
from rlvr_vocab.rewards.turns import THINK_TAGS
from rlvr_vocab.runs.rewards import highest_reward_template, reward_context, stand_in_context
from rlvr_vocab.runs.stages import Stage
from rlvr_vocab.vocab.chat import prefilled_ids
from rlvr_vocab.vocab.chat_template import chat_ids
from rlvr_vocab.vocab.expand import ExpansionPlan
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import THINKING, region_of_next

ThinkingOpener = Literal["template", "model", "nobody"]
Tags = tuple[str, str]

_PROMPTS = 8
# What format rewards of the library and of guides look for.
_XML_TAGS = ("<reasoning>", "</reasoning>")
_ANSWERS = ("\\boxed{42}", "<answer>42</answer>", "<answer>\n42\n</answer>\n", "42")


def thinking_warnings(stages: Sequence[Stage], plan: ExpansionPlan) -> list[str]:
    """What would keep the model of a run from thinking although it is to think, a line each with what to do.

    It is to think where it has reasoning tokens, or where the prompt ends inside an open think tag.
    """
    return list(dict.fromkeys(line for stage in stages for line in _doubts(stage.settings, stage.train, plan)))


def _doubts(settings: RunSettings, rows: Any, plan: ExpansionPlan) -> Iterator[str]:
    prompts = [rows[index]["prompt"] for index in range(min(_PROMPTS, len(rows)))]
    prompt_ids = chat_ids(plan.tokenizer, prompts)
    openers = [thinking_opener(ids, plan.layout) for ids in prompt_ids]
    if plan.layout.size:
        told = settings.warmup.max_steps > 0 and settings.model.think_tags[0] in highest_reward_template(settings, rows)
        found = [opening_warning(plan, ids, opener, told) for ids, opener in zip(prompt_ids, openers, strict=True)]
        if None not in found:
            yield f"model.reasoning_vocab_size: {found[0]}"
    if plan.layout.size or "template" in openers:
        for reward in _format_rewards(settings.rewards, stand_in_context(reward_context(settings))):
            yield from _format_doubt(reward, rows[0], settings.model.think_tags, copies=plan.layout.size > 0)


def asks_to_think(prompts: Sequence[Messages], tags: Tags, rewards: RewardSettings | None, row: Any) -> bool:
    """Whether a run without copies is to think: a prompt names the opening tag, or a reward pays for its thinking.

    Args:
        rewards: None where there are none to look at.
        row: a problem to try them on.
    """
    if any(tags[0] in message["content"] for prompt in prompts[:_PROMPTS] for message in prompt):
        return True
    context = stand_in_context(RewardContext(tags))
    for reward in _format_rewards(rewards, context) if rewards is not None else ():
        (thinking, _), (plain, _) = (_most(reward, row, [*_turns(each)]) for each in (tags, None))
        if thinking is not None and plain is not None and thinking > plain:
            return True
    return False


def thinking_opener(prompt_ids: list[int], layout: VocabLayout) -> ThinkingOpener:
    """Who opens the thinking of a completion: the template, the model, or nobody, as the template closes it at once."""
    if region_of_next(torch.tensor([prompt_ids]), layout)[0] == THINKING:
        return "template"
    return "nobody" if layout.think_close_id in prefilled_ids(prompt_ids, layout) else "model"


def opening_warning(
    plan: ExpansionPlan, prompt_ids: list[int], opener: ThinkingOpener, told: bool = False
) -> str | None:
    """Why the thinking would not be opened after a prompt, and what to do; None where something opens it.

    Args:
        told: whether a warm-up shows the model how to, which makes its tags tokens first.
    """
    tag = plan.expansion.think_tags[0]
    if opener == "nobody":
        return "the chat template closes the thinking before the model can think: take another with model.chat_template"
    if opener == "template":
        return None
    in_prompt = plan.layout.think_open_id in prompt_ids
    if plan.layout.think_open_id in plan.tag_pieces and not told:
        seen = "has seen it in the prompt alone" if in_prompt else "never meets it: it will never think"
        return f"nobody opens the thinking: {tag} is new to this model, which {seen}; set dataset.open_thinking=prefill"
    if told or in_prompt or tag in str(plan.tokenizer.chat_template) or not plan.layout.size:
        return None
    return (
        f"nothing tells the model to think: system prompt, examples and chat template do not mention {tag}; name it in "
        "dataset.system_prompt, or set dataset.open_thinking=prefill"
    )


def _format_rewards(rewards: RewardSettings, context: RewardContext) -> Iterator[Reward]:
    """Those that score the form of a turn, and may be tried."""
    for spec, reward in zip(rewards.functions, build_rewards(rewards.functions, context), strict=True):
        if is_form(spec) and traits_of(reward.function).dry_run and reward.weight > 0:
            yield reward


def _format_doubt(reward: Reward, row: dict[str, Any], tags: Tags, *, copies: bool) -> Iterator[str]:
    """A line where a format reward pays nothing for any turn that thinks, and more for one that does not."""
    others: list[Tags | None] = [None, *(each for each in (THINK_TAGS, _XML_TAGS) if each != tags)]
    with_tags = [(each, turn) for each in others for turn in _turns(each)]
    plain = [turn for _, turn in with_tags]
    thinking = [*_turns(tags), *(block + turn for block, turn in product(_blocks(tags), plain))]
    most_plain, first = _most(reward, row, plain)
    most_thinking, _ = _most(reward, row, thinking)
    if most_plain is None or most_thinking is None or most_thinking > 0 or most_thinking >= most_plain:
        return
    wanted = with_tags[first][0]
    remedy = "take a format reward that lets a turn think, such as think_format"
    if not copies:
        remedy = "set dataset.open_thinking=model, or " + remedy
    elif wanted is not None:
        remedy = f"set model.think_tags=[{','.join(wanted)}], which it wants, or {remedy}"
    between = f"between {tags[0]} and {tags[1]}"
    yield f"reward {reward.name} gives {most_thinking:g} to any turn that thinks {between}: {remedy}"


def _most(reward: Reward, row: dict[str, Any], turns: Sequence[str]) -> tuple[float | None, int]:
    """The best score of any turn, and the first turn that has it; None where no turn has a score."""
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
