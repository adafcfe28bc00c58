"""What a chat template says about an assistant's turn: where it starts, and who opens the thinking."""

from __future__ import annotations

from typing import Literal

from transformers import PreTrainedTokenizerBase

from rlvr_vocab.vocab.chat_template import chat_ids, chat_texts
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import THINKING, RegionTracker, last_turn_start

OpenThinking = Literal["auto", "model", "prefill"]
_QUESTION, _ANSWER = "a question of no matter", "an answer of no matter"
_USER = [{"role": "user", "content": _QUESTION}]


def turn_start_text(tokenizer: PreTrainedTokenizerBase, tags: tuple[str, str]) -> str:
    """The text that a chat template puts before an assistant's words, up to any think tag; empty without a template."""
    if tokenizer.chat_template is None:
        return ""
    [without] = chat_texts(tokenizer, [_USER], add_generation_prompt=False)
    [opened] = chat_texts(tokenizer, [_USER])
    if opened.startswith(without) and opened != without:
        start = opened[len(without) :]
    else:  # no generation prompt of its own: what stands between the question and the answer
        answered = [*_USER, {"role": "assistant", "content": _ANSWER}]
        [turn] = chat_texts(tokenizer, [answered], add_generation_prompt=False)
        start = turn.split(_QUESTION)[-1].split(_ANSWER)[0]
    return min((start.split(tag)[0] for tag in tags), key=len)


def begins_answer(tokenizer: PreTrainedTokenizerBase, tags: tuple[str, str]) -> bool:
    """Whether a rendered prompt ends in the beginning of an assistant's turn."""
    start, [prompt] = turn_start_text(tokenizer, tags).strip(), chat_texts(tokenizer, [_USER])
    return start != "" and start in prompt.split(_QUESTION)[-1]


def find_turn_ids(tokenizer: PreTrainedTokenizerBase, tags: tuple[str, str]) -> tuple[int, ...]:
    return tuple(tokenizer.encode(turn_start_text(tokenizer, tags), add_special_tokens=False))


def open_thinking_in_template(
    tokenizer: PreTrainedTokenizerBase, layout: VocabLayout, who: OpenThinking, *, base_knows_tag: bool
) -> None:
    """Make the template open the thinking where nobody else will, so that training and serving prompt alike.

    `auto`: a template that leaves the tag open is left alone; a base model that knows the tag opens it itself;
    otherwise the template prefills it. `prefill` adds the tag unless it is already open. Without a template there is
    nothing to do.
    """
    if tokenizer.chat_template is None:
        return
    if who == "model" or (who == "auto" and base_knows_tag) or prompt_is_thinking(tokenizer, layout):
        return
    tag = tokenizer.convert_ids_to_tokens(layout.think_open_id)
    tokenizer.chat_template += f"{{%- if add_generation_prompt %}}{{{{- '{tag}\\n' }}}}{{%- endif %}}"


def prompt_is_thinking(tokenizer: PreTrainedTokenizerBase, layout: VocabLayout) -> bool:
    """Whether a rendered prompt ends inside an open think tag."""
    [ids] = chat_ids(tokenizer, [_USER])
    return RegionTracker(layout, ids).region == THINKING


def prefilled_ids(prompt_ids: list[int], layout: VocabLayout) -> list[int]:
    """What the template already put into the assistant's turn, at the end of a prompt; nothing where none is open."""
    start = last_turn_start(prompt_ids, layout)
    return prompt_ids[start:] if start else []


def assistant_turn(
    tokenizer: PreTrainedTokenizerBase, layout: VocabLayout, prompt_ids: list[int], completion_ids: list[int]
) -> str:
    """Surface text of the whole assistant turn: what the template prefilled of it, then what was sampled."""
    ids = [*prefilled_ids(prompt_ids, layout), *completion_ids]
    return tokenizer.decode(ids, skip_special_tokens=True)
