"""What a run refuses once torch is there, before it reads a weight or writes a file: one line, exit code 2."""

import pytest
import torch

from rlvr_vocab.config.checks import accelerator
from rlvr_vocab.config.checks.accelerator import check_accelerator, check_layers
from rlvr_vocab.errors import UserError
from tests.settings import load_settings

TARGETS = "model.lora.target_modules"
ATTENTION = "model.model_kwargs.attn_implementation"
RUN = ("quickstart", "training.use_cpu=true", "output_dir=run")


@pytest.fixture(autouse=True)
def everything_is_installed(monkeypatch):
    monkeypatch.setattr("rlvr_vocab.errors.installed", lambda package: True)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["model.lora.enabled=true", f"{TARGETS}=[q_prj]"], ["q_prj", "did you mean q_proj?", "down_proj"]),
        (["model.lora.enabled=true", f"{TARGETS}=[q_proj,lm_head]"], ["lm_head", "model.lora.train_rows"]),
        ([f"{ATTENTION}=sdp"], [f"{ATTENTION}=sdp: ", "is not supported"]),
        ([f"{ATTENTION}=flash_attention_3"], ["FlashAttention3", "installed"]),
        ([f"{ATTENTION}=flex_attention"], ["needs a GPU", f"{ATTENTION}=sdpa"]),
        (["training.use_liger_kernel=true"], ["needs a GPU", "training.use_liger_kernel"]),
    ],
)
def test_what_cannot_work_here_ends_in_one_line(words, parts, tmp_path, error_of):
    words = [*words, *(["training.bf16=true"] if "flash" in words[0] else [])]
    said = error_of(*RUN, *words)
    assert all(part in said for part in parts), said
    assert not (tmp_path / "run").exists()


def test_a_layer_may_be_named_by_its_end_or_as_a_whole():
    names = f"{TARGETS}=[self_attn.q_proj,model.layers.0.mlp.up_proj]"
    check_layers(load_settings("quickstart", ["model.lora.enabled=true", names]))


@pytest.mark.parametrize(
    ("gpus", "words", "said"),
    [
        (2, ["model.reasoning_vocab_size=0"], "accelerate launch --num_processes 2.*CUDA_VISIBLE_DEVICES=0"),
        (1, ["+model.model_kwargs.device_map=sequential"], "model.model_kwargs.device_map=sequential"),
        (1, ["+model.model_kwargs.device_map={model: 0, lm_head: 1}"], "on two devices"),
    ],
)
def test_a_model_is_not_cut_over_gpus_unnoticed(gpus, words, said, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    with pytest.raises(UserError, match=said):
        check_accelerator(load_settings("quickstart", words))


@pytest.mark.parametrize(
    ("gpus", "rank", "words"),
    [
        (2, "-1", ["+model.model_kwargs.device_map=auto", "model.reasoning_vocab_size=0"]),
        (2, "-1", ["training.use_cpu=true"]),
        (2, "0", ["training.use_liger_kernel=true", f"{ATTENTION}=flex_attention"]),  # one process for each
    ],
)
def test_one_gpu_a_process_is_not_refused(gpus, rank, words, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(accelerator, "device_type", lambda use_cpu: "cuda")
    monkeypatch.setattr(accelerator, "grpo_config", lambda grpo: None)  # which would wait for the other processes
    monkeypatch.setenv("LOCAL_RANK", rank)
    check_accelerator(load_settings("quickstart", words))
