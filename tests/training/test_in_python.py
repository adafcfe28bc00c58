"""TRL's configuration as guides write it, with what the machine cannot do taken back."""

import json
import re
import shutil

import pytest
import torch
import trl
import trl.trainer.grpo_trainer as trl_grpo
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from trl.trainer.utils import create_model_from_path

from rlvr_vocab.errors import UserError
from rlvr_vocab.evaluation.sampling import load_checkpoint
from rlvr_vocab.tools.calculator import calculator
from rlvr_vocab.training.arguments import GRPOConfig, grpo_config
from rlvr_vocab.training.models.load import initial_model_of
from rlvr_vocab.training.settings import Lora
from rlvr_vocab.training.trainer import RegionGRPOTrainer, drop_long_prompts
from rlvr_vocab.vocab.expand import Expansion
from rlvr_vocab.vocab.layout import VocabLayout


def arguments(tmp_path, **fields):
    return {"output_dir": str(tmp_path), "use_cpu": True, "report_to": "none", **fields}


@pytest.mark.parametrize("fields", [{"bf16": True}, {}, {"fp16": True}], ids=str)
@pytest.mark.parametrize("capability", ["avx512_bf16", "amx_bf16", "bf16", None])
def test_a_cpu_trains_in_bfloat16_where_it_has_that_and_says_so_where_not(
    capability, fields, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, capability: capability is not None})
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: None)
    asks = "fp16" not in fields
    config = grpo_config(arguments(tmp_path, use_cpu=False, **fields))
    assert config.bf16 is config.use_cpu is (asks and capability is not None)
    assert ("bf16: this machine" in caplog.text) == (asks and capability is None)


@pytest.mark.parametrize("has_bf16", [True, False])
@pytest.mark.parametrize("asked", [torch.bfloat16, "auto"])
def test_the_weights_under_an_adapter_are_in_a_type_that_the_machine_computes(
    asked, has_bf16, expand_shape, make_trainer, tmp_path, monkeypatch
):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": has_bf16})
    folder = tmp_path / "in_16_bits"
    shutil.copytree(expand_shape("qwen3", size=10), folder)
    AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).save_pretrained(folder)
    trainer = make_trainer(folder, tmp_path, lora=Lora(), bf16=True, model_init_kwargs={"dtype": asked})
    held = {weight.dtype for name, weight in trainer.model.named_parameters() if "lora_" not in name}
    expected = torch.bfloat16 if has_bf16 else torch.float32
    assert held == {expected} and load_checkpoint(folder).model.dtype == expected


def test_completions_from_elsewhere_are_refused_before_anything_is_loaded(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"rollout_func: .*not supported; leave it out"):
        RegionGRPOTrainer("no/such_model", print, GRPOConfig(**arguments(tmp_path, bf16=False)), rollout_func=print)
    with pytest.raises(UserError, match="tools: not together with dynamic sampling"):
        RegionGRPOTrainer("no/such_model", print, tools=[calculator], max_rounds=2)
    served = GRPOConfig(**arguments(tmp_path, bf16=False, use_vllm=True, vllm_mode="server"))
    monkeypatch.setattr(GRPOConfig, "world_size", 2)
    with pytest.raises(UserError, match="processes that share a vLLM: vllm_mode=colocate"):
        RegionGRPOTrainer("no/such_model", print, served, tools=[calculator])


def test_what_guides_write_is_taken(tmp_path):
    config = GRPOConfig(**arguments(tmp_path, bf16=False, warmup_ratio=0.1, max_prompt_length=256, max_steps=None))
    assert (config.warmup_steps, config.max_prompt_length, config.max_steps) == (0.1, 256, -1)
    assert config.disable_dropout and not trl.GRPOConfig(**arguments(tmp_path, bf16=False)).disable_dropout
    with pytest.raises(UserError, match=r"^--dataloader_prefetch_factor can only be set .*$"):
        grpo_config(arguments(tmp_path, bf16=False, dataloader_prefetch_factor=2))
    with pytest.raises(UserError, match=r"warmup_ratio=0.1 and warmup_steps=3: set one"):
        grpo_config(arguments(tmp_path, bf16=False, warmup_ratio=0.1, warmup_steps=3))
    with pytest.raises(UserError, match=r"GRPOTrainer\(…, reasoning_vocab_size=…\)"):
        GRPOConfig(**arguments(tmp_path, bf16=False, reasoning_vocab_size=3))


@pytest.mark.parametrize("printed", [(1, 4, 8), (4, 2, 16)])
def test_batches_that_do_not_divide_are_answered_with_values_that_do(printed, tmp_path):
    names = ("per_device_train_batch_size", "gradient_accumulation_steps", "num_generations")
    fields = arguments(tmp_path, bf16=False, **dict(zip(names, printed, strict=True)))
    with pytest.raises(ValueError, match=r"^num_generations=\d+ does not divide the \d completions") as caught:
        GRPOConfig(**fields)
    advised = re.findall(r"(\w+)=(\d+)", str(caught.value).partition("set ")[2])
    assert [name for name, _ in advised] == ["per_device_train_batch_size", "steps_per_generation", "num_generations"]
    for name, value in advised:
        assert GRPOConfig(**{**fields, name: int(value)}).generation_batch_size in (4, 8, 16)


def test_prompts_that_are_too_long_are_left_out_and_counted(make_shape, expand_shape, tmp_path, caplog):
    tokenizer = AutoTokenizer.from_pretrained(make_shape("qwen3").folder)
    chats = [[{"role": "user", "content": "word " * size}] for size in (1, 400, 2)]
    kept = drop_long_prompts(Dataset.from_dict({"prompt": chats}), tokenizer, 100)
    assert [row["prompt"] for row in kept] == [chats[0], chats[2]]
    assert "left out 1 of 3 prompts longer than max_prompt_length=100" in caplog.text
    assert len(drop_long_prompts(Dataset.from_dict({"prompt": ["a", "word " * 400]}), tokenizer, 100)) == 1
    with pytest.raises(UserError, match="every prompt is longer"):
        drop_long_prompts(Dataset.from_dict({"prompt": chats}), tokenizer, 1)
    shown = {"max_prompt_length": 100, "chat_template_kwargs": {"chat_template": "{{ 'word ' * 400 }}"}}
    args = GRPOConfig(**arguments(tmp_path, bf16=False, **shown))
    with pytest.raises(UserError, match="max_prompt_length=100: every prompt is longer"):
        RegionGRPOTrainer(expand_shape("qwen3"), print, args, Dataset.from_dict({"prompt": chats}))


@pytest.fixture
def base(make_shape, tmp_path):
    """A model's folder that may be changed."""
    return shutil.copytree(make_shape("qwen3").folder, tmp_path / "base")


@pytest.fixture
def initial(tmp_path):
    """The initial model of a trainer in this folder."""
    options = GRPOConfig(**arguments(tmp_path, bf16=False))
    return lambda model, expansion=None, tokenizer=None: initial_model_of(model, options, expansion, tokenizer)


class TestInitialModel:
    def test_an_expanded_folder_is_taken_as_it_is(self, expand_shape, initial):
        folder = expand_shape("qwen3", size=10)
        assert initial(folder).folder == initial(folder, Expansion(size=10)).folder == folder
        for other in (Expansion(size=11), Expansion(size=10, mode="replace")):
            with pytest.raises(UserError, match="is an expanded model already"):
                initial(folder, other)

    def test_a_loaded_model_is_expanded_once_like_its_folder(self, base, initial, tmp_path):
        model, other = (AutoModelForCausalLM.from_pretrained(base) for _ in range(2))
        folder = initial(base, Expansion(size=10)).folder
        assert folder == tmp_path / "initial_model" and VocabLayout.load(folder).size == 10
        file = folder / "model.safetensors"
        written, weights = file.stat().st_mtime_ns, file.read_bytes()
        assert initial(model, Expansion(size=10)).folder == folder
        assert file.stat().st_mtime_ns == written and file.read_bytes() == weights
        with pytest.raises(UserError, match=r"was expanded otherwise .*layout"):
            initial(base, Expansion(size=11))
        with pytest.raises(UserError, match=r"with 10 reasoning tokens .size or source_ids"):
            initial(model, Expansion(size=11))
        with pytest.raises(UserError, match="holds another model than the one that is given"):
            initial(other)

    @pytest.mark.parametrize("differs", ["weights", "weights of a loaded model", "chat_template", "tokenizer"])
    def test_another_model_of_the_same_layout_is_not_taken_for_the_one_before(self, differs, base, initial):
        given, tokenizer = base, AutoTokenizer.from_pretrained(base)
        initial(base, Expansion(size=10), tokenizer)
        if differs.startswith("weights"):
            model = AutoModelForCausalLM.from_pretrained(base)
            model.model.layers[0].mlp.up_proj.weight.data[0] += 1e-3
            model.save_pretrained(base)
            given = base if differs == "weights" else model
        elif differs == "chat_template":
            tokenizer.chat_template = "Be brief. " + tokenizer.chat_template
        else:
            content = json.loads((base / "tokenizer.json").read_text())
            content["model"]["merges"] = content["model"]["merges"][:-1]
            (base / "tokenizer.json").write_text(json.dumps(content))
            tokenizer = None
        with pytest.raises(UserError, match=rf"(expanded otherwise|another model) .*\({differs.split()[0]}\)"):
            initial(given, Expansion(size=10), tokenizer)
        if isinstance(given, PreTrainedModel):  # as it was, for another folder
            assert given.get_input_embeddings().weight.size(0) == given.config.vocab_size


def test_policy_and_reference_are_read_onto_one_device(make_trainer, expand_shape, tmp_path, monkeypatch):
    read = []

    def from_path(name, **settings):
        read.append(settings["device_map"])
        return create_model_from_path(name, **settings)

    monkeypatch.setattr(trl_grpo, "create_model_from_path", from_path)
    make_trainer(expand_shape("qwen3", size=None), tmp_path, beta=0.1)
    make_trainer(expand_shape("qwen3", size=0), tmp_path, model_init_kwargs={"device_map": "cpu"})
    assert read == [None, None, "cpu"]


def test_a_model_that_would_be_cut_over_gpus_is_refused(make_trainer, expand_shape, tmp_path, monkeypatch):
    monkeypatch.setattr(trl_grpo, "create_model_from_path", None)
    with pytest.raises(UserError, match="device_map=auto"):
        make_trainer(expand_shape("qwen3", size=None), tmp_path, model_init_kwargs={"device_map": "auto"})
    monkeypatch.setattr(GRPOConfig, "n_gpu", 2)
    with pytest.raises(UserError, match="one process sees 2 GPUs"):
        make_trainer(expand_shape("qwen3", size=0), tmp_path)
