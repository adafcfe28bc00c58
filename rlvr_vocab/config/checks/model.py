"""What of the model section can be refused before torch is imported: vocabulary, adapter, quantization."""

from collections.abc import Mapping
from typing import Any

from rlvr_vocab.config.checks import machine
from rlvr_vocab.config.checks.machine import check_attention
from rlvr_vocab.config.sections import NOT_FOR_FROM_PRETRAINED, ModelKwargs, ModelSettings
from rlvr_vocab.config.values import read
from rlvr_vocab.errors import UserError
from rlvr_vocab.runs.model_folder import check_model_source
from rlvr_vocab.text import nearest_word
from rlvr_vocab.vocab.layout import refuse_expanded

# Arguments of from_pretrained by which it would unpickle what it reads.
PICKLES = ("use_safetensors", "weights_only")


def check_model(model: ModelSettings) -> None:
    """What holds for a model, whatever is done with it."""
    check_model_kwargs(model.model_kwargs)
    check_vocabulary(model)
    if model.tiny is None:
        check_model_source(model)


def check_trained_model(model: ModelSettings) -> None:
    """What a run asks for beyond that: an adapter, quantized weights, an attention."""
    refuse_expanded(model.name)
    check_adapter(model)
    check_quantization(model)
    check_attention(model.model_kwargs.get("attn_implementation"))
    if model.model_kwargs.get("use_kernels"):
        machine.require("kernels", "model.model_kwargs.use_kernels=true", "leave it out")


def check_vocabulary(model: ModelSettings) -> None:
    if model.reasoning_rank == 0 and model.init_noise:
        raise UserError(
            f"model.init_noise={model.init_noise} with model.reasoning_rank=0: such a copy is what its source is; set "
            "model.init_noise=0, or a rank of 1 or more"
        )
    if model.chat_template is not None and not model.chat_template.is_file():
        raise UserError(f"model.chat_template={model.chat_template}: no such file")


def check_model_kwargs(kwargs: Mapping[str, Any]) -> None:
    for key in kwargs:
        nearest = nearest_word(key, NOT_FOR_FROM_PRETRAINED)
        if key == "dtype" or (key not in NOT_FOR_FROM_PRETRAINED and nearest and abs(len(key) - len(nearest)) <= 2):
            raise UserError(f"unknown key model.model_kwargs.{key}; did you mean model.model_kwargs.{nearest}?")
    for key in PICKLES:
        if key in kwargs:
            alone = "weights are read as safetensors alone"
            raise UserError(f"model.model_kwargs.{key} is not used here: {alone}; leave it out")
    if "quantization_config" in kwargs:
        raise UserError(
            "model.model_kwargs.quantization_config is not used here: set model.model_kwargs.load_in_8bit or "
            "model.model_kwargs.load_in_4bit to true"
        )
    read(ModelKwargs, kwargs, "model.model_kwargs")


def check_adapter(model: ModelSettings) -> None:
    if not model.lora.target_modules or not all(name.strip() for name in model.lora.target_modules):
        raise UserError(
            "model.lora.target_modules: name one module or more, e.g. [q_proj,v_proj], or set it to all-linear"
        )
    if model.needs_adapter is not None and model.lora.enabled is False:
        raise UserError(
            f"{model.needs_adapter} trains an adapter, nothing else can train: leave model.lora.enabled=false out"
        )
    if model.pure_bf16 and model.trains_adapter:
        raise UserError(
            "model.pure_bf16=true is for a model whose own weights train: an adapter stays float32 and costs little "
            f"memory, the frozen weights are {model.dtype} already; leave it out"
        )

    if not model.adds_copies:
        return
    if model.lora.train_rows == "all" and model.trains_adapter and model.reasoning_rank is not None:
        raise UserError(
            f"model.lora.train_rows=all with model.reasoning_rank={model.reasoning_rank}: rows beside an adapter train "
            "whole or as differences from their sources; set model.lora.train_rows=reasoning, or "
            "model.reasoning_rank=null"
        )


def check_quantization(model: ModelSettings) -> None:
    if model.model_kwargs.get("load_in_8bit") and model.model_kwargs.get("load_in_4bit"):
        raise UserError("model.model_kwargs.load_in_8bit=true and load_in_4bit=true: choose one of them")
    if model.bits is not None:
        key = f"model.model_kwargs.load_in_{model.bits}bit"
        machine.require("bitsandbytes", f"{key}=true", f"set {key}=false")


def check_rollouts(model: ModelSettings, grpo: Mapping[str, Any]) -> None:
    """How a run samples must go with how its model is loaded."""
    if grpo.get("use_vllm") and model.bits is not None:
        key = f"model.model_kwargs.load_in_{model.bits}bit"
        raise UserError(
            f"training.use_vllm=true with {key}=true: vLLM takes no weights of bitsandbytes; set {key}=false, or "
            "training.use_vllm=false"
        )


def check_optimizer(grpo: Mapping[str, Any]) -> None:
    """Its package is there, and its schedule follows what there is; other packages Transformers asks for itself."""
    optim, schedule = grpo["optim"], grpo["lr_scheduler_type"]
    if optim.startswith(_OF_BITSANDBYTES):
        machine.require("bitsandbytes", f"training.optim={optim}", "set training.optim=adamw_torch_fused")
    if schedule in ("reduce_lr_on_plateau", "greedy"):
        raise UserError(
            f"training.lr_scheduler_type={schedule}: it follows a held-out loss, and GRPO has none; set cosine"
        )


_OF_BITSANDBYTES = ("adamw_8bit", "adamw_bnb_8bit", "paged_", "ademamix", "lion_", "rmsprop_bnb")


def check_kernels(grpo: Mapping[str, Any]) -> None:
    """Liger's kernels go with any head, but for the fused loss; sampling in 16 bits would round the weights."""
    chosen = grpo.get("liger_kernel_config") or {}
    for name in ("fused_linear_cross_entropy", "cross_entropy"):
        if chosen.get(name):
            raise UserError(
                f"training.liger_kernel_config.{name}=true: tokens are scored under the region policy, not by Liger's "
                "loss; leave it out"
            )
    if grpo.get("use_liger_kernel"):
        machine.require("liger_kernel", "training.use_liger_kernel=true", "set training.use_liger_kernel=false")
    half = next((name for name in ("bf16", "fp16") if grpo.get(name)), None)
    if grpo.get("use_transformers_continuous_batching") and half is not None:
        raise UserError(
            f"training.use_transformers_continuous_batching=true with training.{half}=true: to sample, TRL then casts "
            "the weights that train to 16 bits, where most small updates are lost; set one of them to false"
        )
