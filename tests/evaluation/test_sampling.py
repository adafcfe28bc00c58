"""Answers of a checkpoint: seeded, in order, and without a trace in the caller's random state."""

from dataclasses import replace

import torch

from rlvr_vocab.evaluation.sampling import SamplingSettings, sample_completions

SETTINGS = SamplingSettings(max_new_tokens=12, batch_size=2, seed=5)


def test_a_seed_decides_the_completions_and_nothing_of_the_caller_changes(checkpoint, rows):
    first = sample_completions(checkpoint, rows, SETTINGS)
    torch.manual_seed(123)
    before = torch.get_rng_state()
    checkpoint.model.train()
    assert sample_completions(checkpoint, rows, SETTINGS) == first
    assert checkpoint.model.training and torch.equal(torch.get_rng_state(), before)
    checkpoint.model.eval()
    assert sample_completions(checkpoint, rows, replace(SETTINGS, seed=6)) != first
    greedy = [sample_completions(checkpoint, rows, replace(SETTINGS, temperature=0.0, seed=s)) for s in (5, 9)]
    assert greedy[0] == greedy[1]


def test_completions_come_in_the_order_of_their_rows(checkpoint, rows):
    seen = []
    completions = sample_completions(checkpoint, rows, SETTINGS, lambda done, total: seen.append((done, total)))
    assert seen == [(2, 3), (3, 3)]
    for row, completion in zip(rows, completions, strict=True):
        ids = checkpoint.tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, return_dict=False)
        assert completion.prompt_ids == ids
        sampled = checkpoint.tokenizer.decode(completion.completion_ids, skip_special_tokens=True)
        assert completion.turn == "<think>\n" + sampled


def test_a_completion_ends_with_its_first_end_of_sequence(checkpoint, rows):
    end = checkpoint.model.generation_config.eos_token_id
    settings = SamplingSettings(max_new_tokens=40, temperature=3.0, batch_size=60)
    completions = sample_completions(checkpoint, rows[:1] * 60, settings)
    finished = [completion for completion in completions if completion.finished]
    assert 0 < len(finished) < 60
    for completion in completions:
        assert completion.finished == (end in completion.completion_ids)
        assert end not in completion.completion_ids[:-1]
        assert completion.finished or len(completion.completion_ids) == 40


def test_nothing_is_cut_from_the_distribution(checkpoint, rows):
    # At a high temperature 50 ids (Transformers' default cut) would cover a small part of the vocabulary.
    settings = SamplingSettings(max_new_tokens=1, temperature=1e4, batch_size=600)
    first = [completion.completion_ids[0] for completion in sample_completions(checkpoint, rows[:1] * 600, settings)]
    assert len(set(first)) > 250
