"""The model that a trainer begins with: its expanded folder, the type of its weights, the gradient of a tied table."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import DistributedType
from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rlvr_vocab.device import weights_dtype
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.files import INITIAL_MODEL
from rlvr_vocab.training.arguments import GRPOConfig
from rlvr_vocab.training.models.lora import quantized_layers, without_dropout
from rlvr_vocab.training.sharding import is_sharded
from rlvr_vocab.vocab.adapter import TrainedRows
from rlvr_vocab.vocab.expand import Expansion, plan_expansion, require_same_expansion, write_expansion
from rlvr_vocab.vocab.layout import LAYOUT_FILE
from rlvr_vocab.vocab.regions import ANSWERING
from rlvr_vocab.vocab.weights import refuse_invalid_generation_config, stored_dtype

# Elements of a table from which a second gradient of its size (64 MiB) is worth sparing.
_SMALLEST_SPARED_TABLE = 2**24


def initial_folder(
    model: str | Path | PreTrainedModel,
    output_dir: str | Path,
    expansion: Expansion | None,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> Path:
    """The expanded folder of a model; one that exists is reused if it was made from the same model and expansion.

    Args:
        model: a folder written by `expand`, which is returned; a hub name, another folder or a loaded model, which is
            expanded into `output_dir/initial_model`.
        expansion: None for a baseline, without a reasoning vocabulary and with the template as it is.
        tokenizer: the model's own, for its chat template; required with a loaded model.
    """
    if not isinstance(model, PreTrainedModel) and (Path(model) / LAYOUT_FILE).is_file():
        if expansion is not None:
            raise UserError(f"{model} is an expanded model already: leave out reasoning_vocab_size and expansion")
        refuse_invalid_generation_config(model)
        return Path(model)
    wanted = expansion or Expansion(open_thinking="model")
    if tokenizer is not None and wanted.chat_template is None:
        wanted = replace(wanted, chat_template=tokenizer.chat_template)
    folder = Path(output_dir) / INITIAL_MODEL
    with PartialState().main_process_first(), tempfile.TemporaryDirectory() as saved:
        if isinstance(model, PreTrainedModel):
            if tokenizer is None:
                raise UserError("a loaded model needs processing_class=…, its tokenizer")
            for each in (model, tokenizer):
                each.save_pretrained(saved)
        plan = plan_expansion(saved if isinstance(model, PreTrainedModel) else str(model), wanted)
        if not folder.is_dir():
            write_expansion(plan, folder)
        require_same_expansion(plan, folder)
    return folder


def as_the_machine_computes(args: GRPOConfig, folder: Path) -> dict[str, Any]:
    """`model_init_kwargs` for the weights of a folder: float32 where bfloat16 is slow, all on one device.

    TRL's default, `device_map="auto"`, splits a model over all visible GPUs.
    """
    loading: dict[str, Any] = dict(args.model_init_kwargs or {})
    asked = loading.get("dtype", "float32")
    dtype = stored_dtype(folder) if asked == "auto" else asked
    named: Any = getattr(torch, dtype, dtype) if isinstance(dtype, str) else dtype
    return {"device_map": None, **loading, "dtype": weights_dtype(named, bool(args.use_cpu))}


def disable_functional_dropout(model: torch.nn.Module) -> None:
    """Set the rates that layers pass to dropout functions to 0: TRL's `disable_dropout` reaches `nn.Dropout` alone."""
    for module in model.modules():
        for name, value in vars(module).items():
            if "drop" in name and isinstance(value, float):
                setattr(module, name, 0.0)


# Nats on average between head and logits: roundings of float32, and of the 16 bits of logits beside 30 and beyond.
_MOST_DIFFERENCE, _IN_16_BITS, _SHARE_IN_16_BITS = 1e-3, 0.25, 2**-8


@torch.no_grad()
def refuse_other_logits(trainer: Any) -> None:
    """UserError where the region head's log-probabilities are not those of the model's own logits.

    A family may cap or scale its logits by a setting that `head_settings` has no name of, or be random while it
    trains. Sharded and quantized models are not compared.
    """
    model, policy, device = trainer.model, trainer.policy, trainer.accelerator.device
    if is_sharded(trainer.accelerator.state) or quantized_layers(model):
        return
    layout = policy.layout
    ordinary = [id_ for id_ in range(layout.standard_size) if id_ not in layout.control_ids]
    ids = torch.tensor([ordinary[len(ordinary) // 2 :][:8]], device=device)  # while answering all of them are open
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    was_training = model.training
    model.train(trainer.args.disable_dropout)
    with trainer.accelerator.autocast(), without_dropout(model):
        # `device_map` may have put the head on another device than the embedding.
        scored = model(**given, labels=ids, fused_lm_head=True).log_probs.to(device)
        logits = model(**given, use_cache=False).logits[:, :-1].float().to(device)
    model.train(was_training)
    logits /= trainer.temperature
    log_p = (logits + policy.bias_on(device)[ANSWERING]).log_softmax(-1)
    off = (log_p.gather(2, ids[:, 1:, None]).squeeze(2) - scored).abs().mean().item()
    precise = model.dtype == torch.float32 and not (trainer.args.bf16 or trainer.args.fp16)
    rounding = max(_IN_16_BITS, _SHARE_IN_16_BITS * logits.abs().max().item())
    if not off <= (_MOST_DIFFERENCE if precise else rounding):
        base = model.get_base_model() if isinstance(model, PeftModel) else model
        raise UserError(
            f"{type(base).__name__}: scores differ from its own logits by {off:.2g} nats on average: it caps or scales "
            "them in a way that is not known here, or has dropout of its own; choose another model"
        )


def accumulate_tied_gradient(model: Any, accelerator: Accelerator) -> None:
    """With tied weights, add the input side's gradient, a sparse one, to the head's in place (docs/LOG.md).

    A dense one would be another tensor of the table's size. In one process only: DDP must know in advance which
    gradients are sparse.
    """
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    tied = embedding.weight is head.weight
    table = embedding.parameter if isinstance(embedding, TrainedRows) else embedding.weight
    large = table.requires_grad and table.numel() >= _SMALLEST_SPARED_TABLE
    if tied and large and accelerator.distributed_type == DistributedType.NO:
        embedding.sparse = True
        if not isinstance(embedding, TrainedRows):
            _add_in_place(model, embedding, head)


def _add_in_place(model: Any, embedding: Any, head: Any) -> None:
    """Autograd sums a sparse and a dense gradient in a third tensor; this sums into the dense one."""
    table = embedding.weight

    def use_apart(*_: Any) -> None:
        if torch.is_grad_enabled():
            embedding._parameters["weight"], head._parameters["weight"] = _TwoUses.apply(table)

    def use_together(*_: Any) -> None:
        embedding._parameters["weight"] = head._parameters["weight"] = table

    model.register_forward_pre_hook(use_apart)
    model.register_forward_hook(use_together, always_call=True)


class _TwoUses(torch.autograd.Function):
    """`(table, table)`: for looking up rows, with a sparse gradient, and for the head, with a dense one."""

    @staticmethod
    def forward(ctx: Any, table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.set_materialize_grads(False)
        return table.view_as(table), table.view_as(table)

    @staticmethod
    def backward(ctx: Any, sparse: torch.Tensor | None, dense: torch.Tensor | None) -> torch.Tensor | None:
        return sparse if dense is None else dense if sparse is None else dense.add_(sparse)
