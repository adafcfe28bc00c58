"""Checks before training that vLLM samples under the region policy and reports log-probabilities under it.

A sampler that ignores the policy would train too, with wrong gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from transformers import PreTrainedTokenizerBase, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rlvr_vocab.errors import UserError
from rlvr_vocab.training.arguments import GRPOConfig, prompt_tokens
from rlvr_vocab.training.models.lora import without_dropout
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import open_copies

PROCESSOR = "NamedRegionLogitsProcessor"
# The largest `logit_bias` of vLLM's API: above any logit, and not enough for a forbidden token.
_PUSH = 100.0
_TOKENS = 16
# Nats on average: bfloat16 differs by 0.02 to 0.05 (docs/vllm.md), answers without the policy by ln 2.
_MOST_DIFFERENCE = 0.25


def set_vllm_context(
    args: GRPOConfig, layout: VocabLayout, tokenizer: PreTrainedTokenizerBase, train: Any, evaluation: Any
) -> None:
    """Set an unset `vllm_max_model_length` to the longest prompt and its completion, if the dataset has a length.

    vLLM's default is the whole context of a model: 40,960 tokens for Qwen3.
    """
    named = evaluation if isinstance(evaluation, Mapping) else {"": evaluation}
    datasets = [each for each in (train, *named.values()) if each is not None]
    nothing_to_set = not args.use_vllm or args.vllm_max_model_length is not None
    if nothing_to_set or not all(hasattr(each, "__len__") for each in datasets):
        return
    of_template = args.chat_template_kwargs or {}
    longest = max(prompt_tokens(row, tokenizer, **of_template) for each in datasets for row in each)
    of_checks = max(map(len, _prompts(layout))) + _TOKENS
    args.vllm_max_model_length = max(longest + args.max_completion_length, of_checks)


class VLLMCheck(TrainerCallback):
    """Runs the checks when training begins; UserError where one fails."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        trainer = self._trainer
        check_engine(trainer)
        check_forbids(trainer)
        if trainer.stage_context.run_step(state.global_step) == 0:  # vLLM holds the initial weights
            check_logps(trainer)


def check_engine(trainer: Any) -> None:
    """The engine's configuration names the policy, and log-probabilities are those after processing."""
    where, config = _engine(trainer)
    model = config["model_config"]
    if model["logprobs_mode"] != "processed_logprobs":
        raise UserError(
            f"{where} reports {model['logprobs_mode']}, before temperature and region policy: "
            "start it with --logprobs-mode processed_logprobs"
        )
    if PROCESSOR not in str(model["logits_processors"]):
        raise UserError(
            f"{where} samples past the region policy: it serves {model['model']} without a reasoning vocabulary, or "
            "rlvr-vocab is not installed in its environment (or VLLM_PLUGINS keeps rlvr_vocab_engine out); install it "
            f"there and serve {trainer.initial_model}"
        )


def check_forbids(trainer: Any) -> None:
    """With a bias towards a reasoning token, vLLM must sample it while thinking and must not while answering."""
    layout = trainer.policy.layout
    pushed = int(open_copies(layout)[0][0])
    with _asking(trainer, 1, {"logit_bias": {pushed: _PUSH}}):
        answering, thinking = _completions(trainer, _prompts(layout)[:2])[0]
    if answering == [pushed]:
        raise UserError(
            f"{_engine(trainer)[0]} sampled reasoning token {pushed} while answering: its policy is not ours"
        )
    if thinking != [pushed]:
        raise UserError(
            f"{_engine(trainer)[0]} did not sample reasoning token {pushed} while thinking: it serves another "
            f"vocabulary; serve {trainer.initial_model}"
        )


def check_logps(trainer: Any) -> None:
    """Log-probabilities of a few samples against the trainer's own scoring of them, in each region."""
    prompts = _prompts(trainer.policy.layout)
    with _asking(trainer, _TOKENS, {}):
        completions, logps = _completions(trainer, prompts)
    for name, rows in (("answering", range(0, len(prompts), 2)), ("thinking", range(1, len(prompts), 2))):
        off = torch.cat(
            [(_scored(trainer, prompts[row], completions[row]) - torch.tensor(logps[row])).abs() for row in rows]
        )
        if off.mean() > _MOST_DIFFERENCE:
            raise UserError(
                f"{_engine(trainer)[0]} reports log-probabilities that differ by {off.mean():.2f} on average from "
                f"those of {trainer.initial_model} ({name}): it serves other weights, or another "
                "reasoning_vocab.json; serve that folder"
            )


def _engine(trainer: Any) -> tuple[str, dict[str, Any]]:
    """The place of vLLM for messages, and the part of its configuration that matters."""
    generation = trainer.vllm_generation
    if generation.mode == "server":
        client = generation.vllm_client if trainer.accelerator.is_main_process else None
        found = [None if client is None else (f"the vLLM server at {client.base_url}", client.get_server_info())]
        return broadcast_object_list(found, from_process=0)[0]
    model = generation.llm.llm_engine.vllm_config.model_config
    settings = {name: getattr(model, name) for name in ("model", "logprobs_mode", "logits_processors")}
    return "vLLM", {"model_config": settings}


def _prompts(layout: VocabLayout) -> list[list[int]]:
    """Alternately answering and thinking, with a few different standard ids before."""
    ordinary = [id_ for id_ in range(layout.standard_size // 2, layout.standard_size) if id_ not in layout.control_ids]
    starts = [[*ordinary[number : number + 3], *layout.turn_ids] for number in range(4)]
    return [prompt for start in starts for prompt in (start, [*start, layout.think_open_id])]


@contextmanager
def _asking(trainer: Any, tokens: int, more: dict[str, Any]) -> Iterator[None]:
    """Inside the block vLLM samples so many tokens, with further sampling parameters."""
    generation = trainer.vllm_generation
    before = generation.max_completion_length, generation.generation_kwargs
    generation.max_completion_length, generation.generation_kwargs = tokens, {**before[1], **more}
    try:
        yield
    finally:
        generation.max_completion_length, generation.generation_kwargs = before


def _completions(trainer: Any, prompts: list[list[int]]) -> tuple[list[list[int]], list[list[float]]]:
    _, completion_ids, logps, _ = trainer.vllm_generation.generate(prompts, images=None, num_generations=1)
    return [list(ids) for ids in completion_ids], [[token[0] for token in row] for row in logps]


@torch.no_grad()
def _scored(trainer: Any, prompt: list[int], completion: list[int]) -> torch.Tensor:
    ids = torch.tensor([prompt + completion], device=trainer.accelerator.device)
    with without_dropout(trainer.model):
        logps, *_ = trainer._get_per_token_logps_and_entropies(
            trainer.model, ids, torch.ones_like(ids), len(completion)
        )
    return logps[0].float().cpu()
