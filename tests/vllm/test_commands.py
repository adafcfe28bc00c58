"""`evaluate backend=vllm`: the policy and the seeds are in force, greedy is greedy."""

import json
from dataclasses import replace
from functools import partial

import pytest
import torch

pytest.importorskip("vllm", reason="vllm is not installed here: make test-vllm has an environment of its own")

from rlvr_vocab.cli import main
from rlvr_vocab.evaluation.evaluate import seeded_sampler
from rlvr_vocab.evaluation.sampling import Chat, SamplingSettings, load_checkpoint
from rlvr_vocab.evaluation.vllm_sampling import vllm_sampler
from rlvr_vocab.tools.format import ToolFormat
from rlvr_vocab.tools.transcripts import ToolLoop
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import ANSWERING, THINKING, scored_regions
from rlvr_vocab.vocab.tokenizer import load_tokenizer
from tests.vllm.conftest import ask_in_tags

PROMPTS = [[{"role": "user", "content": f"What is {number} + {number * number}?"}] for number in range(3, 9)]
ROWS = [{"prompt": prompt} for prompt in PROMPTS]


@pytest.fixture(autouse=True)
def small_engines(monkeypatch):
    """Nothing is compiled, and what an engine leaves in its process is cleared: a command has a process of its own."""
    from vllm import LLM
    from vllm.distributed import cleanup_dist_env_and_memory

    monkeypatch.setattr("vllm.LLM", partial(LLM, enforce_eager=True))
    yield
    cleanup_dist_env_and_memory()


def reasoning_tokens(layout, prompt, ids):
    """How many of the sampled ids are reasoning tokens, by the region in which they were chosen."""
    regions = scored_regions(torch.tensor([[*prompt, *ids]]), layout)[0, len(prompt) :].tolist()
    found = {THINKING: 0, ANSWERING: 0}
    for token, region in zip(ids, regions, strict=True):
        found[region] += token >= layout.standard_size
    return found


@pytest.fixture
def problems(tmp_path):
    path = tmp_path / "problems.jsonl"
    rows = [{"problem": prompt[0]["content"], "answer": str(number)} for number, prompt in enumerate(PROMPTS)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return f"dataset.name={path}"


def test_sampled_answers_follow_the_policy_and_each_question_has_its_seed(chatty_smollm2):
    folder = chatty_smollm2("expand")
    layout, tokenizer = VocabLayout.load(folder), load_tokenizer(folder)
    settings = SamplingSettings(max_new_tokens=32, seed=5)
    with vllm_sampler(folder, Chat(tokenizer, layout), PROMPTS, settings) as sample:
        together = sample(ROWS, 0)
        apart = [*sample(ROWS[:2], 0), *sample(ROWS[2:], 2)]
        repeated = sample(ROWS[:1] * 3, 0)
    assert apart == together
    assert len({tuple(each.completion_ids) for each in repeated}) == 3
    found = [reasoning_tokens(layout, each.prompt_ids, each.completion_ids) for each in together]
    assert sum(each[THINKING] for each in found) > 0 and not any(each[ANSWERING] for each in found)
    for completion in together:
        assert completion.finished == (completion.completion_ids[-1] == tokenizer.eos_token_id)


def test_top_p_is_over_texts_so_that_a_single_text_still_has_its_copies(chatty_smollm2):
    folder = chatty_smollm2("expand")
    layout = VocabLayout.load(folder)
    settings = SamplingSettings(max_new_tokens=24, truncation={"top_p": 1e-6})
    with vllm_sampler(folder, Chat(load_tokenizer(folder), layout), PROMPTS, settings) as sample:
        ids = [each.completion_ids for each in sample(ROWS[:1] * 4, 0)]
    texts = {tuple(RegionPolicy(layout).surface_ids(torch.tensor(each)).tolist()) for each in ids}
    assert len({*map(tuple, ids)}) == 4 and len(texts) == 1


def test_greedy_answers_are_those_of_transformers(chatty_smollm2):
    folder = chatty_smollm2("expand")
    checkpoint = load_checkpoint(folder)
    settings = SamplingSettings(max_new_tokens=16, temperature=0.0)
    expected = seeded_sampler(checkpoint, settings)(ROWS, 0)
    with vllm_sampler(folder, checkpoint, PROMPTS, settings) as sample:
        assert sample(ROWS, 0) == expected


@pytest.mark.parametrize("past_thinking", ["keep", "strip", "reencode"])
def test_turns_after_a_call_are_those_of_transformers_and_have_seeds_of_their_own(past_thinking, calling_shape):
    folder = calling_shape("llama_of_vllm", size=None, open_thinking="prefill")
    checkpoint = load_checkpoint(folder)
    form = ToolFormat(checkpoint.tokenizer, checkpoint.layout, {})
    tools = ToolLoop(form, [ask_in_tags], past_thinking=past_thinking)
    checkpoint = replace(checkpoint, tools=tools)
    greedy, drawn = (SamplingSettings(max_new_tokens=180, temperature=each, seed=4) for each in (0.0, 1.0))
    expected = seeded_sampler(checkpoint, greedy)(ROWS, 0)
    assert any(len(each.segments) > 2 for each in expected)
    with vllm_sampler(folder, checkpoint, PROMPTS, greedy) as sample:
        assert sample(ROWS, 0) == expected
    with vllm_sampler(folder, checkpoint, PROMPTS, drawn) as sample:
        together = sample(ROWS, 0)
        assert [*sample(ROWS[:1], 0), *sample(ROWS[1:], 1)] == together
    layout = checkpoint.layout
    for each in together:
        for context, ids in each.turns_ids:
            assert not reasoning_tokens(layout, context, ids)[ANSWERING]


def test_an_engine_without_our_plugin_is_refused(chatty_smollm2, problems, capfd, monkeypatch, tmp_path):
    import vllm

    start = vllm.LLM

    def forgetful(*args, **kwargs):
        """An engine whose configuration has lost the processor that the plugin had named."""
        engine = start(*args, **kwargs)
        engine.llm_engine.vllm_config.model_config.logits_processors = None
        return engine

    monkeypatch.setattr("vllm.LLM", forgetful)
    command = ["evaluate", f"checkpoint={chatty_smollm2('expand')}", problems, "dataset.columns.reasoning=null"]
    assert main([*command, "split=train", "max_new_tokens=4", "backend=vllm", f"out={tmp_path / 'new'}"]) == 2
    assert "without its region policy, because the plugin rlvr_vocab_engine is not loaded" in capfd.readouterr().err
    assert not (tmp_path / "new" / "results.jsonl").exists()
