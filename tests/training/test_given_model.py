"""A trainer trains the model that it is given: by name, loaded, under an adapter, and after an earlier trainer."""

import copy
import logging
import shutil

import pytest
import torch
import trl
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from rlvr_vocab.training.arguments import GRPOConfig
from rlvr_vocab.training.trainer import RegionGRPOTrainer
from rlvr_vocab.vocab.copied_rows import copied_rows_of
from rlvr_vocab.vocab.expand import Expansion
from rlvr_vocab.vocab.layout import NO_TAG

LORA = {"r": 4, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}
ARMS = [
    pytest.param(None, id="baseline"),
    pytest.param(Expansion(size=100), id="differences"),
    pytest.param(Expansion(size=100, reasoning_rank=None), id="own_rows"),
]


def load(folder, **kwargs):
    return AutoModelForCausalLM.from_pretrained(folder, **{"dtype": torch.float32, **kwargs})


def given_as(way, folder):
    torch.manual_seed(0)
    if way == "name":
        return str(folder)
    if way == "loaded":
        return load(folder, dtype=torch.bfloat16, attn_implementation="eager")
    return get_peft_model(load(folder), LoraConfig(**LORA))


@torch.no_grad()
def logits(model):
    was_training = model.training
    found = model.eval()(torch.arange(20, 28)[None]).logits.float()
    model.train(was_training)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("way", ["name", "loaded", "peft"])
def test_a_baseline_is_trls_whichever_way_the_model_is_given(way, make_shape, tmp_path, caplog):
    folder, seen = shutil.copytree(make_shape("llama").folder, tmp_path / "base"), []
    (folder / "generation_config.json").unlink()  # TRL lets its min_p reach the sampler
    rows = Dataset.from_list([{"prompt": [{"role": "user", "content": f"{number} + 4?"}]} for number in range(8)])
    for number, kind in enumerate((trl.GRPOTrainer, RegionGRPOTrainer)):
        model = given_as(way, folder)
        trainer = kind(
            model,
            lambda completions, **_: [float(len(turn[0]["content"])) for turn in completions],
            GRPOConfig(
                str(tmp_path / str(number)),
                max_steps=1,
                per_device_train_batch_size=4,
                num_generations=4,
                max_completion_length=8,
                logging_steps=1,
                save_strategy="no",
                report_to="none",
                use_cpu=True,
                bf16=False,
            ),
            rows,
        )
        held = trainer.model
        facts = [
            (name, each.shape, each.dtype, each.device, each.requires_grad) for name, each in held.named_parameters()
        ]
        trainer.train()
        row = trainer.state.log_history[0]
        seen.append((held.config._attn_implementation, facts, row["loss"], row["reward"], row["num_tokens"]))
        if kind is RegionGRPOTrainer and way != "name":
            assert held is model
    assert seen[0] == seen[1]
    assert trainer.policy.layout.think_open_id == NO_TAG
    assert ("weights train in bfloat16" in caplog.text) == (way == "loaded")


@pytest.mark.slow
@pytest.mark.parametrize("expansion", ARMS)
@pytest.mark.parametrize(
    ("handed", "beta"), [("model", 0.0), ("saved folder", 0.1), ("peft model", 0.1), ("saved adapter", 0.0)]
)
def test_a_second_trainer_begins_where_the_first_ended(handed, beta, expansion, make_shape, make_trainer, tmp_path):
    with_adapter = handed in ("peft model", "saved adapter")
    model = given_as("peft", make_shape("qwen3").folder) if with_adapter else load(make_shape("qwen3").folder)
    options = {"expansion": expansion, "learning_rate": 1e-2, "model_init_kwargs": None, "beta": beta}
    first = make_trainer(model, tmp_path / "run", **options)
    began = logits(first.model)
    first.train()
    ended = logits(model)
    assert not torch.equal(ended, began) and first.model is model
    if handed.startswith("saved"):
        first.save_model(str(tmp_path / "run" / "final_adapter"))
    second = make_trainer(
        tmp_path / "run" / "final_adapter" if handed.startswith("saved") else model, tmp_path / "run", **options
    )
    torch.testing.assert_close(logits(second.model), ended, rtol=0, atol=1e-5 if handed.startswith("saved") else 0)
    second.train()
    ended_again = logits(second.model)
    assert not torch.equal(ended_again, ended)

    (second.model.merge_and_unload() if with_adapter else second.model).save_pretrained(tmp_path / "saved")
    torch.testing.assert_close(logits(load(tmp_path / "saved")), ended_again, rtol=0, atol=1e-4)


@pytest.mark.slow
def test_the_reference_of_a_given_adapter_is_that_adapter_as_it_was_given(make_shape, make_trainer, tmp_path):
    options = {"expansion": Expansion(size=100), "learning_rate": 1e-2, "model_init_kwargs": None}
    model = given_as("peft", make_shape("llama").folder)
    make_trainer(model, tmp_path, **options).train()
    second = make_trainer(model, tmp_path, beta=0.1, **options)
    given = logits(model)
    copied = copied_rows_of(model)
    before = copy.deepcopy(copied.embedding.difference.in_force.B)
    second.train()
    assert not torch.equal(logits(model), given) and not torch.equal(copied.embedding.difference.in_force.B, before)
    model.set_adapter("ref")
    assert torch.equal(logits(model), given)


def test_a_loaded_model_gets_its_copies_in_memory(make_shape, make_trainer, tmp_path, caplog):
    model = load(make_shape("qwen3").folder, dtype=torch.bfloat16)
    stock = logits(model)
    with caplog.at_level(logging.WARNING):
        trainer = make_trainer(model, tmp_path, reasoning_vocab_size=10, model_init_kwargs=None)
    assert trainer.model is model and {each.dtype for each in model.parameters()} == {torch.bfloat16}
    assert torch.equal(logits(model)[..., : stock.size(-1)], stock)
    assert trainer.policy.layout.size == 10 and logits(model).size(-1) == stock.size(-1) + 10
    assert isinstance(load(trainer.initial_model), type(model)) and "weights train in bfloat16" in caplog.text
