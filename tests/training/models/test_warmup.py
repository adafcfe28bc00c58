"""The supervised warm-up learns, stops in time, and leaves an ordinary folder."""

import math

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlvr_vocab.training.models.warmup import WorkedProblem, warm_up
from rlvr_vocab.training.settings import WarmupSettings

PROBLEM = WorkedProblem([{"role": "user", "content": "What is 3 + 4?"}], "<think>3 + 4</think>\\boxed{7}")


def run(base, out, accuracies, **fields):
    seen, measured = [], iter(accuracies)

    def measure(model, tokenizer):
        return next(measured)

    settings = WarmupSettings(**{"max_steps": 6, "batch_size": 4, "check_every": 2, **fields})
    outcome = warm_up(base, out, [PROBLEM] * 8, settings, 42, measure, lambda *row: seen.append(row))
    return outcome, seen


@pytest.fixture(scope="module")
def base(make_shape):
    return make_shape("qwen3").folder


def test_the_first_good_check_stops_the_warm_up(base, tmp_path):
    outcome, seen = run(base, tmp_path, [0.1, 0.5, 0.9], until_accuracy=0.4)
    assert (outcome.steps, outcome.accuracy) == (4, 0.5)
    assert [row for row in seen if row[3] is not None] == [(2, 6, None, 0.1), (4, 6, None, 0.5)]


def test_without_a_target_it_runs_to_its_end_and_the_worked_answer_gets_likelier(base, tmp_path):
    outcome, _ = run(base, tmp_path, [], learning_rate=1e-2)
    assert (outcome.steps, outcome.accuracy) == (6, None)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    ids = tokenizer.apply_chat_template(PROBLEM.prompt, add_generation_prompt=True, return_dict=False)
    answer = tokenizer.encode(PROBLEM.turn, add_special_tokens=False)
    losses = []
    for folder in (base, tmp_path):
        model = AutoModelForCausalLM.from_pretrained(folder)
        labels = torch.tensor([[-100] * len(ids) + answer])
        with torch.no_grad():
            losses.append(model(input_ids=torch.tensor([ids + answer]), labels=labels).loss.item())
    assert math.isfinite(losses[1]) and losses[1] < losses[0] - 0.1
