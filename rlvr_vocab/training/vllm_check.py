"""A check before training that vLLM samples under the region policy and reports log-probabilities under it.

A sampler that ignores the policy would train too, with wrong gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedTokenizerBase

from rlvr_vocab.errors import UserError
from rlvr_vocab.training.arguments import GRPOConfig, prompt_tokens
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import open_copies

# The largest `logit_bias` of vLLM's API: above any logit, and not enough for a forbidden token.
_PUSH = 100.0
_NEARLY_CERTAIN = -1.0  # nats: the log-probability of a token with that push, after it


def set_vllm_context(
    args: GRPOConfig, layout: VocabLayout, tokenizer: PreTrainedTokenizerBase, train: Any, evaluation: Any
) -> None:
    """Set an unset `vllm_max_model_length` to the longest prompt and its completion, if the dataset has a length.

    vLLM's default is the whole context of a model: 40,960 tokens for Qwen3.
    """
    if not args.use_vllm or args.vllm_max_model_length is not None:
        return
    named = evaluation if isinstance(evaluation, Mapping) else {"": evaluation}
    datasets = [each for each in (train, *named.values()) if each is not None]
    if not all(hasattr(each, "__len__") for each in datasets):
        return
    of_template = args.chat_template_kwargs or {}
    longest = max(prompt_tokens(row, tokenizer, **of_template) for each in datasets for row in each)
    of_checks = max(map(len, _prompts(layout))) + 1
    args.vllm_max_model_length = max(longest + args.max_completion_length, of_checks)


def check_vllm(trainer: Any) -> None:
    """With a bias towards a reasoning token, vLLM must sample it while thinking and must not while answering.

    UserError where it does not, or where it reports log-probabilities of another distribution.
    """
    layout, generation = trainer.policy.layout, trainer.vllm_generation
    pushed = int(open_copies(layout)[0][0])
    before = generation.max_completion_length, generation.generation_kwargs
    generation.max_completion_length, generation.generation_kwargs = 1, {**before[1], "logit_bias": {pushed: _PUSH}}
    try:
        _, sampled, logps, _ = generation.generate(_prompts(layout), images=None, num_generations=1)
    finally:
        generation.max_completion_length, generation.generation_kwargs = before
    answering, thinking = map(list, sampled)
    if answering == [pushed] or thinking != [pushed]:
        raise UserError(
            f"vLLM does not follow the region policy: asked for reasoning token {pushed}, it sampled {answering} while "
            f"answering and {thinking} while thinking; install rlvr-vocab in its environment (VLLM_PLUGINS may keep "
            f"rlvr_vocab_engine out) and serve {trainer.initial_model}"
        )
    if logps[1][0][0] < _NEARLY_CERTAIN:
        raise UserError(
            "vLLM reports log-probabilities before temperature and region policy: start it with --logprobs-mode "
            "processed_logprobs"
        )


def _prompts(layout: VocabLayout) -> list[list[int]]:
    """One after which the model answers, and one after which it thinks."""
    ordinary = [id_ for id_ in range(layout.standard_size // 2, layout.standard_size) if id_ not in layout.control_ids]
    start = [*ordinary[:3], *layout.turn_ids]
    return [start, [*start, layout.think_open_id]]
