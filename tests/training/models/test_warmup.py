"""The supervised warm-up learns, stops in time, and leaves an ordinary folder."""

import math
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlvr_vocab.training.models import warmup
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
    assert [row for row in seen if "accuracy" in row[2]] == [(2, 6, {"accuracy": 0.1}), (4, 6, {"accuracy": 0.5})]


def test_its_speed_counts_the_examples_and_not_the_seconds_of_measuring(base, tmp_path, monkeypatch):
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(warmup, "time", SimpleNamespace(perf_counter=lambda: now.seconds))
    step = warmup.SFTTrainer.training_step

    def in_two_seconds(*args, **kwargs):
        now.seconds += 2.0
        return step(*args, **kwargs)

    def measured(model, tokenizer):
        now.seconds += 1000.0

    monkeypatch.setattr(warmup.SFTTrainer, "training_step", in_two_seconds)
    settings, seen = WarmupSettings(max_steps=10, batch_size=4, check_every=2, until_accuracy=0.5), []
    warm_up(base, tmp_path, [PROBLEM] * 8, settings, 42, measured, lambda *row: seen.append(row[2]))
    assert [figures["examples/s"] for figures in seen if figures] == [4 / 2.0]


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
