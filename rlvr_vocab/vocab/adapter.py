"""Adapters over a base with reasoning tokens: the rows that train beside them, and loading one onto its base.

The rows are PEFT layers: PEFT saves and loads them in the adapter's file, switches them off for the reference policy,
merges them into the table for vLLM and restores the table, bit for bit.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from pathlib import Path
from typing import Any

import torch
from peft import PeftConfig, PeftModel, get_peft_model
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors import SafetensorError, safe_open
from torch import nn
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, PreTrainedModel

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.copied_rows import CopiedRows, RowDelta, attach_low_rank_rows, copied_rows_of
from rlvr_vocab.vocab.head_logits import HeadWeights
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.weights import (
    ADAPTER_WEIGHTS,
    DIFFERENCE_KEY,
    READ_AS_DATA,
    ROWS_KEY,
    find_base,
    is_adapter,
    reading_model,
    refuse_invalid_generation_config,
    refuse_not_finite,
)

ADAPTER = "default"  # PEFT's name of a run's one adapter
REFERENCE = "ref"  # TRL's name of the copy that an adapter starts as
# Errors of PEFT and safetensors for a configuration or weights that they cannot use.
_UNFIT = (KeyError, TypeError, ValueError, AttributeError, RuntimeError, SafetensorError, OSError)


class _TrainedPart(nn.Module, BaseTunerLayer):
    """A PEFT layer that trains tensors in place of its base's, and restores those bit for bit after a merge."""

    base_layer: Any

    def __init__(self) -> None:
        super().__init__()
        self._active_adapter = ADAPTER
        self.merged_adapters: list[str] = []
        self._initial: list[torch.Tensor] = []

    @property
    def computes(self) -> str | None:
        """The name of the adapter whose tensors compute; None for the base, also where an adapter has none here."""
        names = {*self.active_adapters} & {*self._all_available_adapter_names()}
        return None if self.disable_adapters or self.merged or not names else names.pop()

    @abstractmethod
    def _pairs(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Each tensor of the base that a merge overwrites, and the trained one."""

    def merge(self, safe_merge: bool = False, adapter_names: list[str] | None = None) -> None:
        if not self.merged:
            self._initial = [own.clone() for own, _ in self._pairs()]
            for own, trained in self._pairs():
                own.copy_(trained)
        self.merged_adapters = [ADAPTER]

    def unmerge(self) -> None:
        for (own, _), initial in zip(self._pairs(), self._initial, strict=False):
            own.copy_(initial)
        self._initial, self.merged_adapters = [], []


class TrainedRows(_TrainedPart):
    """An embedding or a head whose rows from `first` on are a float32 parameter of their own.

    `base_layer` is the frozen layer, whose table keeps the initial rows. `sparse` gives the rows of an embedding a
    sparse gradient, where a dense one is added later.
    """

    def __init__(self, base_layer: nn.Module, first: int, tied_to: TrainedRows | None = None) -> None:
        super().__init__()
        self.base_layer = base_layer.requires_grad_(False)
        self.first, self.sparse = first, False
        # In a tuple, it is no submodule: state dicts hold tied rows once, and PEFT switches them there.
        self._tied_to = () if tied_to is None else (tied_to,)
        if tied_to is None:
            table = self.base_layer.weight
            rows = table.data[first:].to(torch.promote_types(table.dtype, torch.float32), copy=True)
            self.adapter_layer_names = (ROWS_KEY,)
            self.lora_rows = nn.ParameterDict({ADAPTER: nn.Parameter(rows)})

    @property
    def parameter(self) -> nn.Parameter:
        """`(rows - first, H)` float32, active or not."""
        return self._tied_to[0].parameter if self._tied_to else self.lora_rows[ADAPTER]

    @property
    def rows(self) -> nn.Parameter | None:
        """The parameter of the active adapter; None while it is switched off, or merged into the table."""
        owner = self._tied_to[0] if self._tied_to else self
        name = owner.computes
        return None if self.disable_adapters or self.merged or name is None else owner.lora_rows[name]

    def head_weights(self) -> HeadWeights:
        """The output embedding as `region_logprobs` takes it; `first` is 0 or the first copy."""
        weight, bias, rows = self.base_layer.weight, self.base_layer.bias, self.rows
        return HeadWeights(rows, bias) if rows is not None and self.first == 0 else HeadWeights(weight, bias, rows)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.disable_adapters and self.merged:
            self.unmerge()
        rows = self.rows
        if rows is None:
            found: torch.Tensor = self.base_layer(inputs)
            return found
        return self._embed(inputs, rows) if isinstance(self.base_layer, nn.Embedding) else self._score(inputs, rows)

    def _embed(self, ids: torch.Tensor, rows: nn.Parameter) -> torch.Tensor:
        frozen = self.base_layer(ids)
        trained = F.embedding((ids - self.first).clamp(min=0), rows, sparse=self.sparse)
        scale = self._get_embed_scale()  # Gemma multiplies its embeddings
        if scale is not None:
            trained = trained * scale
        return torch.where((ids >= self.first).unsqueeze(-1), trained.to(frozen.dtype), frozen)

    def _score(self, hidden: torch.Tensor, rows: nn.Parameter) -> torch.Tensor:
        weight, bias = self.base_layer.weight, self.base_layer.bias
        standard_bias, bias_of_rows = (None, None) if bias is None else (bias[: self.first], bias[self.first :])
        standard = F.linear(hidden, weight[: self.first], standard_bias)
        return torch.cat((standard, F.linear(hidden, rows.to(hidden.dtype), bias_of_rows)), dim=-1)

    def _pairs(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        # The embedding merges a tied table.
        return [] if self._tied_to else [(self.base_layer.weight.data[self.first :], self.parameter.data)]


def first_trained_row(train_rows: str, layout: VocabLayout) -> int | None:
    """The first row that trains with `train_rows` = `reasoning`, `all` or `none`; None where none does."""
    if train_rows == "none" or (train_rows == "reasoning" and not layout.size):
        return None
    return 0 if train_rows == "all" else layout.standard_size


def add_trained_rows(model: PeftModel, first: int) -> None:
    """Let the rows of embedding and head from `first` on train with a model's adapter.

    The rows begin as the table has them, so the model computes the same. A tied table gets one parameter for both.
    """
    base: Any = model.get_base_model()
    embedding, head = base.get_input_embeddings(), base.get_output_embeddings()
    tied = head.weight is embedding.weight
    trained = TrainedRows(embedding, first)
    base.set_input_embeddings(trained)
    base.set_output_embeddings(TrainedRows(head, first, trained if tied else None))


class TrainedRowDelta(_TrainedPart):
    """Replaces a `RowDelta`, `base_layer`: computes the trained delta while the adapter is on, else the frozen one."""

    adapter_layer_names = (DIFFERENCE_KEY,)

    def __init__(self, base_layer: RowDelta) -> None:
        super().__init__()
        trained = copy.deepcopy(base_layer).requires_grad_(True)
        self.base_layer = base_layer.requires_grad_(False)
        self.lora_difference = nn.ModuleDict({ADAPTER: trained})

    @property
    def in_force(self) -> Any:
        if self.disable_adapters and self.merged:
            self.unmerge()
        return self.base_layer if self.computes is None else self.lora_difference[self.computes]

    def _pairs(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        both = zip(self.base_layer.parameters(), self.lora_difference[ADAPTER].parameters(), strict=True)
        return [(own.data, trained.data) for own, trained in both]


def train_differences(copied: CopiedRows) -> None:
    """Let the deltas of a model's copied rows train with its adapter."""
    for _, module in copied.own_tables():
        if isinstance(module.difference, RowDelta) and module.difference.B is not None:
            module.difference = TrainedRowDelta(module.difference)


def follow_the_active_adapter(model: PeftModel) -> None:
    """Let a switch to another adapter of the model, TRL's reference `ref`, reach the rows beside it."""
    tuner: Any = model.base_model
    tuner.tuner_layer_cls = (type(tuner).tuner_layer_cls, _TrainedPart)


def add_reference_rows(model: PeftModel) -> None:
    """A copy of the rows that train beside an adapter, for TRL's reference: the adapter `ref`, a copy of its layers."""
    for part in (module for module in model.modules() if isinstance(module, _TrainedPart)):
        for tensors in (getattr(part, name) for name in part.adapter_layer_names):
            tensors[REFERENCE] = copy.deepcopy(tensors[ADAPTER]).requires_grad_(False)


def load_model(folder: str | Path, base: str | Path | None = None, **model_kwargs: Any) -> PreTrainedModel | PeftModel:
    """Load the model of a folder, ready to sample; an adapter stays unmerged on its base.

    `base` is given where an adapter's base is not at its recorded path. The dtype is the folder's own by default.
    """
    source = find_base(folder, base) if is_adapter(folder) else folder
    refuse_invalid_generation_config(source)
    with reading_model(source):
        model = AutoModelForCausalLM.from_pretrained(str(source), **{"dtype": "auto", **READ_AS_DATA, **model_kwargs})
    whole = put_adapter_on(model, folder).eval() if is_adapter(folder) else model.eval()
    refuse_not_finite(whole, folder)
    return whole


def put_adapter_on(model: PreTrainedModel, folder: str | Path) -> PeftModel:
    """Load an adapter folder and its trained rows onto their base; UserError if it is broken or does not fit."""
    try:
        config = PeftConfig.from_pretrained(str(folder))
        config.base_model_name_or_path = model.name_or_path  # its place now; PEFT warns of another one
        with safe_open(Path(folder, ADAPTER_WEIGHTS), framework="pt") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        rows = next((shape[0] for name, shape in shapes.items() if name.endswith(f".{ROWS_KEY}")), None)
        adapted: Any = get_peft_model(model, config, adapter_name=ADAPTER)
        if rows is not None:
            add_trained_rows(adapted, model.get_input_embeddings().weight.size(0) - rows)
        if any(f".{DIFFERENCE_KEY}." in name for name in shapes):
            attach_low_rank_rows(model, model.name_or_path)
            copied: Any = copied_rows_of(model)
            train_differences(copied)
        result = adapted.load_adapter(str(folder), ADAPTER, torch_device=str(model.device))
        if strange := [*result.missing_keys, *result.unexpected_keys]:
            raise ValueError(f"{len(strange)} tensors are missing, or have no place in it ({strange[0]} …)")
    except UserError:
        raise
    except _UNFIT as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{folder} is no adapter that fits its base: {type(error).__name__}: {reason}") from error
    return adapted
