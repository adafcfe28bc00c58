"""What an engine does on account of the plugin being installed: nothing for other models, refusals where it must."""

import pytest
import torch

pytest.importorskip("vllm", reason="vllm is not installed here: make test-vllm has an environment of its own")

from vllm.engine.arg_utils import EngineArgs
from vllm.v1.sample import logits_processor as vllm_processors

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.vllm_plugin import NAME_OF_INSTALLED, NAME_OF_NAMED, NamedVLLMRegionProcessor, VLLMRegionProcessor

PROMPTS = [[1, 9531, 198, 40 + number] for number in range(8)]
REQUESTS = PROMPTS, [0.0, 1.0] * 4, [12] * 8


def config(folder, **settings):
    return EngineArgs(model=str(folder), max_model_len=256, **settings).create_engine_config()


def processors_of_ours(llm):
    worker = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker
    every = worker.model_runner.input_batch.logitsprocs.all
    return [one for one in every if isinstance(one, VLLMRegionProcessor)]


def test_a_stock_model_samples_what_it_samples_without_the_plugin(smollm2, start_engine, sample, monkeypatch):
    with_plugin = start_engine(smollm2)
    ours = processors_of_ours(with_plugin)
    assert [type(one) for one in ours] == [VLLMRegionProcessor] and ours[0].is_argmax_invariant()
    assert not with_plugin.llm_engine.vllm_config.model_config.logits_processors
    answers = sample(with_plugin, *REQUESTS)
    monkeypatch.setattr(vllm_processors, "_load_logitsprocs_plugins", list)
    without = start_engine(smollm2)
    assert not processors_of_ours(without)
    assert sample(without, *REQUESTS) == answers


def test_with_a_reasoning_vocabulary_one_processor_is_in_force_and_told_of_every_token(expand_shape, start_engine):
    llm = start_engine(expand_shape("qwen3", size=None))
    in_force = [one for one in processors_of_ours(llm) if not one.is_argmax_invariant()]
    assert [type(one) for one in in_force] == [NamedVLLMRegionProcessor]


def test_speculative_decoding_and_prompts_without_ids_are_refused(expand_shape, make_shape):
    ngram = {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 2}
    assert config(make_shape("llama").folder, speculative_config=dict(ngram)).speculative_config is not None
    with pytest.raises(UserError, match="without --speculative-config"):
        config(expand_shape("llama", size=None), speculative_config=dict(ngram))
    with pytest.raises(UserError, match="without --enable-prompt-embeds"):
        config(expand_shape("llama", size=None), enable_prompt_embeds=True)


@pytest.mark.parametrize("named", [NAME_OF_INSTALLED, VLLMRegionProcessor])
def test_naming_the_installed_processor_is_refused_since_its_bias_would_count_twice(named, expand_shape):
    with pytest.raises(UserError, match="leave it out of logits_processors"):
        config(expand_shape("llama", size=None), logits_processors=[named])


def test_other_processors_that_a_user_names_stay_named(expand_shape):
    other = "vllm.v1.sample.logits_processor.builtin:MinPLogitsProcessor"
    made = config(expand_shape("llama", size=None), logits_processors=[other])
    assert made.model_config.logits_processors == [other, NAME_OF_NAMED]


@pytest.mark.usefixtures("asynchronous")
def test_kept_out_by_vllm_plugins_the_policy_refuses_to_guess_late_tokens(expand_shape):
    made = config(expand_shape("llama", size=None))
    made.model_config.logits_processors = None
    with pytest.raises(UserError, match="rlvr_vocab_engine"):
        VLLMRegionProcessor(made, torch.device("cpu"), False)
