"""Samples chat answers from a model that follows the region policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from rlvr_vocab.device import device_type, weights_dtype
from rlvr_vocab.errors import UserError
from rlvr_vocab.text import short_text
from rlvr_vocab.vocab.adapter import load_model
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.refuse_off_policy import refuse_altered_config
from rlvr_vocab.vocab.sampling import attach_region_sampler
from rlvr_vocab.vocab.tokenizer import assistant_turn, chat_ids, load_tokenizer
from rlvr_vocab.vocab.weights import folder_with

Messages = list[dict[str, str]]


@dataclass(frozen=True)
class SamplingSettings:
    """How to sample; temperature 0 is greedy, `limit_key` is the user's key of `max_new_tokens`."""

    max_new_tokens: int = 1024
    temperature: float = 1.0
    top_p: float = 1.0
    batch_size: int = 64
    seed: int = 42
    limit_key: str = "max_new_tokens"


@dataclass(frozen=True)
class Completion:
    """One sampled answer: ids as the model saw and gave them, and the surface text of the assistant's whole turn."""

    prompt_ids: list[int]
    completion_ids: list[int]
    turn: str
    finished: bool


@dataclass(frozen=True)
class Checkpoint:
    """A model that follows its region policy, with what is needed to talk to it."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    layout: VocabLayout


def load_checkpoint(folder: str | Path, base: str | Path | None = None, **model_kwargs: Any) -> Checkpoint:
    """Load an expanded or trained folder for sampling; `base` is the model under an adapter that has moved."""
    layout = VocabLayout.load(folder_with(LAYOUT_FILE, folder, base))
    model: Any = load_model(folder, base, **model_kwargs)
    model.to(device_type()).eval()
    refuse_altered_config(model.generation_config, folder)
    if weights_dtype(model.dtype) == torch.float32:
        model.float()
    attach_region_sampler(model, RegionPolicy(layout))
    return Checkpoint(model, load_tokenizer(folder_with("tokenizer.json", folder, base)), layout)


def sample_completions(
    checkpoint: Checkpoint,
    prompts: Sequence[Messages],
    settings: SamplingSettings,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    on_batch: Callable[[list[Completion]], None] = lambda completions: None,
) -> list[Completion]:
    """One completion per prompt, in their order; the caller's random state does not change.

    Args:
        on_progress: called with (prompts done, prompts in all) after each batch.
        on_batch: called with the completions of each batch.

    Raises:
        UserError: a prompt and its completion could exceed the model's context; nothing is sampled.
    """
    require_room(checkpoint.model.config, checkpoint.tokenizer, prompts, settings)
    completions: list[Completion] = []
    with _sampling_mode(checkpoint.model, settings.seed):
        for start in range(0, len(prompts), settings.batch_size):
            batch = _sample_batch(checkpoint, prompts[start : start + settings.batch_size], settings)
            completions += batch
            on_batch(batch)
            on_progress(len(completions), len(prompts))
    return completions


def require_room(
    config: PretrainedConfig,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Messages],
    settings: SamplingSettings,
) -> None:
    """UserError where a prompt and its completion could exceed the context of a model with that config."""
    context = getattr(config.get_text_config(), "max_position_embeddings", None)
    if context is not None and prompts:
        require_room_in(context, chat_ids(tokenizer, prompts), prompts, settings)


def require_room_in(
    context: int, ids: Sequence[Sequence[int]], prompts: Sequence[Messages], settings: SamplingSettings
) -> None:
    """UserError where the ids of the longest prompt and its completion could exceed `context` tokens."""
    longest = max(range(len(prompts)), key=lambda number: len(ids[number]))
    length, limit = len(ids[longest]), f"{settings.limit_key}={settings.max_new_tokens}"
    if length + settings.max_new_tokens > context:
        room = context - length
        remedy = f"set {settings.limit_key} to {room} or less" if room > 0 else "shorten the prompt"
        raise UserError(
            f'prompt {longest + 1}, "{short_text(prompts[longest][-1]["content"], 40)}": its {length} tokens and '
            f"{limit} do not fit the model's context of {context}; {remedy}"
        )


@contextmanager
def _sampling_mode(model: PreTrainedModel, seed: int) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        with torch.random.fork_rng([model.device] if model.device.type == "cuda" else []), torch.no_grad():
            torch.manual_seed(seed)
            yield
    finally:
        model.train(training)


def _sample_batch(checkpoint: Checkpoint, prompts: Sequence[Messages], settings: SamplingSettings) -> list[Completion]:
    tokenizer, model = checkpoint.tokenizer, checkpoint.model
    inputs = tokenizer.apply_chat_template(
        list(prompts), add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
    ).to(model.device)
    sampled = settings.temperature > 0
    output = model.generate(
        input_ids=inputs["input_ids"],
        attention_mask=inputs["attention_mask"],
        max_new_tokens=settings.max_new_tokens,
        do_sample=sampled,
        # Transformers would otherwise keep the 50 likeliest ids alone.
        **({"temperature": settings.temperature, "top_k": 0, "top_p": settings.top_p} if sampled else {}),
    )
    ends = torch.tensor(end_ids_of(model), device=output.device)
    prompt_length = inputs["input_ids"].size(1)
    rows = zip(inputs["input_ids"], inputs["attention_mask"].bool(), output[:, prompt_length:], strict=True)
    return [_completion(checkpoint, prompt[mask].tolist(), ids, ends) for prompt, mask, ids in rows]


def _completion(checkpoint: Checkpoint, prompt_ids: list[int], ids: torch.Tensor, ends: torch.Tensor) -> Completion:
    stops = torch.isin(ids, ends).nonzero()
    completion_ids = ids[: int(stops[0]) + 1].tolist() if len(stops) else ids.tolist()
    turn = assistant_turn(checkpoint.tokenizer, checkpoint.layout, prompt_ids, completion_ids)
    return Completion(prompt_ids, completion_ids, turn, finished=bool(len(stops)))


def end_ids_of(model: PreTrainedModel) -> list[int]:
    """The ids that end a turn, by its generation config."""
    ends = model.generation_config.eos_token_id
    return [] if ends is None else [ends] if isinstance(ends, int) else list(ends)
