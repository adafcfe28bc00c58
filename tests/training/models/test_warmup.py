"""The supervised warm-up learns, stops in time, and leaves an ordinary folder."""

import math

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlvr_vocab.training.models.warmup import WorkedProblem, warm_up
from rlvr_vocab.training.settings import WarmupSettings
from rlvr_vocab.vocab.expand import read_with_think_tags

TAGS = ("<think>", "</think>")
PROBLEM = WorkedProblem([{"role": "user", "content": "What is 3 + 4?"}], "<think>3 + 4</think>\\boxed{7}")


def run(base, out, accuracies, problems=(PROBLEM,) * 8, **fields):
    seen, measured = [], iter(accuracies)

    def measure():
        return next(measured)

    settings = WarmupSettings(**{"max_steps": 6, "batch_size": 4, "check_every": 2, **fields})
    unfinished = out / "unfinished"
    model, tokenizer = read_with_think_tags(str(base), TAGS)
    outcome = warm_up(model, tokenizer, unfinished, problems, settings, 42, measure, lambda *row: seen.append(row))
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return outcome, seen


@pytest.fixture(scope="module")
def base(make_shape):
    return make_shape("qwen3").folder


def test_the_first_good_check_stops_the_warm_up(base, tmp_path):
    outcome, seen = run(base, tmp_path, [0.1, 0.5, 0.9], until_accuracy=0.4)
    assert (outcome.steps, outcome.accuracy) == (4, 0.5)
    assert [row for row in seen if "accuracy" in row[2]] == [(2, 6, {"accuracy": 0.1}), (4, 6, {"accuracy": 0.5})]
    # Killed before its model is saved it takes the last steps again, and stops where it stopped.
    assert [path.name for path in (tmp_path / "unfinished").glob("checkpoint-*")] == ["checkpoint-2"]
    again, _ = run(base, tmp_path, [0.5], until_accuracy=0.4)
    assert again == outcome


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


@pytest.mark.parametrize("bf16", [True, False])
def test_it_trains_and_measures_in_bfloat16_where_that_is_asked(base, tmp_path, bf16):
    model, tokenizer = read_with_think_tags(str(base), TAGS)
    computed = []
    model.get_input_embeddings().register_forward_hook(lambda *_: computed.append(torch.is_autocast_enabled("cpu")))

    def measure():
        model(input_ids=torch.tensor([[1, 2]]))
        computed.append(torch.is_autocast_enabled("cpu"))

    settings = WarmupSettings(max_steps=2, batch_size=2, check_every=2, until_accuracy=0.5)
    warm_up(model, tokenizer, tmp_path, [PROBLEM] * 8, settings, 42, measure, bf16=bf16)
    assert len(computed) == 4 and set(computed) == {bf16}
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}


def sums(count):
    return [
        WorkedProblem([{"role": "user", "content": f"What is {n} + 4?"}], f"<think>{n} + 4</think>\\boxed{{{n + 4}}}")
        for n in range(count)
    ]


def test_interrupted_between_two_checks_it_ends_with_the_weights_of_one_that_was_not(base, tmp_path):
    """Over two epochs and more, each in an order of its own."""
    fields = {"problems": sums(10), "max_steps": 7, "until_accuracy": 0.9}
    whole, _ = run(base, tmp_path / "whole", [0.1, 0.2, 0.3], **fields)
    with pytest.raises(StopIteration):
        run(base, tmp_path / "resumed", [0.1, 0.2], **fields)  # at the third check
    assert [path.name for path in (tmp_path / "resumed" / "unfinished").glob("checkpoint-*")] == ["checkpoint-4"]
    resumed, seen = run(base, tmp_path / "resumed", [0.3], **fields)
    assert resumed == whole and whole.steps == 7
    assert [row for row in seen if "accuracy" in row[2]] == [(6, 7, {"accuracy": 0.3})]
    weights = [(tmp_path / folder / "model.safetensors").read_bytes() for folder in ("whole", "resumed")]
    assert weights[0] == weights[1]
