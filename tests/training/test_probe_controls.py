"""A planted channel, the control of the probe in `benchmarks/probe_controls`."""

from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM

from benchmarks.probe_controls.planted_channel import PlantedTrainer, error_rate
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import scored_regions
from rlvr_vocab.vocab.tokenizer import load_tokenizer

TEMPERATURE = 0.7


def test_the_choice_tells_the_answer_and_the_answer_follows_the_choice_alone(expand_shape):
    folder = expand_shape("qwen3", size=None, reasoning_rank=None, open_thinking="model")
    tokenizer, layout = load_tokenizer(folder), VocabLayout.load(folder)
    model, policy = AutoModelForCausalLM.from_pretrained(folder), RegionPolicy(layout)
    rows = [
        {"prompt": [{"role": "user", "content": f"{answer} {number}"}], "solution": answer}
        for number in range(4)
        for answer in ("3", "4")
    ]
    PlantedTrainer.plant(
        SimpleNamespace(
            model=model,
            policy=policy,
            processing_class=tokenizer,
            train_dataset=rows,
            temperature=TEMPERATURE,
            args=SimpleNamespace(seed=0),
            bits=0.5,
            steps=250,
            rate=1e-2,
        )
    )
    error = error_rate(0.5)
    for row in rows[:4]:
        prompt = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, return_dict=False)
        turn = tokenizer(f"<think>...</think>\\boxed{{{row['solution']}}}", add_special_tokens=False)["input_ids"]
        symbol, answer = len(prompt) + 1, len(prompt) + len(turn) - 2
        ids = torch.tensor([[*prompt, *turn]] * 2)
        source = int(ids[0, symbol])
        copy = layout.standard_size + layout.source_ids.index(source)
        ids[1, symbol] = copy
        with torch.no_grad():
            p = (model(ids).logits[:, :-1] / TEMPERATURE + policy.bias[scored_regions(ids, layout)[:, 1:]]).softmax(-1)
        told = [1 - error, error] if row["solution"] == "3" else [error, 1 - error]
        assert p[0, symbol - 1, [source, copy]].tolist() == pytest.approx(told, abs=0.06)
        answers = tokenizer.convert_tokens_to_ids(["3", "4"])
        assert p[0, answer - 1, answers].tolist() == pytest.approx([1 - error, error], abs=0.06)
        assert p[1, answer - 1, answers].tolist() == pytest.approx([error, 1 - error], abs=0.06)
