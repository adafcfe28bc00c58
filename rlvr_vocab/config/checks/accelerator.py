"""Refuses, once torch is imported and before a weight is read: GPUs, processes, TRL's arguments, adapted layers."""

from __future__ import annotations

import os

import torch
from accelerate import PartialState

from rlvr_vocab.config.sections import RunSettings, stage_error_context, stages_of
from rlvr_vocab.device import device_type, require_one_gpu
from rlvr_vocab.errors import UserError
from rlvr_vocab.runs.model import source_kwargs, untrained_base
from rlvr_vocab.text import nearest_and_all
from rlvr_vocab.training.arguments import grpo_config
from rlvr_vocab.training.models.lora import linear_layers, skeleton
from rlvr_vocab.vocab.expand import read_base


def check_accelerator(settings: RunSettings) -> None:
    """Refuses several GPUs in one process, arguments that TRL refuses, and settings that need a GPU without one."""
    one_process = os.environ.get("LOCAL_RANK", "-1") == "-1"  # not by a launcher of several
    gpus = torch.cuda.device_count() if one_process and not _on_cpu(settings) else 0
    model = settings.model
    require_one_gpu(gpus, model.model_kwargs.get("device_map"), copies=model.adds_copies, key="model.model_kwargs.")
    for stage in stages_of(settings):
        with stage_error_context(stage.name):
            of_the_run = {"output_dir": str(settings.output_dir), "report_to": "none", "num_generations_eval": 1}
            grpo_config({**stage.run.training.grpo, **of_the_run})
            if device_type(_on_cpu(stage.run)) == "cpu":
                _check_without_gpu(stage.run)


def _on_cpu(settings: RunSettings) -> bool:
    return bool(settings.training.grpo.get("use_cpu")) or _is_set("ACCELERATE_USE_CPU")


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("true", "1")


def _check_without_gpu(settings: RunSettings) -> None:
    key = "model.model_kwargs.attn_implementation"
    if settings.model.model_kwargs.get("attn_implementation") == "flex_attention":  # no backward pass on a CPU
        raise UserError(f"{key}=flex_attention needs a GPU, and there is none here: set {key}=sdpa")
    if settings.training.grpo.get("use_liger_kernel"):
        raise UserError("training.use_liger_kernel=true needs a GPU, and there is none here: set it to false")


# (variable of accelerate, the values that work, the key in its file and why)
_FSDP = (
    ("FSDP_VERSION", ("2",), "fsdp_version: 2 is needed to shard a run"),
    ("FSDP_STATE_DICT_TYPE", ("full_state_dict",), "fsdp_state_dict_type: stock classes load FULL_STATE_DICT alone"),
    ("FSDP_CPU_RAM_EFFICIENT_LOADING", ("false", "0", ""), "fsdp_cpu_ram_efficient_loading: set it to false"),
)
_FSDP2 = "take accelerate_configs/fsdp2.yaml"


def check_processes(settings: RunSettings) -> None:
    """Refuses settings that cannot be sharded, and processes without a device; call it before they are joined."""
    model, number = settings.model, os.environ.get("WORLD_SIZE", "1")
    if int(number) > 1 and not _on_cpu(settings) and device_type() == "cpu":
        raise UserError(f"{number} processes and no GPU: set training.use_cpu=true to train on the CPU")
    by_fsdp, by_deepspeed = _is_set("ACCELERATE_USE_FSDP"), _is_set("ACCELERATE_USE_DEEPSPEED")
    for variable, right, why in _FSDP if by_fsdp else ():
        if os.environ.get(variable, "").lower() not in right:
            raise UserError(f"{why}; {_FSDP2}")
    if not (by_fsdp or by_deepspeed):
        return
    by, whole = "FSDP" if by_fsdp else "DeepSpeed", "accelerate_configs/ddp.yaml trains it whole in each process"
    if model.bits is not None:
        raise UserError(f"{model.needs_adapter}: quantized weights are not sharded by {by}; {whole}")
    uses_vllm = any(stage.run.training.grpo.get("use_vllm") for stage in stages_of(settings))
    if uses_vllm and model.trains_adapter:
        raise UserError(f"training.use_vllm=true: {by} holds the adapter in parts, which vLLM cannot take; {whole}")
    if not by_deepspeed:
        return
    if settings.stages:
        raise UserError(f"stages: DeepSpeed hands no weights from stage to stage; {_FSDP2}")
    rows = model.lora.train_rows
    if model.trains_adapter and (rows == "all" or (rows == "reasoning" and model.adds_copies)):
        raise UserError(f"model.lora.train_rows={rows}: DeepSpeed gathers no such rows; {_FSDP2}, or set it to none")


def check_layers(settings: RunSettings) -> None:
    """The attention exists and is installed, and every named layer takes an adapter: PEFT trains without the others."""
    model = settings.model
    attention, targets = model.model_kwargs.get("attn_implementation"), model.lora.target_modules
    names = targets if model.trains_adapter and not isinstance(targets, str) else ()
    if attention is None and not names:
        return
    with PartialState().main_process_first():  # the others find a model that is made here in the cache
        base = untrained_base(model, settings.seed, settings.dataset)
    kwargs = source_kwargs(model, base)
    read_base(base, kwargs)  # refuses a folder or a name that holds no language model
    try:
        layers = linear_layers(skeleton(base, **kwargs, attn_implementation=attention))
    except (ValueError, ImportError) as error:
        line = str(error).strip().splitlines()[0]
        raise UserError(f"model.model_kwargs.attn_implementation={attention}: {line}") from error
    for name in names:
        if not any(layer == name or layer.endswith(f".{name}") for layer in layers):  # as PEFT matches a list
            known = sorted({layer.rpartition(".")[2] for layer in layers})
            why = f"{model.name} has no linear layer {name} besides those of model.lora.train_rows"
            raise UserError(f"model.lora.target_modules: {why}{nearest_and_all(name, known)}")
