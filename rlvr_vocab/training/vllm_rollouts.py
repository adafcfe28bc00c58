"""vLLM as the sampler of a training: checked to follow the region policy, and asked which texts a truncation kept.

A sampler that ignores the policy would train too, with wrong gradients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from rlvr_vocab.errors import UserError
from rlvr_vocab.training.arguments import GRPOConfig, prompt_tokens
from rlvr_vocab.training.drawn_tokens import KEPT_TEXTS
from rlvr_vocab.training.stage import AtTrainBegin
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import open_copies
from rlvr_vocab.vocab.truncation import Truncation

# The largest `logit_bias` of vLLM's API: above any logit, and not enough for a forbidden token.
_PUSH = 100.0
_NEARLY_CERTAIN = -1.0  # nats: the log-probability of a token with that push, after it
_TOKENS = 16
# vLLM's names for arguments of its processors.
_REQUEST_ARGS = {"colocate": "extra_args", "server": "vllm_xargs"}
_DROPPED = -1000.0  # the log-probability of a dropped token is -inf, or -9999 from a server
# Nats on average: bfloat16 differs by 0.02 to 0.05 (docs/vllm.md), answers without the policy by ln 2.
_MOST_DIFFERENCE = 0.25


def set_vllm_context(
    args: GRPOConfig,
    layout: VocabLayout,
    tokenizer: PreTrainedTokenizerBase,
    train: Any,
    evaluation: Any,
    **of_template: Any,
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
    longest = max(prompt_tokens(row, tokenizer, **of_template) for each in datasets for row in each)
    of_checks = max(map(len, _prompts(layout))) + _TOKENS
    args.vllm_max_model_length = max(longest + args.max_completion_length, of_checks)


def prepare_vllm(trainer: Any) -> None:
    """Before training: what vLLM is sent and reports, and the check that it follows the policy."""
    if truncation := Truncation.of_options(trainer.args):
        _record_kept_texts(trainer, truncation)
    if trainer.policy.layout.size:
        trainer.send_whole_tables_to_vllm()
        trainer.add_callback(AtTrainBegin(partial(check_vllm, trainer)))


def _record_kept_texts(trainer: Any, truncation: Truncation) -> None:
    """Have vLLM truncate over texts, and report the kept ones, which have a log-probability."""
    generation, policy, trl_generate = trainer.vllm_generation, trainer.policy, trainer.vllm_generation.generate
    assert truncation.top_k is not None
    # Texts as likely as the last of `top_k` are kept too: in bfloat16 many are.
    limit = (2 * truncation.top_k + 64) * (1 + max(policy.layout.copy_indices, default=0))
    text_of = policy.surface_ids(torch.arange(policy.layout.rows)).tolist()
    if policy.layout.size:  # else vLLM's own truncation is one over texts
        given = {_REQUEST_ARGS[generation.mode]: truncation.request_args()}
        generation.generation_kwargs = {**(generation.generation_kwargs or {}), **given}
        generation.top_k, generation.top_p, generation.min_p = 0, 1.0, None
    generation.logprobs = limit

    def kept_texts(logps_and_ids: Sequence[tuple[float | None, int]]) -> torch.Tensor:
        kept = [token for logp, token in logps_and_ids if logp is not None and logp > _DROPPED]
        if len(kept) >= limit:
            raise UserError(
                f"vLLM keeps far more texts than top_k={truncation.top_k}: start it with --logprobs-mode "
                "processed_logprobs and with this rlvr-vocab in its environment"
            )
        return torch.tensor(sorted({text_of[token] for token in kept}), dtype=torch.int32)

    def generate(prompts: Any, *args: Any, **kwargs: Any) -> Any:
        prompt_ids, completion_ids, logps, ids = trl_generate(prompts, *args, **kwargs)
        reported = [list(zip(*row, strict=True)) for row in zip(logps, ids, strict=True)]
        kept = [[kept_texts(list(zip(*token, strict=True))) for token in row] for row in reported]
        trainer.drawn_tokens.add(prompts, completion_ids, **{KEPT_TEXTS: kept})
        sampled = [  # TRL takes the first, the likeliest
            [[of_token[id_of.index(token)]] for token, (of_token, id_of) in zip(*row, strict=True)]
            for row in zip(completion_ids, reported, strict=True)
        ]
        return prompt_ids, completion_ids, sampled, None

    generation.generate = generate


def check_vllm(trainer: Any) -> None:
    """Check the sampler of a trainer; UserError where it is not that of the trainer's policy."""
    _check_forbids(trainer)
    if trainer.stage_context.run_step(trainer.state.global_step) == 0:  # vLLM holds the initial weights
        _check_logps(trainer)


def _check_forbids(trainer: Any) -> None:
    """With a bias towards a reasoning token, vLLM must sample it while thinking and must not while answering."""
    layout = trainer.policy.layout
    pushed = int(open_copies(layout)[0][0])
    (answering, thinking), logps = _sampled(trainer, _prompts(layout)[:2], 1, logit_bias={pushed: _PUSH})
    if answering == [pushed] or thinking != [pushed]:
        raise UserError(
            f"vLLM does not follow the region policy: asked for reasoning token {pushed}, it sampled {answering} while "
            f"answering and {thinking} while thinking; install rlvr-vocab in its environment (VLLM_PLUGINS may keep "
            f"rlvr_vocab_engine out) and serve {trainer.initial_model}"
        )
    if logps[1][0] < _NEARLY_CERTAIN:
        raise UserError(
            "vLLM reports log-probabilities before temperature and region policy: start it with --logprobs-mode "
            "processed_logprobs"
        )


def _check_logps(trainer: Any) -> None:
    """Log-probabilities of a few samples against the trainer's own scoring of them, in each region."""
    prompts = _prompts(trainer.policy.layout)
    completions, logps = _sampled(trainer, prompts, _TOKENS)
    off = [
        (_scored(trainer, prompt, completion) - torch.tensor(reported)).abs()
        for prompt, completion, reported in zip(prompts, completions, logps, strict=True)
    ]
    for name, mean in (("answering", torch.cat(off[::2]).mean()), ("thinking", torch.cat(off[1::2]).mean())):
        if mean > _MOST_DIFFERENCE:
            raise UserError(
                f"vLLM's log-probabilities differ by {mean:.2f} on average ({name}) from those of "
                f"{trainer.initial_model}: serve that folder, with its weights and its reasoning_vocab.json"
            )


def _prompts(layout: VocabLayout) -> list[list[int]]:
    """Alternately answering and thinking, with a few different standard ids before."""
    ordinary = [id_ for id_ in range(layout.standard_size // 2, layout.standard_size) if id_ not in layout.control_ids]
    starts = [[*ordinary[number : number + 3], *layout.turn_ids] for number in range(4)]
    return [prompt for start in starts for prompt in (start, [*start, layout.think_open_id])]


def _sampled(
    trainer: Any, prompts: list[list[int]], tokens: int, **parameters: Any
) -> tuple[list[list[int]], list[list[float]]]:
    """So many tokens for each prompt by vLLM, and their log-probabilities."""
    generation = trainer.vllm_generation
    before = generation.max_completion_length, generation.logprobs, generation.generation_kwargs
    untruncated = {name: each for name, each in (before[2] or {}).items() if name not in _REQUEST_ARGS.values()}
    generation.max_completion_length, generation.logprobs = tokens, 0
    generation.generation_kwargs = {**untruncated, **parameters}
    try:
        _, completion_ids, logps, _ = generation.generate(prompts, images=None, num_generations=1)
    finally:
        generation.max_completion_length, generation.logprobs, generation.generation_kwargs = before
    return [list(ids) for ids in completion_ids], [[token[0] for token in row] for row in logps]


@torch.no_grad()
def _scored(trainer: Any, prompt: list[int], completion: list[int]) -> torch.Tensor:
    ids = torch.tensor([prompt + completion], device=trainer.accelerator.device)
    logps, *_ = trainer._get_per_token_logps_and_entropies(trainer.model, ids, torch.ones_like(ids), len(completion))
    return logps[0].float().cpu()
