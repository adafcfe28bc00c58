"""Answers of a checkpoint: seeded, in order, without a trace in the caller's random state, each graded on its turn."""

from dataclasses import replace

import pytest
import torch

from rlvr_vocab.errors import UserError
from rlvr_vocab.evaluation.evaluate import accuracy_of, evaluate_checkpoint
from rlvr_vocab.evaluation.sampling import SamplingSettings, sample_completions
from rlvr_vocab.rewards.grader import Grade, GraderSpec

SETTINGS = SamplingSettings(max_new_tokens=12, batch_size=2, seed=5)
SCORES = (0.5, 1.0, 0.0, 1.0, None, None)  # only a full score is right


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
    as_trained = {"max_completion_length": 1, "temperature": 1e4, "top_k": 3, "top_p": 1.0}
    settings = SamplingSettings.of_training(as_trained, batch_size=600)
    truncated = sample_completions(checkpoint, rows[:1] * 600, settings)
    texts = {each.completion_ids[0] % checkpoint.layout.standard_size for each in truncated}
    assert len(texts) == 3 < len({each.completion_ids[0] for each in truncated})


def test_each_answer_is_graded_on_its_whole_turn(checkpoint, rows):
    rows = [
        {**row, "problem": row["prompt"][-1]["content"], "solution": str(number)} for number, row in enumerate(2 * rows)
    ]
    graded = []

    class Scored:
        spec, reads_answers = GraderSpec((), 1.0), False

        def grades(self, rows, turns, completion_ids, environments):
            graded.extend(zip(turns, (row["solution"] for row in rows), completion_ids, strict=True))
            return [Grade(score) for score in SCORES]

    settings = SamplingSettings(max_new_tokens=10, seed=3)
    results = evaluate_checkpoint(checkpoint, rows, Scored(), settings)
    assert [(r.problem, r.sample, r.solution) for r in results] == [(n, 0, str(n)) for n in range(6)]
    assert tuple(r.score for r in results) == SCORES
    assert graded == [(r.completion, r.solution, r.completion_ids) for r in results]
    assert accuracy_of(results) == 0.5 and accuracy_of(results[4:]) is None
    repeated = sample_completions(checkpoint, rows, settings)
    layout = checkpoint.layout
    for r, completion in zip(results, repeated, strict=True):
        assert (r.completion, r.completion_ids) == (completion.turn, completion.completion_ids)
        assert r.tokens == len(r.completion_ids)
        assert r.prompt == rows[r.problem]["prompt"][-1]["content"]
        assert r.reasoning_tokens == sum(token >= layout.standard_size for token in completion.completion_ids)
        thinking, inside = 0, True  # the template opens the thinking
        for token in completion.completion_ids:
            thinking += inside
            inside = token == layout.think_open_id or (inside and token != layout.think_close_id)
        assert (r.thinking_tokens, r.closed) == (thinking, not inside)


def test_a_problem_that_outgrows_the_context_is_refused_before_anything_is_sampled(checkpoint, rows):
    settings = SamplingSettings(max_new_tokens=512)
    with pytest.raises(UserError, match=r'^prompt 3, "What is 500 .*": its \d+ tokens and max_new_tokens=512 do not'):
        evaluate_checkpoint(checkpoint, rows, None, settings, on_progress=lambda *done: pytest.fail("sampled"))
