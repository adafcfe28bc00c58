"""Accuracy over problems, counted another way."""

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.evaluation.evaluate import accuracy_of, evaluate_checkpoint
from rlvr_vocab.evaluation.sampling import SamplingSettings, sample_completions
from rlvr_vocab.rewards.grader import Grade, GraderSpec

SCORES = (0.5, 1.0, 0.0, 1.0, None, None)  # only a full score is right


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
