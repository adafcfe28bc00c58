"""Answers of a checkpoint: seeded, in order, and without a trace in the caller's random state."""

import random
from dataclasses import replace

import pytest
import torch

from rlvr_vocab.errors import UserError
from rlvr_vocab.evaluation.sampling import SamplingSettings, load_checkpoint, sample_completions
from rlvr_vocab.vocab.regions import scored_regions

SETTINGS = SamplingSettings(max_new_tokens=12, batch_size=2, seed=5)


def test_the_same_seed_gives_the_same_completions_and_another_seed_others(checkpoint, prompts):
    first = sample_completions(checkpoint, prompts, SETTINGS)
    torch.manual_seed(123)
    assert sample_completions(checkpoint, prompts, SETTINGS) == first
    assert sample_completions(checkpoint, prompts, replace(SETTINGS, seed=6)) != first


def test_the_random_state_and_the_mode_of_the_caller_are_left_as_they_were(checkpoint, prompts):
    torch.manual_seed(1)
    random.seed(1)
    torch_state, python_state = torch.get_rng_state(), random.getstate()
    checkpoint.model.train()
    sample_completions(checkpoint, prompts, SETTINGS)
    assert checkpoint.model.training
    assert torch.equal(torch.get_rng_state(), torch_state) and random.getstate() == python_state
    checkpoint.model.eval()


def test_completions_come_in_the_order_of_their_prompts(checkpoint, prompts):
    seen = []
    completions = sample_completions(checkpoint, prompts, SETTINGS, lambda done, total: seen.append((done, total)))
    assert seen == [(2, 3), (3, 3)]
    for prompt, completion in zip(prompts, completions, strict=True):
        ids = checkpoint.tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False)
        assert completion.prompt_ids == ids
        sampled = checkpoint.tokenizer.decode(completion.completion_ids, skip_special_tokens=True)
        assert completion.turn == "<think>\n" + sampled


def test_a_completion_ends_with_its_first_end_of_sequence(checkpoint, prompts):
    end = checkpoint.model.generation_config.eos_token_id
    many = [prompts[0]] * 60
    settings = SamplingSettings(max_new_tokens=40, temperature=3.0, batch_size=60)
    completions = sample_completions(checkpoint, many, settings)
    finished = [completion for completion in completions if completion.finished]
    assert 0 < len(finished) < 60
    for completion in completions:
        assert completion.finished == (end in completion.completion_ids)
        assert end not in completion.completion_ids[:-1]
        assert completion.finished or len(completion.completion_ids) == 40


def test_sampling_follows_the_policy(checkpoint, prompts):
    settings = SamplingSettings(max_new_tokens=40, temperature=2.0, batch_size=30)
    for completion in sample_completions(checkpoint, prompts * 10, settings):
        ids = torch.tensor([completion.prompt_ids + completion.completion_ids])
        regions = scored_regions(ids, checkpoint.layout)[0, len(completion.prompt_ids) :]
        for token, region in zip(completion.completion_ids, regions.tolist(), strict=True):
            assert token < checkpoint.layout.standard_size or region == 1


def test_a_temperature_of_zero_is_greedy_whatever_the_seed(checkpoint, prompts):
    greedy = replace(SETTINGS, temperature=0.0)
    assert sample_completions(checkpoint, prompts, greedy) == sample_completions(
        checkpoint, prompts, replace(greedy, seed=9)
    )


def test_nothing_is_cut_from_the_distribution(checkpoint, prompts):
    # At a high temperature 50 ids (Transformers' default cut) would cover a small part of the vocabulary.
    settings = SamplingSettings(max_new_tokens=1, temperature=1e4, batch_size=600)
    first = [completion.completion_ids[0] for completion in sample_completions(checkpoint, prompts[:1] * 600, settings)]
    assert len(set(first)) > 250


def test_a_folder_without_a_layout_is_said_in_one_line(make_shape):
    with pytest.raises(UserError, match=r"reasoning_vocab\.json"):
        load_checkpoint(make_shape("llama").folder)
