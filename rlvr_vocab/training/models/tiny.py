"""The embedded model: a Qwen3 of under a million parameters with a tokenizer of its own, made on the spot."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from rlvr_vocab.training.models.tiny_tokenizer import tiny_tokenizer
from rlvr_vocab.training.settings import TinyShape

CONTEXT = 8192  # tokens; with rotary positions a longer one costs nothing, and competition problems fit


def write_tiny_model(
    folder: Path, shape: TinyShape, texts: Iterable[str], think_tags: tuple[str, str], seed: int
) -> None:
    """Write an untrained model that knows the think tags, with a vocabulary of bytes and of the words in `texts`."""
    tokenizer = tiny_tokenizer(texts, think_tags)
    eos, pad = (tokenizer.convert_tokens_to_ids(token) for token in ("<|im_end|>", "<|endoftext|>"))
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        eos_token_id=eos,
        pad_token_id=pad,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(str(folder))
