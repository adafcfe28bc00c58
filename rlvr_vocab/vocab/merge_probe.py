"""The chat on which a merged model is compared with the one that trained: real text, with thinking in it."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase

from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout
from rlvr_vocab.vocab.policy import open_copies
from rlvr_vocab.vocab.read_as_data import NO_CODE
from rlvr_vocab.vocab.regions import THINKING, region_of_next
from rlvr_vocab.vocab.tokenizer import load_tokenizer

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
        opened = bool(region_of_next(torch.tensor([prompt]), layout)[0] == THINKING)
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
