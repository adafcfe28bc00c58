"""`rlvr-vocab generate`: chat answers of a checkpoint, thinking set apart and reasoning tokens marked."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence

import torch
from rich.console import Console
from rich.text import Text

from rlvr_vocab.config.command_table import GenerateSettings
from rlvr_vocab.data.rows import read_prompts
from rlvr_vocab.errors import UserError
from rlvr_vocab.evaluation.sampling import (
    Checkpoint,
    Completion,
    Messages,
    SamplingSettings,
    load_checkpoint,
    sample_completions,
)
from rlvr_vocab.runs.record import RunOfCheckpoint, run_of_checkpoint
from rlvr_vocab.runs.summary import marked_text
from rlvr_vocab.terminal import make_console, progress_bar, quiet_libraries
from rlvr_vocab.text import pluralize
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.marking import Marker
from rlvr_vocab.vocab.regions import ANSWERING, THINKING, scored_regions
from rlvr_vocab.vocab.tokenizer import prefilled_ids


def run(settings: GenerateSettings) -> int:
    quiet_libraries()
    console = make_console()
    trained = run_of_checkpoint(settings.checkpoint)
    prompts = _prompts(settings, trained)
    checkpoint = load_checkpoint(settings.checkpoint, settings.base)
    _require_chat(checkpoint, settings)
    sampling = SamplingSettings(
        max_new_tokens=settings.max_new_tokens,
        temperature=trained.temperature if settings.temperature is None else settings.temperature,
        top_p=settings.top_p,
        batch_size=settings.batch_size,
        seed=settings.seed,
    )
    _sample(checkpoint, prompts, sampling, _printer(checkpoint, prompts, settings, console), console)
    return 0


def answer_row(checkpoint: Checkpoint, prompt: Messages, completion: Completion) -> dict[str, object]:
    """One answer as plain values; the prompt as text where it was one, else as messages."""
    layout, tokenizer = checkpoint.layout, checkpoint.tokenizer
    thinking, answer = turn_parts(layout, completion.prompt_ids, completion.completion_ids)
    asked = [message for message in prompt if message["role"] != "system"]
    return {
        "prompt": asked[0]["content"] if len(asked) == 1 else prompt,
        "thinking": tokenizer.decode(thinking, skip_special_tokens=True).strip(),
        "answer": tokenizer.decode(answer, skip_special_tokens=True).strip(),
        "text": completion.turn,
        "reasoning_tokens": sum(token >= layout.standard_size for token in completion.completion_ids),
        "ids": completion.completion_ids,
        "finished": completion.finished,
    }


def _prompts(settings: GenerateSettings, trained: RunOfCheckpoint) -> list[Messages]:
    """The messages of each chat; a system message goes before those that bring none."""
    system = trained.system_prompt if settings.system_prompt is None else settings.system_prompt
    if settings.prompts is None:
        prompts = [[{"role": "user", "content": settings.prompt or ""}]]
    else:
        prompts = read_prompts(settings.prompts)
    head = [{"role": "system", "content": system}] if system else []
    return [prompt if prompt[0]["role"] == "system" else [*head, *prompt] for prompt in prompts]


def _require_chat(checkpoint: Checkpoint, settings: GenerateSettings) -> None:
    if checkpoint.tokenizer.chat_template is None:
        raise UserError(
            f"checkpoint={settings.checkpoint} has no chat template: expand its base with model.chat_template=FILE"
        )


def _printer(
    checkpoint: Checkpoint, prompts: Sequence[Messages], settings: GenerateSettings, console: Console
) -> Callable[[list[Completion]], None]:
    """Prints the answers of one batch after another, in the order of their prompts."""
    stdout = sys.stdout  # a bar on a terminal puts its own in the place of sys.stdout
    numbered = enumerate(prompts, start=1)

    def show(batch: list[Completion]) -> None:
        for completion, (number, prompt) in zip(batch, numbered, strict=False):
            if settings.format == "json":
                print(json.dumps(answer_row(checkpoint, prompt, completion)), file=stdout, flush=True)
            else:
                head = f"[{number}/{len(prompts)}] {prompt[-1]['content']}" if len(prompts) > 1 else ""
                _show(checkpoint, completion, head, console)

    return show


def _sample(
    checkpoint: Checkpoint,
    prompts: Sequence[Messages],
    sampling: SamplingSettings,
    show: Callable[[list[Completion]], None],
    console: Console,
) -> None:
    """Answer the prompts; on a terminal the answers themselves are the progress, and a bar would run into them."""
    if len(prompts) == 1 or console.is_terminal:
        sample_completions(checkpoint, prompts, sampling, on_batch=show)
        return
    with progress_bar(Console(stderr=True, highlight=False), "answering", len(prompts)) as display:
        sample_completions(checkpoint, prompts, sampling, lambda done, total: display.update(done), show)


def _show(checkpoint: Checkpoint, completion: Completion, head: str, console: Console) -> None:
    layout = checkpoint.layout
    thinking, answer = turn_parts(layout, completion.prompt_ids, completion.completion_ids)
    if head:
        console.print(Text(head, style="bold"))
    if thinking:
        reasoning = sum(token >= layout.standard_size for token in thinking)
        of_them = pluralize(reasoning, "of them a reasoning token", "of them reasoning tokens")
        console.print(Text(f"thinking ({pluralize(len(thinking), 'token')}, {of_them})", style="dim"))
        console.print(_marked(checkpoint, thinking, console), end="\n\n")
        console.print(Text("answer", style="dim"))
    console.print(_marked(checkpoint, answer, console) if answer else "(none)")
    if not completion.finished:
        length = pluralize(len(completion.completion_ids), "token")
        console.print(Text(f"(cut off after {length}: max_new_tokens)", style="yellow"))
    if head:
        console.print()


def _marked(checkpoint: Checkpoint, ids: list[int], console: Console) -> Text:
    spans = Marker(checkpoint.tokenizer, checkpoint.layout).spans(ids)
    text = marked_text(spans, colour=console.is_terminal)
    text.rstrip()
    return text[len(text.plain) - len(text.plain.lstrip()) :]


def turn_parts(layout: VocabLayout, prompt_ids: list[int], completion_ids: list[int]) -> tuple[list[int], list[int]]:
    """Ids of the thinking and of the answer, what the template prefilled of the turn included, think tags left out."""
    ids = [*prompt_ids, *completion_ids]
    regions = scored_regions(torch.tensor([ids]), layout)[0].tolist()
    tags = (layout.think_open_id, layout.think_close_id)
    parts: dict[int, list[int]] = {THINKING: [], ANSWERING: []}
    for position in range(len(prompt_ids) - len(prefilled_ids(prompt_ids, layout)), len(ids)):
        if ids[position] not in tags:
            parts[regions[position]].append(ids[position])
    return parts[THINKING], parts[ANSWERING]
