"""What is asked of a run once torch is there, before a weight is read: GPU, processes, TRL, an adapter's layers."""

from __future__ import annotations

import os

import torch
from accelerate import PartialState

from rlvr_vocab.config.checks.machine import ATTENTION, FLASH_PACKAGES
from rlvr_vocab.config.sections import RunSettings, StageSettings, stage_error_context
from rlvr_vocab.device import device_type, require_one_gpu
from rlvr_vocab.errors import UserError
from rlvr_vocab.runs.model import source_kwargs, untrained_base
from rlvr_vocab.runs.model_folder import naming_model_keys
from rlvr_vocab.text import nearest_and_all
from rlvr_vocab.training.arguments import grpo_config
from rlvr_vocab.training.models.lora import linear_layers, skeleton, vocabulary_modules
from rlvr_vocab.vocab.expand import read_base

_SHARDED = "accelerate_configs/ddp.yaml trains it in several processes, whole in each"


def check_accelerator(settings: RunSettings) -> None:
    """Refuses several GPUs in one process, what TRL refuses, and what a machine without a GPU cannot do."""
    one_process = os.environ.get("LOCAL_RANK", "-1") == "-1"  # not by a launcher of several
    gpus = torch.cuda.device_count() if one_process and not _on_cpu(settings) else 0
    model = settings.model
    require_one_gpu(gpus, model.model_kwargs.get("device_map"), copies=model.adds_copies, key="model.model_kwargs.")
    for each in settings.stages or (StageSettings("", None, settings),):
        with stage_error_context(each.name):
            of_the_run = {"output_dir": str(settings.output_dir), "report_to": "none", "num_generations_eval": 1}
            grpo_config({**each.run.training.grpo, **of_the_run})
    for stage in (settings, *(stage.run for stage in settings.stages)):
        if device_type(_on_cpu(stage)) == "cpu":
            _check_without_gpu(stage)


def check_processes(settings: RunSettings) -> None:
    """Refuses what cannot be sharded, and processes that would not find each other.

    Call it before the processes are joined.
    """
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if several and not _on_cpu(settings) and device_type() == "cpu":
        raise UserError(
            f"{os.environ['WORLD_SIZE']} processes were started, and there is no GPU here: with training.use_cpu=true "
            "they train together on the CPU"
        )
    if _is_set("ACCELERATE_USE_FSDP"):
        _check_fsdp()
        _check_sharded(settings, "FSDP")
    if _is_set("ACCELERATE_USE_DEEPSPEED"):
        _check_sharded(settings, "DeepSpeed")
        _check_deepspeed(settings)


def _check_fsdp() -> None:
    if os.environ.get("FSDP_VERSION") != "2":
        raise UserError("fsdp_version: 2 is what a run is sharded with: take accelerate_configs/fsdp2.yaml")
    if os.environ.get("FSDP_STATE_DICT_TYPE") != "FULL_STATE_DICT":
        raise UserError(
            f"fsdp_state_dict_type: {os.environ.get('FSDP_STATE_DICT_TYPE')} writes checkpoints that no stock class "
            "loads: set FULL_STATE_DICT, as in accelerate_configs/fsdp2.yaml"
        )
    if _is_set("FSDP_CPU_RAM_EFFICIENT_LOADING"):
        raise UserError(
            "fsdp_cpu_ram_efficient_loading: true loads the weights in the main process alone, and the model before "
            "training is needed in all: set it to false, as in accelerate_configs/fsdp2.yaml"
        )


def _check_deepspeed(settings: RunSettings) -> None:
    if settings.stages:
        raise UserError(
            "stages: under DeepSpeed a later stage cannot take over the weights of the one before; take "
            "accelerate_configs/fsdp2.yaml"
        )
    model = settings.model
    rows = model.lora.train_rows == "all" or (model.lora.train_rows == "reasoning" and model.adds_copies)
    if model.trains_adapter and rows:
        raise UserError(
            f"model.lora.train_rows={model.lora.train_rows}: rows that train beside a sharded table are not gathered "
            "by DeepSpeed; take accelerate_configs/fsdp2.yaml, or set model.lora.train_rows=none"
        )


def _check_sharded(settings: RunSettings, by: str) -> None:
    model = settings.model
    if model.bits is not None:
        raise UserError(f"{model.needs_adapter}: quantized weights are not sharded by {by}; {_SHARDED}")
    for stage in (settings, *(stage.run for stage in settings.stages)):
        if stage.training.grpo.get("use_vllm") and model.trains_adapter:
            raise UserError(
                f"training.use_vllm=true merges the adapter at every step, and {by} holds it in parts: set "
                f"training.use_vllm=false or model.lora.enabled=false; {_SHARDED}"
            )


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("true", "1")


def _on_cpu(settings: RunSettings) -> bool:
    return bool(settings.training.grpo.get("use_cpu")) or _is_set("ACCELERATE_USE_CPU")


def _check_without_gpu(settings: RunSettings) -> None:
    attention = settings.model.model_kwargs.get("attn_implementation")
    if attention in FLASH_PACKAGES or attention == "flex_attention" or "/" in (attention or ""):
        # Flex attention computes on a CPU, but has no backward pass there.
        raise UserError(f"{ATTENTION}={attention} needs a GPU, and there is none here: set {ATTENTION}=sdpa")
    if settings.training.grpo.get("use_liger_kernel"):
        raise UserError(
            "training.use_liger_kernel=true needs a GPU, and there is none here: set training.use_liger_kernel=false"
        )


TARGETS = "model.lora.target_modules"


def check_target_modules(settings: RunSettings) -> None:
    """Every name is that of a layer which an adapter can be put on.

    PEFT accepts a list of which only one name is right, and trains without the others.
    """
    model = settings.model
    if not model.trains_adapter or isinstance(model.lora.target_modules, str):
        return
    with PartialState().main_process_first():  # the others find a model that is made here in the cache
        base = untrained_base(settings)
    with naming_model_keys():
        read_base(base, source_kwargs(model))  # refuses what is no language model
    bare = skeleton(base, **source_kwargs(model))
    layers, tables = linear_layers(bare), vocabulary_modules(bare)
    for name in model.lora.target_modules:
        if any(_names(name, table) for table in tables):
            raise UserError(
                f"{TARGETS}: {name} takes no adapter, it has a row for every token: set "
                "model.lora.train_rows=reasoning, or all, to train those"
            )
        if not any(_names(name, layer) for layer in layers):
            known = sorted({layer.rpartition(".")[2] for layer in layers})
            raise UserError(f"{TARGETS}: {model.name} has no linear layer {name}{nearest_and_all(name, known)}")


def _names(given: str, module: str) -> bool:
    """As PEFT matches a list: a whole name, or its end from a dot on."""
    return module == given or module.endswith(f".{given}")
