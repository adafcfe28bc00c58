"""Gives a Transformers model a head that scores labels under the region policy, beside its ordinary forward."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import ModelOutput

from rlvr_vocab.vocab.adapter import TrainedRows
from rlvr_vocab.vocab.copied_rows import copied_rows_of
from rlvr_vocab.vocab.head_logits import HeadSettings, HeadWeights, whole_in_zero3
from rlvr_vocab.vocab.logprobs import Scores, region_logprobs
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import scored_regions
from rlvr_vocab.vocab.truncation import KeptTexts, PackedTexts


@dataclass
class RegionScores(ModelOutput):
    """`Scores` of the next-token labels, `(B, T - 1)` each, 0 where the label is -100; `entropy` is over texts.

    `aux_loss` is the load-balancing loss of a mixture-of-experts model, when its router logits were asked for.
    """

    log_probs: torch.Tensor | None = None
    entropy: torch.Tensor | None = None
    copy_log_probs: torch.Tensor | None = None
    copy_entropy: torch.Tensor | None = None
    copy_capacity: torch.Tensor | None = None
    aux_loss: torch.Tensor | None = None


def attach_region_head(
    model: PreTrainedModel,
    *,
    policy: RegionPolicy,
    temperature: float = 1.0,
    cast_lm_head_to_fp32: bool = False,
    outputs: tuple[str, ...] = (),
) -> None:
    """`model(input_ids=…, labels=…, fused_lm_head=True)` then returns `RegionScores`.

    `kept_texts=…` replays a truncation: for each row the texts that its labels were drawn from. Without
    `fused_lm_head=True` the model's own forward runs. This replaces `trl.trainer.utils.add_fused_lm_head` and has its
    signature; `outputs` is ignored, because log-probabilities and entropy come from the same pass. `temperature`
    divides the logits of all calls. `cast_lm_head_to_fp32` runs the head in float32, outside autocast.
    """
    own_forward = model.forward
    settings = head_settings(model.config, temperature)

    # Keep the original signature: `generate` validates its model kwargs against it.
    @functools.wraps(type(model).forward)
    def forward(self: PreTrainedModel, *args: Any, fused_lm_head: bool = False, **kwargs: Any) -> Any:
        if not fused_lm_head:
            return own_forward(*args, **kwargs)
        return _score(self, policy, settings, cast_lm_head_to_fp32, **kwargs)

    model.forward = types.MethodType(forward, model)


def head_settings(config: PreTrainedConfig, temperature: float) -> HeadSettings:
    """A model family's steps from the head's product to logits, read from the fields of its configuration."""
    text = config.get_text_config()
    caps = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
    softcap = next((getattr(text, name) for name in caps if hasattr(text, name)), None)
    names = ("logit_scale", "output_multiplier", "lm_head_multiplier")
    scales = [scale for scale in (getattr(text, name, None) for name in names) if scale is not None]
    divisor = getattr(text, "logits_scaling", None)
    if not scales and divisor is not None:
        # HyperCLOVA X multiplies by this field; Granite and MiniCPM3 divide by it.
        scales = [divisor if text.model_type == "hyperclovax" else 1 / divisor]
    return HeadSettings(temperature, softcap, scales[0] if scales else 1.0)


def _score(
    model: PreTrainedModel,
    policy: RegionPolicy,
    settings: HeadSettings,
    cast_lm_head_to_fp32: bool,
    *,
    input_ids: torch.Tensor,
    labels: torch.Tensor,
    kept_texts: Sequence[PackedTexts] | None = None,
    **kwargs: Any,
) -> RegionScores:
    backbone = model.base_model(input_ids=input_ids, **{**_positions(model, kwargs), **kwargs, "use_cache": False})
    # Looked up at each call: FSDP and PEFT replace the head after this function is attached.
    head = model.get_output_embeddings()
    device = head.weight.device
    labels = labels[:, 1:].to(device)
    scored = labels != -100
    regions = scored_regions(input_ids.to(device), policy.layout)[:, 1:][scored]
    hidden = backbone.last_hidden_state[:, :-1].to(device)[scored]
    # The loss leaves some rows out, which have no labels.
    replayed = [] if kept_texts is None else [kept_texts[row] for row in scored.any(1).nonzero().squeeze(1).tolist()]
    kept = KeptTexts.of_completions(replayed, device) if replayed else None
    copied = copied_rows_of(model)

    def score(hidden: torch.Tensor) -> Scores:
        own = head.head_weights() if isinstance(head, TrainedRows) else HeadWeights(head.weight, head.bias)
        with whole_in_zero3(*(own if copied is None else copied.head_parameters())):
            weights = own if copied is None else copied.head_weights(hidden)
            return region_logprobs(hidden, weights, labels[scored], regions, policy, settings, kept)

    precision = torch.autocast(device.type, enabled=False) if cast_lm_head_to_fp32 else nullcontext()
    with precision:
        scores = _in_place_of_forward(head, score, hidden.float() if cast_lm_head_to_fp32 else hidden)
    # `masked_scatter` keeps the graph even where nothing is scored, so that such a batch still has a backward.
    in_place = {
        name: each.new_zeros(scored.shape).masked_scatter(scored, each) for name, each in scores._asdict().items()
    }
    return RegionScores(**in_place, aux_loss=_router_loss(model, backbone, kwargs))


def _in_place_of_forward(module: nn.Module, function: Callable[[torch.Tensor], Any], inputs: torch.Tensor) -> Any:
    """Call a module with another forward, within the hooks of FSDP2 and ZeRO-3.

    The hooks gather a module's parameters around its forward, and sum their gradients over all processes in the
    backward pass. A sharded weight that is read outside of them gets only the gradient of its own process.
    """
    own = module.__dict__.get("forward")  # set where a hook has replaced the method of the class
    module.forward = function
    try:
        return module(inputs)
    finally:
        if own is None:
            del module.forward
        else:
            module.forward = own


def _positions(model: PreTrainedModel, kwargs: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Position ids counted from the first id that is not padding, as in `generate`.

    Else a model with absolute positions (GPT-2) would score a left-padded prompt at other positions than it samples.
    """
    mask = kwargs.get("attention_mask")
    if mask is None or "position_ids" not in inspect.signature(model.base_model.forward).parameters:
        return {}
    return {"position_ids": (mask.long().cumsum(1) - 1).clamp(min=0)}


def _router_loss(model: PreTrainedModel, backbone: Any, kwargs: dict[str, Any]) -> torch.Tensor | None:
    if not kwargs.get("output_router_logits"):
        return None
    # Every mixture-of-experts family of Transformers uses this one.
    from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

    text = model.config.get_text_config()
    return load_balancing_loss_func(
        backbone.router_logits, text.num_experts, text.num_experts_per_tok, kwargs.get("attention_mask")
    )
