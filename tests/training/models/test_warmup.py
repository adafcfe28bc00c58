"""The embedded model depends on its seed alone; its warm-up learns, stops in time, and leaves an ordinary folder."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlvr_vocab.training.models.tiny import write_tiny_model
from rlvr_vocab.training.models.warmup import warm_up
from rlvr_vocab.training.settings import TinyShape, WarmupSettings
from rlvr_vocab.vocab.expand import read_with_think_tags

TAGS = ("<think>", "</think>")
SMALL = TinyShape(hidden_size=32, intermediate_size=64, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=16)


def sums(count):
    return [
        {
            "prompt": [{"role": "user", "content": f"What is {n} + 4?"}],
            "completion": [{"role": "assistant", "content": f"<think>{n} + 4</think>\\boxed{{{n + 4}}}"}],
        }
        for n in range(count)
    ]


def run(base, out, accuracies, problems=8, **fields):
    seen, measured = [], iter(accuracies)
    settings = WarmupSettings(**{"max_steps": 6, "batch_size": 4, "check_every": 2, **fields})
    model, tokenizer = read_with_think_tags(str(base), TAGS)
    outcome = warm_up(
        *(model, tokenizer, out / "unfinished", sums(problems), settings, 42),
        lambda: next(measured),
        lambda *row: seen.append(row),
    )
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return outcome, [row for row in seen if "accuracy" in row[2]]


def left_in(folder):
    return [path.name for path in (folder / "unfinished").glob("checkpoint-*")]


@pytest.fixture(scope="module")
def base(make_shape):
    return make_shape("qwen3").folder


def test_the_seed_decides_the_embedded_model_and_the_random_state_stays(tmp_path):
    state = torch.get_rng_state()
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        write_tiny_model(tmp_path / name, SMALL, ["Box the answer."] * 5, TAGS, seed)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in "abc"]
    assert weights[0] == weights[1] != weights[2] and torch.equal(torch.get_rng_state(), state)
    model, info = AutoModelForCausalLM.from_pretrained(tmp_path / "a", output_loading_info=True)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "a")
    assert not any(info.values()) and model.config.vocab_size == len(tokenizer)
    ids = tokenizer.encode("<think>123é</think>", add_special_tokens=False)
    assert [tokenizer.decode([token]) for token in ids[:4]] == ["<think>", "1", "2", "3"]


def test_the_first_good_check_stops_the_warm_up(base, tmp_path):
    outcome, checks = run(base, tmp_path, [0.1, 0.5, 0.9], until_accuracy=0.4)
    assert (outcome.steps, outcome.accuracy) == (4, 0.5)
    assert checks == [(2, 6, {"accuracy": 0.1}), (4, 6, {"accuracy": 0.5})]
    # Killed before its model is saved it takes the last steps again, and stops where it stopped.
    assert left_in(tmp_path) == ["checkpoint-2"]
    again, _ = run(base, tmp_path, [0.5], until_accuracy=0.4)
    assert again == outcome


def test_without_a_target_it_runs_to_its_end_and_the_worked_answer_gets_likelier(base, tmp_path):
    outcome, _ = run(base, tmp_path, [], problems=1, learning_rate=1e-2)
    assert (outcome.steps, outcome.accuracy) == (6, None)
    [problem], tokenizer = sums(1), AutoTokenizer.from_pretrained(tmp_path)
    ids = tokenizer.apply_chat_template(problem["prompt"], add_generation_prompt=True, return_dict=False)
    answer = tokenizer.encode(problem["completion"][0]["content"], add_special_tokens=False)
    labels = torch.tensor([[-100] * len(ids) + answer])
    with torch.no_grad():
        before, after = (
            AutoModelForCausalLM.from_pretrained(folder)(input_ids=torch.tensor([ids + answer]), labels=labels).loss
            for folder in (base, tmp_path)
        )
    assert after < before - 0.1


@pytest.mark.parametrize("bf16", [True, False])
def test_it_trains_and_measures_in_bfloat16_where_that_is_asked(base, tmp_path, bf16):
    model, tokenizer = read_with_think_tags(str(base), TAGS)
    computed = []
    model.get_input_embeddings().register_forward_hook(lambda *_: computed.append(torch.is_autocast_enabled("cpu")))

    def measure():
        model(input_ids=torch.tensor([[1, 2]]))

    settings = WarmupSettings(max_steps=2, batch_size=2, check_every=2, until_accuracy=0.5)
    warm_up(model, tokenizer, tmp_path, sums(8), settings, 42, measure, bf16=bf16)
    assert computed == [bf16] * 3  # two steps and a check
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
