"""Transformers' `generate` under the region policy."""

from contextlib import nullcontext

import pytest
import torch
from transformers import AutoModelForCausalLM, GenerationConfig, TokenizersBackend, pipeline

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import scored_regions
from rlvr_vocab.vocab.sampling import (
    RecordingSampler,
    RegionLogitsProcessor,
    TextThenIdSampler,
    attach_region_sampler,
    draw_one,
)
from rlvr_vocab.vocab.truncation import Truncation

PLAIN = {"do_sample": True, "top_k": 0, "top_p": 1.0}


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder).eval(), RegionPolicy(VocabLayout.load(folder))


def prompts(layout, rows=4):
    ids = torch.randint(10, 320, (rows, 6), generator=torch.Generator().manual_seed(0))
    ids[::2, -2] = layout.think_open_id
    return ids


def definition(model, policy, sequences, temperature):
    """log p of every id at each position, from stock logits and the definition, in float64."""
    with torch.no_grad():
        logits = model(input_ids=sequences).logits[:, :-1].double()
    regions = scored_regions(sequences, policy.layout)[:, 1:]
    return (logits / temperature + policy.bias.double()[regions]).log_softmax(-1)


@pytest.mark.parametrize("mode", ["expand", "replace"])
@pytest.mark.parametrize("name", ["qwen3", "gemma3", "phi"])
def test_sampled_logps_are_those_of_the_definition_and_nothing_forbidden_is_sampled(name, mode, expand_shape):
    model, policy = load(expand_shape(name, size=None, multiplicity=2, mode=mode, init_noise=0.3))
    sampler = attach_region_sampler(model, policy)
    ids, new = prompts(policy.layout, 8), 30
    torch.manual_seed(0)
    with sampler.recording():
        out = model.generate(ids, max_new_tokens=new, min_new_tokens=new, temperature=0.6, **PLAIN)
    expected = definition(model, policy, out, 0.6)[:, -new:]
    chosen = expected.gather(2, out[:, -new:].unsqueeze(2)).squeeze(2)
    ends = torch.isin(torch.arange(policy.layout.rows), torch.tensor(model.generation_config.eos_token_id))
    allowed = torch.where(ends, 0.0, expected.exp()).sum(2).log()  # `min_new_tokens` forbids the end
    assert torch.isfinite(chosen).all()
    assert (sampler.last_logps.double() - (chosen - allowed)).abs().max() < 1e-4
    assert policy.is_reasoning(out).any()
    of_ids = torch.where(ends, 0.0, expected.exp()).flatten(0, 1)
    over_ids, over_texts = (
        torch.distributions.Categorical(probs=each).entropy().view(chosen.shape)
        for each in (of_ids, policy.over_texts(of_ids))
    )
    for entropies, of_definition in zip(sampler.last_entropies, (over_texts, over_ids - over_texts), strict=True):
        assert (entropies.double() - of_definition).abs().max() < 1e-4


GIVEN = [
    {"generation_config": GenerationConfig(temperature=1.3, **PLAIN), "temperature": 0.6},
    {"generation_config": GenerationConfig(temperature=0.6, **PLAIN)},
]


@pytest.mark.parametrize("given", GIVEN, ids=["an argument", "the generation config"])
def test_the_temperature_is_read_where_transformers_reads_it(given, expand_shape):
    model, policy = load(expand_shape("llama", size=None))
    sampler, ids = attach_region_sampler(model, policy), prompts(policy.layout)
    model.generation_config.temperature = 1.3
    logps = []
    for kwargs in ({"temperature": 0.6, **PLAIN}, given, PLAIN):
        torch.manual_seed(1)
        with sampler.recording():
            model.generate(ids, max_new_tokens=4, **kwargs)
        logps.append(sampler.last_logps)
    assert torch.equal(logps[0], logps[1]) and not torch.equal(logps[0], logps[2])


@pytest.mark.parametrize("mode", ["expand", "replace"])
def test_greedy_takes_the_argmax_under_the_forbids_alone(mode, expand_shape):
    model, policy = load(expand_shape("llama", size=200, mode=mode, init_noise=0.3))
    attach_region_sampler(model, policy)
    ids = prompts(policy.layout, 12)
    out = model.generate(ids, max_new_tokens=12, min_new_tokens=12, do_sample=False)
    with torch.no_grad():
        logits = model(input_ids=out).logits[:, ids.size(1) - 1 : -1]
    regions = scored_regions(out, policy.layout)[:, ids.size(1) :]
    logits = logits.masked_fill(torch.isinf(policy.bias)[regions], -torch.inf)
    logits[..., model.generation_config.eos_token_id] = -torch.inf
    assert torch.equal(out[:, ids.size(1) :], logits.argmax(-1))
    odds_decide = not torch.equal(logits.argmax(-1), (logits + policy.bias[regions]).argmax(-1))
    assert odds_decide == (mode == "expand")  # one copy each: in `replace` there are no odds to share


TRUNCATED = {"do_sample": True, "top_k": 30, "top_p": 0.6, "min_p": 0.01}


@pytest.mark.parametrize(
    ("sampling", "recorded"), [(PLAIN, False), (PLAIN, True), (TRUNCATED, True), ({"do_sample": False}, False)]
)
def test_a_baseline_generates_what_stock_generate_does(sampling, recorded, expand_shape):
    folder = expand_shape("qwen3", size=0)
    stock, _ = load(folder)
    model, policy = load(folder)
    sampler = attach_region_sampler(model, policy)
    ids = prompts(policy.layout)
    kwargs = {"max_new_tokens": 20, **({"temperature": 0.7} if sampling["do_sample"] else {}), **sampling}
    outputs, random_numbers = [], []
    for generator in (stock, model):
        torch.manual_seed(3)
        with sampler.recording() if recorded else nullcontext():
            outputs.append(generator.generate(ids, **kwargs))
        random_numbers.append(torch.rand(4))
    assert torch.equal(*outputs)
    assert torch.equal(*random_numbers) or not sampling["do_sample"]
    assert "_get_logits_processor" not in vars(model)


@pytest.mark.parametrize("mode", ["expand", "replace"])
@pytest.mark.parametrize("multiplicity", [1, 3])
@pytest.mark.parametrize("given", [{"top_p": 0.8}, {"top_k": 7}, {"min_p": 0.1}, {"top_k": 20, "top_p": 0.7}], ids=str)
def test_before_training_the_same_texts_are_kept_with_and_without_copies(given, multiplicity, mode, expand_shape):
    policy = load(expand_shape("llama", size=None, multiplicity=multiplicity, mode=mode))[1]
    layout, truncation = policy.layout, Truncation(**given)
    logits = torch.randn(400, layout.standard_size, generator=torch.Generator().manual_seed(0)) * 2
    contexts = torch.tensor([[5, layout.think_open_id], [layout.think_open_id, layout.think_close_id]] * 200)
    with_copies = TextThenIdSampler(policy, 0.7, truncation=truncation)
    with_copies(contexts, torch.cat((logits, logits[:, list(layout.source_ids)]), 1))
    without = RecordingSampler(0.7, truncation)
    without(contexts, logits)
    for ours, plain in zip(with_copies.kept_texts(), without.kept_texts(), strict=True):
        assert torch.equal(ours[0], plain[0])


@pytest.mark.parametrize("given", [{"top_p": 0.9}, {"top_k": 20, "min_p": 0.1}], ids=str)
def test_nan_is_noticed_under_a_truncation_too(given, expand_shape):
    model, policy = load(expand_shape("llama", size=None))
    sampler = attach_region_sampler(model, policy)
    model.model.norm.weight.data[0] = torch.nan
    with pytest.raises(UserError, match="NaN"), sampler.recording():
        model.generate(prompts(policy.layout), max_new_tokens=2, do_sample=True, **given)


def test_outside_of_training_too_a_truncation_is_over_texts(expand_shape):
    model, policy = load(expand_shape("phi", size=None, init_noise=0.3))
    attach_region_sampler(model, policy)
    ids = prompts(policy.layout, 200)
    out = model.generate(ids, max_new_tokens=1, do_sample=True, top_k=3, temperature=0.9)
    best = policy.over_texts(definition(model, policy, out, 0.9)[:, -1].exp()).topk(3).indices
    assert (best == policy.surface_ids(out[:, -1:])).any(1).all()
    assert policy.is_reasoning(out[:, -1]).sum() > 20
    several = model.generate(ids, max_new_tokens=1, do_sample=True, num_return_sequences=3, epsilon_cutoff=0.02)
    assert len(several) == 3 * len(ids)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [1, 192, 4097])
def test_a_draw_is_that_of_multinomial_from_the_same_random_numbers(size, dtype):
    p = torch.randn(9, size, generator=torch.Generator().manual_seed(0)).mul_(4).softmax(1).to(dtype)
    p[1:, ::2] = 0.0 if size > 1 else p[1:, ::2]
    drawn, numbers = [], []
    for draw in (lambda p: p.multinomial(1), draw_one):
        torch.manual_seed(5)
        drawn.append(draw(p))
        numbers.append(torch.rand(4))
    assert torch.equal(*drawn) and torch.equal(*numbers)


@pytest.mark.parametrize("size", [0, None])
def test_a_model_whose_weights_are_nan_samples_nothing(size, expand_shape):
    model, policy = load(expand_shape("llama", size=size))
    sampler = attach_region_sampler(model, policy)
    model.model.norm.weight.data[0] = torch.nan
    with pytest.raises(UserError, match="NaN"), sampler.recording():
        model.generate(prompts(policy.layout), max_new_tokens=2, **PLAIN)


def drawn_by(sampler, model, policy, ids, uniforms, texts=None, temperature=0.8):
    with sampler.drawing(TextThenIdSampler(policy, temperature, uniforms, texts)):
        return model.generate(ids, max_new_tokens=uniforms.size(1), min_new_tokens=None)[:, ids.size(1) :]


def test_the_same_random_numbers_draw_the_same_ids_whatever_else_is_in_the_batch(expand_shape):
    model, policy = load(expand_shape("phi", size=None))
    sampler, ids = attach_region_sampler(model, policy), prompts(policy.layout, 4)
    uniforms = torch.rand(4, 20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    together = drawn_by(sampler, model, policy, ids, uniforms)
    alone = torch.cat([drawn_by(sampler, model, policy, ids[[row]], uniforms[[row]]) for row in range(4)])
    assert torch.equal(together, alone)
    assert not torch.equal(together, drawn_by(sampler, model, policy, ids, uniforms.flip(0)))


def test_texts_and_ids_are_drawn_from_the_definition_and_given_texts_under_ids_as_the_model_would(expand_shape):
    model, policy = load(expand_shape("phi", size=None, init_noise=0.3))
    sampler, draws, text = attach_region_sampler(model, policy), 4000, 40
    prompt = prompts(policy.layout, 1)  # which is thinking
    uniforms = torch.rand(2 * draws, 1, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    texts = torch.tensor([[-1], [text]]).repeat_interleave(draws, dim=0)
    drawn = drawn_by(sampler, model, policy, prompt.expand(2 * draws, -1), uniforms, texts, temperature=0.5)
    p = definition(model, policy, torch.cat([prompt, prompt[:, :1]], 1), 0.5)[0, -1].exp()
    of_text = policy.surface_ids(torch.arange(len(p))) == text
    given = torch.where(of_text, p, 0.0) / p[of_text].sum()
    for ids, expected in zip(drawn.squeeze(1).split(draws), (p, given), strict=True):
        shares = torch.bincount(ids, minlength=len(p)).double() / draws
        assert ((shares - expected).abs() <= 5 * (expected * (1 - expected) / draws).sqrt() + 3 / draws).all()
    assert given[of_text].min() > 0.01


@pytest.mark.parametrize("temperature", [0.7, 0.0])
def test_a_stock_pipeline_with_the_processor_gives_no_forbidden_id(temperature, expand_shape):
    folder = str(expand_shape("qwen2", size=None, open_thinking="prefill"))
    layout, question = VocabLayout.load(folder), [{"role": "user", "content": "What is 3 + 4?"}]
    pipe = pipeline("text-generation", model=folder, tokenizer=TokenizersBackend.from_pretrained(folder))
    processor = RegionLogitsProcessor.from_folder(folder, temperature)
    asked = pipe.tokenizer.apply_chat_template(question, add_generation_prompt=True, return_dict=False)
    sampling = {"temperature": temperature, "top_k": 0} if temperature else {"do_sample": False}
    torch.manual_seed(0)
    outputs = pipe([question] * 6, max_new_tokens=30, return_tensors=True, logits_processor=[processor], **sampling)
    ids = torch.tensor([output[0]["generated_token_ids"] for output in outputs])
    regions, sampled = scored_regions(ids, layout)[:, len(asked) :], ids[:, len(asked) :]
    allowed = RegionPolicy(layout).bias[regions].gather(2, sampled.unsqueeze(2)).isfinite()
    assert allowed.all() and (not temperature or (sampled >= layout.standard_size).any())
    scores = torch.randn(2, layout.rows)
    processed, bias = processor(torch.tensor([[5, 6], [5, layout.think_open_id]]), scores), RegionPolicy(layout).bias
    bias = bias * temperature if temperature else bias.masked_fill(bias.isfinite(), 0.0)
    torch.testing.assert_close(processed, scores + bias)


@pytest.mark.parametrize(("size", "sampling"), [(0, PLAIN), (None, PLAIN), (0, TRUNCATED)])
def test_a_generate_of_ones_own_is_for_models_without_copies_or_truncation(size, sampling, expand_shape):
    model, policy = load(expand_shape("llama", size=size))
    model.generate = lambda ids, **_: ids
    sampler, ids = attach_region_sampler(model, policy), prompts(policy.layout)
    served = size == 0 and sampling is PLAIN
    with nullcontext() if served else pytest.raises(UserError, match="is one of your own"), sampler.recording():
        assert torch.equal(model.generate(ids, max_new_tokens=2, **sampling), ids)
