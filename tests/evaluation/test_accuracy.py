"""Accuracy over problems and samples, counted another way."""

import json

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.evaluation.evaluate import accuracy_of, evaluate_checkpoint
from rlvr_vocab.evaluation.sampling import SamplingSettings, sample_completions
from rlvr_vocab.record.results import ProblemResult, read_results, write_results
from rlvr_vocab.rewards.grader import Grade, GraderSpec

# With signs that some readers take for the end of a line.
BROKEN = "a\nb \ud800 \x00 \u2028 \x85"


def result(score, completion=""):
    return ProblemResult(0, 0, "p", "s", completion, score, 1, 0, 0, False, True)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([1.0, 0.0, 0.0, 1.0], 0.5),
        ([1.0, 0.5], 0.5),  # only a full score is right
        ([1.0, None, 0.0, None], 0.5),
        ([None], None),
        ([], None),
        ([0.0], 0.0),
    ],
)
def test_accuracy_is_the_share_of_gradable_answers_that_are_right(scores, expected):
    assert accuracy_of([result(score) for score in scores]) == expected


def test_each_sample_of_each_problem_is_graded_on_its_whole_turn(checkpoint, prompts):
    rows = [
        {"prompt": prompt, "problem": prompt[-1]["content"], "solution": str(number)}
        for number, prompt in enumerate(prompts)
    ]
    graded = []

    class EverySecond:
        spec, reads_answers = GraderSpec((), 1.0), False

        def grades(self, rows, turns, completion_ids):
            graded.extend(zip(turns, (row["solution"] for row in rows), completion_ids, strict=True))
            return [Grade(None if row["solution"] == "2" else float(number % 2)) for number, row in enumerate(rows)]

    settings = SamplingSettings(max_new_tokens=10, seed=3)
    results = evaluate_checkpoint(checkpoint, rows, EverySecond(), settings, samples=2)
    assert [(r.problem, r.sample) for r in results] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert [r.solution for r in results] == ["0", "0", "1", "1", "2", "2"]
    assert [r.score for r in results] == [0.0, 1.0, 0.0, 1.0, None, None]
    assert graded == [(r.completion, r.solution, r.completion_ids) for r in results]
    assert accuracy_of(results) == 0.5
    repeated = sample_completions(checkpoint, [row["prompt"] for row in rows for _ in range(2)], settings)
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


def test_results_are_one_json_object_a_line_even_with_broken_text(tmp_path):
    path = tmp_path / "new" / "results.jsonl"
    results = [result(1.0, BROKEN), result(None, "日本")]
    write_results(results, path)
    assert read_results(path) == results
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    lines = path.read_bytes().decode("utf-8", errors="surrogatepass").split("\n")
    assert lines[-1] == "" and len(lines) == 3
    assert [json.loads(line)["completion"] for line in lines[:-1]] == [BROKEN, "日本"]
    assert [json.loads(line)["score"] for line in lines[:-1]] == [1.0, None]


def test_a_problem_that_outgrows_the_context_is_refused_before_anything_is_sampled(checkpoint, prompts):
    rows = [{"prompt": prompt, "solution": "1"} for prompt in prompts]
    batches = []
    with pytest.raises(
        UserError, match=r'^prompt 3, "What is 500 \+ 250000\?": its \d+ tokens and max_new_tokens=512 do not'
    ):
        evaluate_checkpoint(
            checkpoint, rows, None, SamplingSettings(max_new_tokens=512), on_progress=lambda *done: batches.append(done)
        )
    assert batches == []
