"""`rlvr-vocab generate`: chat answers of a checkpoint, with thinking separated and reasoning tokens marked."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import torch
from rich.console import Console
from rich.text import Text

from rlvr_vocab.config.command_settings import GenerateSettings
from rlvr_vocab.data.rows import read_prompts
from rlvr_vocab.errors import UserError
from rlvr_vocab.evaluation.sampling import (
    Checkpoint,
    Completion,
    Messages,
    SamplingSettings,
    load_chat,
    load_checkpoint,
    sample_completions,
)
from rlvr_vocab.rewards.reward import content_text
from rlvr_vocab.runs.folder import run_of_checkpoint
from rlvr_vocab.runs.summary import marked_text
from rlvr_vocab.runs.tools import ToolUse
from rlvr_vocab.terminal import make_console, quiet_libraries
from rlvr_vocab.text import visible_text
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.marking import Marker
from rlvr_vocab.vocab.regions import ANSWERING, THINKING, scored_regions
from rlvr_vocab.vocab.tokenizer import prefilled_ids


def run(settings: GenerateSettings) -> int:
    quiet_libraries()
    console = make_console()
    trained = run_of_checkpoint(settings.checkpoint)
    system = trained.system_prompt if settings.system_prompt is None else settings.system_prompt
    prompts = _prompts(settings, system)
    chat = load_chat(settings.checkpoint, settings.base)
    if chat.tokenizer.chat_template is None:
        remedy = "expand its base with model.chat_template=FILE"
        raise UserError(f"checkpoint={settings.checkpoint} has no chat template: {remedy}")
    chat = replace(chat, tools=ToolUse.of(settings, trained).loop(chat.tokenizer, chat.layout))
    checkpoint = load_checkpoint(settings.checkpoint, settings.base, chat)
    sampling = SamplingSettings(
        max_new_tokens=settings.max_new_tokens,
        temperature=trained.temperature if settings.temperature is None else settings.temperature,
        truncation={"top_p": settings.top_p},
        batch_size=settings.batch_size,
        seed=settings.seed,
    )
    numbered = enumerate(prompts, start=1)

    def show(batch: list[Completion]) -> None:
        for completion, (number, prompt) in zip(batch, numbered, strict=False):
            if settings.format == "json":
                print(json.dumps(answer_row(checkpoint, prompt, completion)), file=sys.stdout, flush=True)
                continue
            if len(prompts) > 1:
                console.print(Text(f"[{number}/{len(prompts)}] {prompt[-1]['content']}", style="bold"))
            _print_answer(checkpoint, completion, console)

    sample_completions(checkpoint, [{"prompt": prompt} for prompt in prompts], sampling, on_batch=show)
    return 0


def _prompts(settings: GenerateSettings, system: str | None) -> list[Messages]:
    """The messages of each chat; chats without a system message get the default one."""
    asked = [[{"role": "user", "content": settings.prompt or ""}]]
    prompts = asked if settings.prompts is None else read_prompts(settings.prompts)
    head = [{"role": "system", "content": system}] if system else []
    return [prompt if prompt[0]["role"] == "system" else [*head, *prompt] for prompt in prompts]


def answer_row(checkpoint: Checkpoint, prompt: Messages, completion: Completion) -> dict[str, object]:
    """One answer as plain values, its thinking, answer and text those of the last turn."""
    layout, tokenizer = checkpoint.layout, checkpoint.tokenizer
    thinking, answer = turn_parts(layout, *completion.turns_ids[-1])
    asked = [message for message in prompt if message["role"] != "system"]
    return {
        "prompt": asked[0]["content"] if len(asked) == 1 else prompt,
        "thinking": tokenizer.decode(thinking, skip_special_tokens=True).strip(),
        "answer": tokenizer.decode(answer, skip_special_tokens=True).strip() if completion.turn else "",
        "text": completion.turn,
        "reasoning_tokens": sum(token >= layout.standard_size for token in completion.completion_ids),
        "ids": completion.completion_ids,
        "finished": completion.finished,
        **({"messages": completion.messages, "segments": completion.segments} if completion.messages else {}),
    }


def _print_answer(checkpoint: Checkpoint, completion: Completion, console: Console) -> None:
    layout = checkpoint.layout
    marker = Marker(checkpoint.tokenizer, layout)

    def marked(ids: list[int]) -> Text:
        text = marked_text(marker.spans(ids), colour=console.is_terminal)
        text.rstrip()
        return text[len(text.plain) - len(text.plain.lstrip()) :]

    turns = iter(completion.turns_ids)
    for message in completion.messages or [{"role": "assistant"}]:
        if message["role"] == "tool":
            console.print(Text(f"tool {message['name']}", style="dim"))
            console.print(Text(visible_text(content_text(message["content"]))), end="\n\n")
            continue
        thinking, answer = turn_parts(layout, *next(turns))
        if thinking:
            reasoning = sum(token >= layout.standard_size for token in thinking)
            console.print(Text(f"thinking ({len(thinking):,} tokens, reasoning tokens: {reasoning:,})", style="dim"))
            console.print(marked(thinking), end="\n\n")
        calls = bool(message.get("tool_calls"))
        if thinking or completion.messages:
            console.print(Text("call" if calls else "answer", style="dim"))
        console.print(marked(answer) if answer else "(none)", end="\n\n" if calls else "\n")
    if not completion.finished:
        console.print(Text("(truncated at max_new_tokens)", style="yellow"))
    console.print()


def turn_parts(layout: VocabLayout, prompt_ids: list[int], completion_ids: list[int]) -> tuple[list[int], list[int]]:
    """Ids of the thinking and of the answer, including those that the template prefilled, without think tags."""
    ids = [*prompt_ids, *completion_ids]
    regions = scored_regions(torch.tensor([ids]), layout)[0].tolist()
    tags = (layout.think_open_id, layout.think_close_id)
    parts: dict[int, list[int]] = {THINKING: [], ANSWERING: []}
    for position in range(len(prompt_ids) - len(prefilled_ids(prompt_ids, layout)), len(ids)):
        if ids[position] not in tags:
            parts[regions[position]].append(ids[position])
    return parts[THINKING], parts[ANSWERING]
