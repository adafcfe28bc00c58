"""The expanded checkpoint of every shape, opened with stock Transformers and compared with its base row by row."""

import json
import shutil

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.expand import Expansion, expand, plan_expansion, write_expansion
from rlvr_vocab.vocab.layout import VocabLayout

NAMES = (
    *("qwen3", "llama", "gemma3"),
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("qwen2", "gpt2", "gpt2_untied", "phi")),
)


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)


def sides(model):
    """Input rows, output rows, and the head's bias where there is one."""
    head = model.get_output_embeddings()
    tensors = {"input": model.get_input_embeddings().weight, "output": head.weight}
    return tensors if head.bias is None else {**tensors, "bias": head.bias}


@pytest.mark.parametrize("name", NAMES)
def test_stock_transformers_loads_rows_that_equal_their_sources_and_no_other_row_moved(name, make_shape, expand_shape):
    base, _ = load(make_shape(name).folder)
    folder = expand_shape(name, size=900, multiplicity=3)
    model, info = load(folder)
    layout = VocabLayout.load(folder)
    assert not any(info.values()) and type(model) is type(base)
    tied = sides(model)["input"].data_ptr() == sides(model)["output"].data_ptr()
    assert tied == model.config.tie_word_embeddings == make_shape(name).tied
    assert model.config.get_text_config().vocab_size == layout.rows == len(sides(model)["input"])
    base_sides = sides(base)
    assert base_sides.keys() == sides(model).keys()
    for side, tensor in sides(model).items():
        assert len(tensor) == layout.rows
        known = min(len(base_sides[side]), layout.think_open_id)
        assert torch.equal(tensor[:known], base_sides[side][:known])
        for k, source in enumerate(layout.source_ids):
            assert torch.equal(tensor[layout.standard_size + k], tensor[source])


@pytest.mark.parametrize("name", NAMES[1:])
def test_a_new_tag_starts_as_the_mean_of_its_pieces(name, make_shape, expand_shape):
    base = make_shape(name).folder
    tokenizer = AutoTokenizer.from_pretrained(base)
    (base_model, _), folder = load(base), expand_shape(name, size=None)
    (model, _), layout = load(folder), VocabLayout.load(folder)
    tags = {"<think>": layout.think_open_id, "</think>": layout.think_close_id}
    for tag, token in tags.items():
        pieces = tokenizer.encode(tag, add_special_tokens=False)
        assert len(pieces) > 1
        for side, tensor in sides(model).items():
            expected = sum(sides(base_model)[side][piece] for piece in pieces) / len(pieces)
            assert torch.allclose(tensor[token], expected, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_in_the_generation_config_truncates_the_distribution(name, make_shape, expand_shape):
    before = GenerationConfig.from_pretrained(make_shape(name).folder)
    assert (before.top_p, before.top_k, before.min_p, before.repetition_penalty) == (0.8, 20, 0.1, 1.1)
    on_disk = json.loads((expand_shape(name, size=0) / "generation_config.json").read_text())
    assert not on_disk.keys() & {"top_p", "top_k", "min_p", "repetition_penalty", "no_repeat_ngram_size"}
    after = GenerationConfig.from_pretrained(expand_shape(name, size=0))
    assert after.eos_token_id == before.eos_token_id


@pytest.mark.parametrize("rank", [None, 16])
def test_noise_on_copies_has_the_size_that_was_asked_for_and_a_seed(rank, expand_shape):
    exact, _ = load(expand_shape("llama", size=None))
    layout = VocabLayout.load(expand_shape("llama", size=None))
    noisy, _ = load(expand_shape("llama", size=None, init_noise=0.1, reasoning_rank=rank))
    other_seed, _ = load(expand_shape("llama", size=None, init_noise=0.1, reasoning_rank=rank, seed=7))
    for side in ("input", "output"):
        before, after = sides(exact)[side], sides(noisy)[side]
        noise = (after - before)[layout.standard_size :]
        assert after[: layout.standard_size].equal(before[: layout.standard_size])
        own = before[layout.standard_size :].std(dim=1)
        spread = own > 0  # the zeroed row of a padding token has nothing to be relative to
        relative = noise[spread].std(dim=1) / own[spread]
        assert relative.mean().item() == pytest.approx(0.1, rel=0.1)
        assert not torch.equal(after, sides(other_seed)[side])


@pytest.mark.parametrize("name", NAMES)
def test_control_ids_are_tags_special_tokens_and_every_end(name, make_shape, tmp_path):
    base = shutil.copytree(make_shape(name).folder, tmp_path / "base")
    GenerationConfig(eos_token_id=[60, 70, 71]).save_pretrained(base)
    layout = plan_expansion(str(base), Expansion(size=0)).layout
    added = json.loads((base / "tokenizer.json").read_text())["added_tokens"]
    expected = {token["id"] for token in added if token["special"]}
    expected |= {layout.think_open_id, layout.think_close_id, AutoTokenizer.from_pretrained(base).eos_token_id}
    assert set(layout.control_ids) == expected | {60, 70, 71}


def test_sizes_sources_and_folders_that_cannot_be_are_refused_before_weights_are_read(make_shape, monkeypatch):
    base = make_shape("qwen3").folder
    size = AutoConfig.from_pretrained(base).vocab_size
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("weights were read"))
    with pytest.raises(UserError, match=f"at most {3 * size}"):
        plan_expansion(str(base), Expansion(size=3 * size + 1, multiplicity=3))
    assert plan_expansion(str(base), Expansion(size=3 * size, multiplicity=3)).layout.size == 3 * size
    with pytest.raises(UserError, match=f"source id {size}"):
        plan_expansion(str(base), Expansion(source_ids=(size,)))
    with pytest.raises(UserError, match="not empty; choose another folder"):
        expand(str(base), base)


def test_another_tensor_with_a_row_per_token_is_refused_and_leaves_no_folder(make_shape, tmp_path, monkeypatch):
    base, out = make_shape("llama"), tmp_path / "out"
    plan = plan_expansion(str(base.folder), Expansion(size=None))
    original = AutoModelForCausalLM.from_pretrained

    def with_another_vocabulary(*args, **kwargs):
        model = original(*args, **kwargs)
        rows = model.get_input_embeddings().weight.size(0)
        model.model.layers[0].per_token = torch.nn.Embedding(rows, 4)
        return model

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", with_another_vocabulary)
    with pytest.raises(UserError, match=r"layers\.0\.per_token"):
        write_expansion(plan, out)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("config", [None, {}, {"model_type": "llama", "quantization_config": {"load_in_4bit": True}}])
def test_a_base_that_is_no_model_or_quantized_is_said_in_one_line(config, make_shape, tmp_path):
    base = tmp_path / "base"
    if config is not None:
        shutil.copytree(make_shape("llama").folder, base)
        (base / "config.json").write_text(json.dumps(config))
    said = "is quantized already: name the model that it was made" if config else "cannot be loaded as a language model"
    with pytest.raises(UserError, match=said) as error:
        plan_expansion(str(base), Expansion())
    assert "\n" not in str(error.value)


def test_what_has_a_reasoning_vocabulary_is_not_expanded_again(expand_shape, tmp_path):
    with pytest.raises(UserError, match=r"reasoning vocabulary already \(3 tokens\)"):
        expand(str(expand_shape("llama", size=3)), tmp_path / "twice")
    assert expand(str(expand_shape("llama", size=0)), tmp_path / "baseline").size == 0
