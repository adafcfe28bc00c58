"""Stock pipelines on our folders: with the processor they follow the region policy, without it they do not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TokenizersBackend, pipeline

from rlvr_vocab import RegionLogitsProcessor
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import scored_regions

QUESTION = [{"role": "user", "content": "What is 3 + 4?"}]


def sampled_ids(pipe: Any, seed: int, **kwargs: Any) -> list[int]:
    torch.manual_seed(seed)
    [output] = pipe(QUESTION, max_new_tokens=30, temperature=0.7, return_tensors=True, **kwargs)
    return output["generated_token_ids"]


def forbidden(pipe: Any, layout: VocabLayout, ids: list[int]) -> int:
    """Sampled ids that the policy does not allow where they stand."""
    start = len(pipe.tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True, return_dict=False))
    regions = scored_regions(torch.tensor([ids]), layout)[0, start:]
    allowed = torch.isfinite(RegionPolicy(layout).bias)[regions, torch.tensor(ids[start:])]
    return int((~allowed).sum())


@pytest.mark.parametrize(("name", "opens"), [("qwen3", "model"), ("qwen2", "prefill")])
def test_a_pipeline_with_the_processor_gives_no_forbidden_id_and_without_it_does(
    name: str, opens: str, expand_shape: Callable[..., Path]
) -> None:
    folder = str(expand_shape(name, size=None, open_thinking=opens))
    layout = VocabLayout.load(folder)
    pipe = pipeline("text-generation", model=folder, tokenizer=TokenizersBackend.from_pretrained(folder))
    regions = RegionLogitsProcessor.from_folder(folder, temperature=0.7)
    with_policy = [sampled_ids(pipe, seed, logits_processor=[regions]) for seed in range(6)]
    assert sum(forbidden(pipe, layout, ids) for ids in with_policy) == 0
    without = [sampled_ids(pipe, seed) for seed in range(6)]
    thinks = any(token >= layout.standard_size for ids in with_policy for token in ids)
    # These models hardly ever close what they think: where the prompt opens the thinking, nothing is forbidden but
    # what nobody may sample, and where it does not, all reasoning tokens are.
    assert thinks if opens == "prefill" else sum(forbidden(pipe, layout, ids) for ids in without) > 0


def test_a_temperature_of_0_is_a_greedy_search_under_the_forbids_alone(expand_shape: Callable[..., Path]) -> None:
    folder = expand_shape("llama", size=200)
    policy, regions = RegionPolicy(VocabLayout.load(folder)), torch.tensor([1, 0])
    ids, logits = torch.tensor([[5, policy.layout.think_open_id], [5, 6]]), torch.randn(2, policy.layout.rows)
    processed = RegionLogitsProcessor.from_folder(folder, temperature=0)(ids, logits)
    assert torch.equal(processed, logits.masked_fill(policy.bias[regions].isinf(), -torch.inf))
