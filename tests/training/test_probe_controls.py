"""The controls of the probe in `benchmarks/probe_controls`: a planted channel, and choices that get no credit."""

from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM

from benchmarks.probe_controls.placebo import scoring_other_choices
from benchmarks.probe_controls.planted_channel import PlantedTrainer, error_rate
from rlvr_vocab.vocab.head import attach_region_head
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import scored_regions
from rlvr_vocab.vocab.tokenizer import load_tokenizer

ROWS, TEMPERATURE = 2048, 0.7


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


def test_another_choice_is_scored_as_often_as_the_model_would_make_it(expand_shape):
    folder = expand_shape("qwen3", source_ids=(*range(10, 200), *range(10, 100)))  # two copies, one, none
    model, policy = AutoModelForCausalLM.from_pretrained(folder).eval(), RegionPolicy(VocabLayout.load(folder))
    with torch.no_grad():  # copies that are not their sources
        weight = model.get_output_embeddings().weight
        weight += 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
    attach_region_head(model, policy=policy)
    model.forward = scoring_other_choices(model.forward, policy)
    layout = policy.layout
    sequence = [70, layout.think_open_id, 20, layout.standard_size + 5, 150, 300, layout.think_close_id, 20, 30]
    ids = torch.tensor([sequence]).repeat(ROWS, 1)
    torch.manual_seed(0)
    scores = model(input_ids=ids, labels=ids, fused_lm_head=True)
    bias = policy.bias.double()[scored_regions(ids[:1], layout)[:, 1:]]
    p = (model(input_ids=ids[:1]).logits[:, :-1].double() + bias).softmax(-1)[0]
    for place in range(ids.size(1) - 1):
        open_ids, exists = policy.ids_of_texts(policy.surface_ids(ids[:1, place + 1]).unsqueeze(1))
        of_ids = p[place, open_ids[0]] * exists[0]
        text_logps = (scores.log_probs - scores.copy_log_probs)[:, place]
        assert (text_logps - of_ids.sum().log()).abs().max() < 1e-4
        found = scores.log_probs[:, place].double().exp()
        for probability in of_ids[of_ids > 0]:
            share = ((found - probability).abs() < 1e-3 * probability).double().mean()
            expected = probability / of_ids.sum()
            assert abs(share - expected) <= 5 * (expected * (1 - expected) / ROWS).sqrt() + 1e-9
