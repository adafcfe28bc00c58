"""A planted channel: what its loss asks for, and a small model that learns it."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from rlvr_vocab.errors import UserError
from rlvr_vocab.training.models.planted_channel import error_rate, plant_channel
from rlvr_vocab.training.models.warmup import WorkedProblem
from rlvr_vocab.training.settings import WarmupSettings
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import scored_regions
from rlvr_vocab.vocab.tokenizer import load_tokenizer

TEMPERATURE = 0.7


def problems(answers=("3", "4"), thought="so it is"):
    return [
        WorkedProblem(
            [{"role": "user", "content": f"{answer} {number}"}], f"<think>{thought}</think>\\boxed{{{answer}}}"
        )
        for number in range(4)
        for answer in answers
    ]


@pytest.mark.parametrize("bits", [0, 0.25, 0.5, 0.999, 1])
def test_a_channel_with_that_error_rate_tells_so_many_bits(bits):
    error = error_rate(bits)
    assert 0 <= error <= 0.5
    entropy = -sum(p * np.log2(p) for p in (error, 1 - error) if p > 0)
    assert 1 - entropy == pytest.approx(bits, abs=1e-6)


def test_the_choice_tells_the_answer_and_the_answer_follows_the_choice_alone(expand_shape):
    folder = expand_shape("qwen3", size=None, reasoning_rows="independent", open_thinking="model")
    losses = []
    settings = WarmupSettings(max_steps=250, batch_size=16, learning_rate=1e-2)
    plant_channel(folder, problems(), settings, 0.5, TEMPERATURE, 0, lambda step, loss: losses.append(loss))
    assert len(losses) == 250 and losses[-1] < losses[0] / 5
    tokenizer, layout = load_tokenizer(folder), VocabLayout.load(folder)
    model, policy = AutoModelForCausalLM.from_pretrained(folder), RegionPolicy(layout)
    error = error_rate(0.5)
    for each in problems()[:4]:
        prompt = tokenizer.apply_chat_template(each.prompt, add_generation_prompt=True, return_dict=False)
        turn = tokenizer(each.turn, add_special_tokens=False)["input_ids"]
        symbol, answer = len(prompt) + 1, len(prompt) + len(turn) - 2
        ids = torch.tensor([[*prompt, *turn]] * 2)
        source = int(ids[0, symbol])
        copy = layout.standard_size + layout.source_ids.index(source)
        ids[1, symbol] = copy
        with torch.no_grad():
            logits = model(ids).logits[:, :-1] / TEMPERATURE + policy.bias[scored_regions(ids, layout)[:, 1:]]
        p = logits.softmax(-1)
        told = [1 - error, error] if "3" in each.turn else [error, 1 - error]
        assert p[0, symbol - 1, [source, copy]].tolist() == pytest.approx(told, abs=0.06)
        answers = tokenizer.convert_tokens_to_ids(["3", "4"])
        assert p[0, answer - 1, answers].tolist() == pytest.approx([1 - error, error], abs=0.06)
        assert p[1, answer - 1, answers].tolist() == pytest.approx([error, 1 - error], abs=0.06)


@pytest.mark.parametrize(
    ("given", "expansion", "words"),
    [
        (problems(("3", "4", "5")), {"size": None}, "two answers"),
        (problems(("3", "clips")), {"size": None}, "one token each"),
        (problems(), {"source_ids": (10, 11)}, "no token of the thought has a copy"),
    ],
)
def test_what_cannot_carry_one_is_refused(given, expansion, words, expand_shape):
    folder = expand_shape("qwen3", reasoning_rows="independent", open_thinking="model", **expansion)
    with pytest.raises(UserError, match=words):
        plant_channel(folder, given, WarmupSettings(max_steps=1), 0.5, TEMPERATURE, 0, lambda step, loss: None)
