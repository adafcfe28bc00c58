"""Proves a merge: the adapter on its base and the merged folder, loaded anew, give the same logits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout
from rlvr_vocab.vocab.policy import open_copies
from rlvr_vocab.vocab.read_as_data import NO_CODE
from rlvr_vocab.vocab.regions import THINKING, RegionTracker
from rlvr_vocab.vocab.tokenizer import load_tokenizer

# What float32 arithmetic by itself may be off by: on SmolLM2, whose largest logit is 40, merged and unmerged logits lie
# 9e-5 to 1.8e-4 apart in it, which is 2e-6 to 5e-6 of that, and 3e-5 in float64.
_TOLERANCE, _TOLERATED_SHARE = 1e-4, 2e-5


@dataclass(frozen=True)
class Shift:
    """How far one model is from another on the chat: largest difference of logits, mean KL in nats a token."""

    largest: float
    mean_kl: float


@torch.no_grad()
def logits_of(model: Any, ids: list[int]) -> torch.Tensor:
    """`(T, V)` in float64, computed in float32 with the weights as they are; the model is float32 then."""
    logits: torch.Tensor = model.eval().float()(input_ids=torch.tensor([ids]), use_cache=False).logits
    return logits[0].double()


def require_same(expected: torch.Tensor, merged: torch.Tensor) -> float:
    """The largest difference between the adapter on its base and the merged folder.

    Raises:
        UserError: it is larger than arithmetic explains.
    """
    largest = largest_difference(expected, merged)
    allowed = max(_TOLERANCE, _TOLERATED_SHARE * expected.abs().max().item())
    if not largest <= allowed:
        raise UserError(
            f"merging changes the model: logits differ by {largest:.1e} from the adapter on its base, where "
            f"{allowed:.0e} is allowed; nothing was written"
        )
    return largest


def largest_difference(one: torch.Tensor, other: torch.Tensor) -> float:
    if one.shape != other.shape:
        return float("inf")
    return (one - other).abs().max().item()


def shift(one: torch.Tensor, other: torch.Tensor) -> Shift:
    """From logits to logits; the divergence is that of `other` from `one`."""
    log_p, log_q = one.log_softmax(-1), other.log_softmax(-1)
    kl_T = (log_p.exp() * (log_p - log_q)).sum(-1)
    return Shift(largest_difference(one, other), kl_T.mean().item())


_QUESTION = "Natalia sold 48 clips in April, and half as many in May. How many clips did she sell altogether?"
_THOUGHTS = "In May she sold 48 / 2 = 24 clips, so altogether 48 + 24 = 72."
_ANSWER = "She sold 72 clips: \\boxed{72}."
# Reasoning tokens from all over the vocabulary, beside the copies of the thoughts: the last row may be the lost one.
_SPREAD = 16


def probe_ids(folder: Path) -> list[int]:
    """Ids of a chat with a thinking block in it, its second half in reasoning tokens where there are any.

    Args:
        folder: a model folder; without a `reasoning_vocab.json` the chat has no thinking.
    """
    if (folder / LAYOUT_FILE).is_file():
        layout, tokenizer = VocabLayout.load(folder), load_tokenizer(folder)
        prompt = _prompt_ids(tokenizer)
        opened = RegionTracker(layout, prompt).region == THINKING
        thoughts = tokenizer.encode(_THOUGHTS, add_special_tokens=False)
        thinking = [*thoughts, *_in_reasoning_tokens(thoughts, layout)]
        ids = [*prompt, *([] if opened else [layout.think_open_id]), *thinking, layout.think_close_id]
    else:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), **NO_CODE)
        ids = [*_prompt_ids(tokenizer), *tokenizer.encode(_THOUGHTS, add_special_tokens=False)]
    ids += tokenizer.encode(_ANSWER, add_special_tokens=False)
    config = AutoConfig.from_pretrained(str(folder), **NO_CODE)
    context = getattr(config.get_text_config(), "max_position_embeddings", None)
    return ids[-context:] if context else ids


def _prompt_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    if tokenizer.chat_template is None:
        return list(tokenizer.encode(_QUESTION))
    message = [{"role": "user", "content": _QUESTION}]
    return list(tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=False))


def _in_reasoning_tokens(ids: list[int], layout: VocabLayout) -> list[int]:
    copies, sources = open_copies(layout)
    copy_of = dict(zip(sources.tolist(), copies.tolist(), strict=True))
    spread = torch.linspace(0, max(len(copies) - 1, 0), min(_SPREAD, len(copies))).long()
    return [*(copy_of[token] for token in ids if token in copy_of), *copies[spread].tolist()]
