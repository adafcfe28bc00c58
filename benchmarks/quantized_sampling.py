"""How far the log-probability of a token scored in a whole sequence is from that of sampling it, token by token.

    python benchmarks/quantized_sampling.py MODEL

MODEL is a folder or a hub name. Rows: float32, LLM.int8() as bitsandbytes evaluates it, and 8 and 4 bit as a run of
this package computes them. The last column is the distance of the scores from those of float32: what quantization
itself costs.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

from rlvr_vocab.training.models.lora import compute_one_policy, quantization_config

PROMPT = [{"role": "user", "content": "Natalia sold 48 clips in April and half as many in May. How many in all?"}]
NEW_TOKENS = 48


def main(folder: str) -> None:
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    whole = _load(folder, None)
    ids, start = _completion(whole, folder)
    reference = _scored(whole, ids, start)
    stock = BitsAndBytesConfig(load_in_8bit=True)
    eight, four = (quantization_config(bits, folder, torch.float32) for bits in (8, 4))
    kinds = [("float32", None, False), ("LLM.int8()", stock, False), ("8 bit", eight, True), ("4 bit", four, True)]
    print(f"{'':12}{'mean':>10}{'largest':>10}{'to float32':>12}")
    for name, config, ours in kinds:
        model = _load(folder, config)
        if ours:
            compute_one_policy(model)
        scored = _scored(model, ids, start)
        difference = (scored - _token_by_token(model, ids, start)).abs()
        to_float = (scored - reference).abs().mean()
        print(f"{name:12}{difference.mean():10.1e}{difference.max():10.1e}{to_float:12.1e}")


def _load(folder: str, config: BitsAndBytesConfig | None) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, quantization_config=config).eval()


def _completion(model: Any, folder: str) -> tuple[torch.Tensor, int]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompt = tokenizer.apply_chat_template(PROMPT, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    torch.manual_seed(0)
    ids = model.generate(**prompt, max_new_tokens=NEW_TOKENS, do_sample=True, top_k=0)
    return ids, prompt["input_ids"].size(1)


@torch.no_grad()
def _scored(model: Any, ids: torch.Tensor, start: int) -> torch.Tensor:
    return _chosen(model(ids).logits[:, start - 1 : -1], ids[:, start:])


@torch.no_grad()
def _token_by_token(model: Any, ids: torch.Tensor, start: int) -> torch.Tensor:
    step = model(ids[:, :start], use_cache=True)
    logits = [step.logits[:, -1]]
    for position in range(start, ids.size(1) - 1):
        step = model(ids[:, position : position + 1], past_key_values=step.past_key_values, use_cache=True)
        logits.append(step.logits[:, -1])
    return _chosen(torch.stack(logits, dim=1), ids[:, start:])


def _chosen(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    return logits.log_softmax(-1).gather(2, ids.unsqueeze(2)).squeeze(2)


if __name__ == "__main__":
    main(sys.argv[1])
