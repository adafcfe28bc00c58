"""What a sampler of training may be told."""

import inspect
import re

import pytest
from transformers import GenerationConfig, GenerationMixin

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.refuse_off_policy import NEUTRAL, refuse_off_policy

# How far a completion goes, what scores are divided by on both sides, and what changes no distribution.
HARMLESS = {"max_length", "renormalize_logits", "temperature", "use_cache"}


def test_every_option_that_transformers_makes_a_processor_or_another_search_of_is_known():
    processors = inspect.getsource(GenerationMixin._get_logits_processor)
    searches = inspect.getsource(GenerationConfig.get_generation_mode)
    read = {*re.findall(r"generation_config\.([a-z]\w+)", processors), *re.findall(r"self\.([a-z]\w+)", searches)}
    assert {"top_k", "suppress_tokens", "num_beams"} < read
    assert read - HARMLESS <= NEUTRAL.keys()


@pytest.mark.parametrize(
    ("grpo", "said"),
    [
        ({"generation_kwargs": {"top_k": 2}}, "generation_kwargs.top_k=2 and top_k=0 are the same thing"),
        ({"use_vllm": True, "top_p": 0.9}, "top_p: with vLLM, which reports about top_k kept texts, set top_k=50 too"),
        ({"repetition_penalty": 1.1}, "repetition_penalty=1.1: the trained and the sampled policy would differ"),
        ({"neftune_noise_alpha": 5.0}, "neftune_noise_alpha=5.0: the trained"),
        ({"temperature": 0.0}, "temperature=0.0: must be above 0"),
        ({"generation_kwargs": {"do_sample": False}}, "generation_kwargs.do_sample=false: the trained"),
        ({"generation_kwargs": {"bad_words_ids": [[5]]}}, "generation_kwargs.bad_words_ids="),
        ({"generation_kwargs": {"temperature": 0.5}}, "same thing"),
        ({"generation_kwargs": {"use_cash": True}}, "did you mean use_cache"),
        ({"use_vllm": True, "generation_kwargs": {"logit_bias": {5: 1.0}}}, "generation_kwargs.logit_bias="),
        ({"use_vllm": True, "generation_kwargs": {"do_sample": True}}, "do_sample=True: not used here"),
        ({"use_vllm": True, "vllm_structured_outputs_regex": "[0-9]+"}, "vllm_structured_outputs_regex="),
        ({"use_transformers_continuous_batching": True}, "bypasses the region policy"),
        ({"rollout_func": print}, "rollout_func: "),
    ],
)
def test_another_distribution_than_the_scored_one_is_refused_by_the_name_of_the_field(grpo, said):
    with pytest.raises(UserError, match=re.escape(said)):
        refuse_off_policy({"temperature": 1.0, **grpo}, reasoning=True)


@pytest.mark.parametrize(
    "grpo",
    [
        {},
        {"top_k": 0, "top_p": 1.0, "min_p": None, "repetition_penalty": 1.0, "generation_kwargs": None},
        {"temperature": 0.7, "generation_kwargs": {"temperature": 0.7, "do_sample": True, "num_beams": 1}},
        {"generation_kwargs": {"use_cache": True, "cache_implementation": "static"}},
        {"top_k": 20, "top_p": 0.9, "use_vllm": True},
        {"min_p": 0.1, "top_p": 0.9, "generation_kwargs": {"min_p": 0.1, "top_k": 0}},
        {"use_transformers_continuous_batching": True},
        {"tools": [len], "environment_factory": dict, "rollout_func": None, "max_tool_calling_iterations": 3},
    ],
)
def test_what_changes_nothing_passes(grpo):
    refuse_off_policy({"temperature": 1.0, **grpo}, reasoning=False)
