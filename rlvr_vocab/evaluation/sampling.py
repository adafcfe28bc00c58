"""Samples chat answers, and continuations of given ids, from a model that follows the region policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from rlvr_vocab.data.rows import Messages
from rlvr_vocab.device import device_type, weights_dtype
from rlvr_vocab.errors import UserError
from rlvr_vocab.text import short_text
from rlvr_vocab.tools.transcripts import Completion, Generate, Request, SampledTurn, ToolLoop
from rlvr_vocab.vocab.adapter import load_model
from rlvr_vocab.vocab.head import attach_region_head
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.refuse_off_policy import refuse_altered_config, truncation_of
from rlvr_vocab.vocab.sampling import RegionSampler, TextThenIdSampler, attach_region_sampler
from rlvr_vocab.vocab.tokenizer import assistant_turn, chat_ids, load_tokenizer
from rlvr_vocab.vocab.weights import folder_with


@dataclass(frozen=True)
class SamplingSettings:
    """How to sample; temperature 0 is greedy, `limit_key` is the user's key of `max_new_tokens`."""

    max_new_tokens: int = 1024
    temperature: float = 1.0
    truncation: Mapping[str, Any] = field(default_factory=dict)  # those of `top_k`, `top_p` and `min_p` that are set
    batch_size: int = 64
    seed: int = 42
    limit_key: str = "max_new_tokens"

    @classmethod
    def of_training(cls, grpo: Mapping[str, Any], section: str = "training.", **more: int) -> Self:
        """Samples as a training does, whose keys begin with `section`."""
        key = "max_completion_length"
        return cls(grpo[key], grpo["temperature"], truncation_of(grpo), limit_key=f"{section}{key}", **more)


@dataclass(frozen=True)
class Chat:
    """How to talk to a model: its tokenizer, arguments for its chat template, and the tools that it may call."""

    tokenizer: PreTrainedTokenizerBase
    layout: VocabLayout
    template: Mapping[str, Any] = field(default_factory=dict)
    tools: ToolLoop | None = None

    def prompt_ids(self, prompts: Sequence[Messages | str]) -> list[list[int]]:
        """The ids of prompts, without what an environment adds."""
        if self.tools is not None:
            return self.tools.prompt_ids(prompts)
        return chat_ids(self.tokenizer, prompts, **self.template)

    def completions(
        self, rows: Sequence[Mapping[str, Any]], generate: Generate, limit: int, context: int | None
    ) -> list[Completion]:
        """A completion of the `prompt` of each row, of `limit` ids at most in a context of so many ids."""
        if self.tools is not None:
            return self.tools.complete(rows, generate, limit, context)
        asked = self.prompt_ids([row["prompt"] for row in rows])
        turns = generate([Request(row, 0, prompt_ids, limit) for row, prompt_ids in enumerate(asked)])
        return [
            Completion(prompt_ids, ids, assistant_turn(self.tokenizer, self.layout, prompt_ids, ids), finished)
            for prompt_ids, (ids, finished) in zip(asked, turns, strict=True)
        ]


@dataclass(frozen=True)
class Checkpoint(Chat):
    """A model that follows its region policy, with what is needed to talk to it."""

    model: PreTrainedModel = field(kw_only=True)


def load_chat(folder: str | Path, base: str | Path | None = None) -> Chat:
    """The tokenizer and the layout of a folder, without its weights; `base` is the model under an adapter."""
    layout = VocabLayout.load(folder_with(LAYOUT_FILE, folder, base))
    return Chat(load_tokenizer(folder_with("tokenizer.json", folder, base)), layout)


def load_checkpoint(
    folder: str | Path, base: str | Path | None = None, chat: Chat | None = None, **model_kwargs: Any
) -> Checkpoint:
    """Load an expanded or trained folder for sampling; `base` is the model under an adapter that has moved."""
    chat = chat or load_chat(folder, base)
    model: Any = load_model(folder, base, **model_kwargs).to(device_type())
    refuse_altered_config(model.generation_config, folder)
    if weights_dtype(model.dtype) == torch.float32:
        model.float()
    attach_region_sampler(model, RegionPolicy(chat.layout))
    return Checkpoint(**vars(chat), model=model)


def sample_completions(
    checkpoint: Checkpoint,
    rows: Sequence[Mapping[str, Any]],
    settings: SamplingSettings,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    on_batch: Callable[[list[Completion]], None] = lambda completions: None,
) -> list[Completion]:
    """A completion of the `prompt` of each row, in their order; the caller's random state does not change.

    Environments get its other columns. Raises UserError, before sampling, where a prompt and its completion could
    exceed the model's context.
    """
    model, completions = checkpoint.model, list[Completion]()
    generate = partial(_sample_turns, model, settings)
    require_room(model.config, checkpoint, [row["prompt"] for row in rows], settings)
    training = model.training
    model.eval()
    try:
        with torch.random.fork_rng([model.device] if model.device.type == "cuda" else []), torch.no_grad():
            torch.manual_seed(settings.seed)
            for start in range(0, len(rows), settings.batch_size):
                part = rows[start : start + settings.batch_size]
                batch = checkpoint.completions(part, generate, settings.max_new_tokens, context_of(model.config))
                completions += batch
                on_batch(batch)
                on_progress(len(completions), len(rows))
    finally:
        model.train(training)
    return completions


def context_of(config: PretrainedConfig) -> int | None:
    """The most ids that a model with that config takes, where it says so."""
    return getattr(config.get_text_config(), "max_position_embeddings", None)


def require_room(
    config: PretrainedConfig, chat: Chat, prompts: Sequence[Messages | str], settings: SamplingSettings
) -> None:
    """UserError where a prompt and its completion could exceed the context of a model with that config."""
    context = context_of(config)
    if context is None or not prompts:
        return
    ids = chat.prompt_ids(prompts)
    longest = max(range(len(prompts)), key=lambda number: len(ids[number]))
    length, key, prompt = len(ids[longest]), settings.limit_key, prompts[longest]
    asked = prompt if isinstance(prompt, str) else prompt[-1]["content"]
    if length + settings.max_new_tokens > context:
        remedy = f"set {key} to {context - length} or less" if length < context else "shorten the prompt"
        raise UserError(
            f'prompt {longest + 1}, "{short_text(asked, 40)}": its {length} tokens and '
            f"{key}={settings.max_new_tokens} do not fit the model's context of {context}; {remedy}"
        )


def _sample_turns(model: PreTrainedModel, settings: SamplingSettings, requests: Sequence[Request]) -> list[SampledTurn]:
    """The sampled ids of a turn each; the random numbers depend on the batch."""
    inputs, draws = _padded([request.context_ids for request in requests], model.device), settings.temperature > 0
    output = model.generate(
        **inputs,
        max_new_tokens=max(request.room for request in requests),
        do_sample=draws,
        # Transformers would otherwise keep the 50 likeliest ids alone.
        **({"temperature": settings.temperature, "top_k": 0, **settings.truncation} if draws else {}),
    )
    end_ids, rows = end_ids_of(model), output[:, inputs["input_ids"].size(1) :].tolist()
    turns = [up_to_end(ids[: request.room], end_ids) for ids, request in zip(rows, requests, strict=True)]
    return [SampledTurn(ids, ids[-1] in end_ids) for ids in turns]


def _padded(rows: Sequence[Sequence[int]], device: torch.device) -> dict[str, torch.Tensor]:
    """Ids and their mask, padded on the left, as a model takes them."""
    ids = [torch.tensor(row, device=device) for row in rows]
    padded = {"input_ids": ids, "attention_mask": [torch.ones_like(row) for row in ids]}
    return {name: pad_sequence(each, batch_first=True, padding_side="left") for name, each in padded.items()}


def end_ids_of(model: PreTrainedModel) -> frozenset[int]:
    """The ids that end a turn, by its generation config."""
    ends = model.generation_config.eos_token_id
    return frozenset(ends if isinstance(ends, list) else [] if ends is None else [ends])


def up_to_end(ids: list[int], end_ids: frozenset[int]) -> list[int]:
    """The ids up to the first that ends a turn."""
    return ids[: next((place + 1 for place, token in enumerate(ids) if token in end_ids), len(ids))]


# --- from given ids and given random numbers ---


class Continuations:
    """Samples and scores continuations of a model with copies, at a temperature above 0."""

    def __init__(self, checkpoint: Checkpoint, temperature: float) -> None:
        sampler: Any = checkpoint.model.generate
        assert isinstance(sampler, RegionSampler) and checkpoint.layout.size and temperature > 0
        self.policy = RegionPolicy(checkpoint.layout)
        self._model, self._sampler, self._temperature = checkpoint.model, sampler, temperature
        self.end_ids = end_ids_of(checkpoint.model)
        attach_region_head(checkpoint.model, policy=self.policy, temperature=temperature)

    @torch.no_grad()
    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        uniforms: Sequence[np.ndarray],
        texts: Sequence[Sequence[int]] | None = None,
    ) -> list[list[int]]:
        """The ids that follow each prompt, up to the end of the turn, by `(steps, 2)` random numbers for each.

        `texts` are, for each prompt, the texts of its first ids, as standard tokens; None: free.
        """
        device = self._model.device
        inputs = _padded(prompts, device)
        numbers = pad_sequence([torch.from_numpy(each) for each in uniforms], batch_first=True)
        given = torch.full(numbers.shape[:2], -1)
        for row, text in enumerate(texts or ()):
            given[row, : len(text)] = torch.tensor(text)
        draw = TextThenIdSampler(self.policy, self._temperature, numbers.to(device), given.to(device))
        with self._sampler.drawing(draw):
            output = self._model.generate(**inputs, max_new_tokens=numbers.size(1))
        rows = output[:, inputs["input_ids"].size(1) :].tolist()
        return [up_to_end(ids[: len(each)], self.end_ids) for ids, each in zip(rows, uniforms, strict=True)]

    @torch.no_grad()
    def logps(
        self,
        prompts: Sequence[Sequence[int]],
        ids: Sequence[Sequence[int]],
        of: Literal["log_probs", "copy_log_probs"] = "log_probs",
    ) -> list[float]:
        """Log-probability of the ids that follow each prompt; `copy_log_probs`: of their choice, given their texts."""
        if not prompts:
            return []
        whole = [[*prompt, *own] for prompt, own in zip(prompts, ids, strict=True)]
        inputs = _padded(whole, self._model.device)
        labels = torch.full_like(inputs["input_ids"], -100)
        for row, own in enumerate(ids):
            labels[row, labels.size(1) - len(own) :] = torch.tensor(own)
        scores = self._model(**inputs, labels=labels, fused_lm_head=True)
        found: list[float] = scores[of].double().sum(1).tolist()
        return found
