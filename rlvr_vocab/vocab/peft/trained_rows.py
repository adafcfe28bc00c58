"""Rows of embedding and head that train beside a LoRA adapter: a parameter of their own over a frozen table.

They are PEFT layers, so that PEFT does with them what it does with the adapter: saves and loads them in the same
file, switches them off for the reference policy, merges them into the table for vLLM and takes them out again, to
the bit.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn
from torch.nn import functional as F

from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.peft.adapter_base import ROWS_KEY

ADAPTER = "default"  # PEFT's name of the one adapter of a run


class TrainedRows(nn.Module, BaseTunerLayer):
    """What embedding and head have in common.

    Attributes:
        base_layer: the frozen layer; its table keeps the initial rows.
        first: the first row that trains; all after it do.
    """

    base_layer: Any

    def __init__(self, base_layer: nn.Module, first: int) -> None:
        super().__init__()
        self.base_layer = base_layer.requires_grad_(False)
        self.first = first
        self.merged_adapters: list[str] = []
        self._initial_rows: torch.Tensor | None = None

    @property
    @abstractmethod
    def parameter(self) -> nn.Parameter:
        """`(rows - first, H)` float32, whether in force or not."""

    @property
    def rows(self) -> nn.Parameter | None:
        """The parameter where it is in force; None where the table counts: switched off, or merged into it."""
        return None if self.disable_adapters or self.merged else self.parameter

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.disable_adapters and self.merged:
            self.unmerge()
        rows = self.rows
        return self.base_layer(inputs) if rows is None else self.joined(inputs, rows)

    @abstractmethod
    def joined(self, inputs: torch.Tensor, rows: nn.Parameter) -> torch.Tensor:
        """What the layer gives where `rows` stand for the end of its table."""

    @property
    def shares_table(self) -> bool:
        """Whether the table is merged and restored by another layer, to which this one is tied."""
        return False

    def merge(self, safe_merge: bool = False, adapter_names: list[str] | None = None) -> None:
        if not self.merged and not self.shares_table:
            table = self.base_layer.weight.data[self.first :]
            self._initial_rows = table.clone()
            table.copy_(self.parameter.data)
        self.merged_adapters = [ADAPTER]

    def unmerge(self) -> None:
        if self._initial_rows is not None:
            self.base_layer.weight.data[self.first :] = self._initial_rows
            self._initial_rows = None
        self.merged_adapters = []


class TrainedRowsEmbedding(TrainedRows):
    """An embedding whose ids from `first` on are looked up in a parameter of their own.

    Attributes:
        sparse: give the rows a sparse gradient, where another dense one is to come.
    """

    adapter_layer_names = (ROWS_KEY,)

    def __init__(self, base_layer: nn.Embedding, first: int) -> None:
        super().__init__(base_layer, first)
        self.lora_rows = nn.ParameterDict({ADAPTER: _copied_rows(base_layer.weight, first)})
        self.sparse = False

    @property
    def parameter(self) -> nn.Parameter:
        return self.lora_rows[ADAPTER]

    def joined(self, inputs: torch.Tensor, rows: nn.Parameter) -> torch.Tensor:
        frozen = self.base_layer(inputs)
        trained = F.embedding((inputs - self.first).clamp(min=0), rows, sparse=self.sparse)
        scale = self._get_embed_scale()  # Gemma multiplies what it looks up
        if scale is not None:
            trained = trained * scale
        return torch.where((inputs >= self.first).unsqueeze(-1), trained.to(frozen.dtype), frozen)


class TrainedRowsHead(TrainedRows):
    """An output layer that scores ids from `first` on by a parameter of its own, or by a tied embedding's."""

    def __init__(self, base_layer: nn.Linear, first: int, tied_to: TrainedRowsEmbedding | None = None) -> None:
        super().__init__(base_layer, first)
        # In a tuple, it is no submodule: state dicts hold tied rows once, and PEFT switches them there.
        self._tied_to = () if tied_to is None else (tied_to,)
        if tied_to is None:
            self.adapter_layer_names = (ROWS_KEY,)
            self.lora_rows = nn.ParameterDict({ADAPTER: _copied_rows(base_layer.weight, first)})

    @property
    def shares_table(self) -> bool:
        return bool(self._tied_to)

    @property
    def parameter(self) -> nn.Parameter:
        return self._tied_to[0].parameter if self._tied_to else self.lora_rows[ADAPTER]

    def joined(self, inputs: torch.Tensor, rows: nn.Parameter) -> torch.Tensor:
        weight, bias = self.base_layer.weight, self.base_layer.bias
        standard_bias, bias_of_rows = (None, None) if bias is None else (bias[: self.first], bias[self.first :])
        standard = F.linear(inputs, weight[: self.first], standard_bias)
        return torch.cat((standard, F.linear(inputs, rows.to(inputs.dtype), bias_of_rows)), dim=-1)


def add_trained_rows(model: PeftModel, first: int) -> None:
    """Let the rows from `first` on train, in embedding and head, with the adapter of a model.

    Nothing changes in what the model computes: the rows begin as the table has them. A table that embedding and head
    share gets one parameter for both.
    """
    base: Any = model.get_base_model()
    embedding, head = base.get_input_embeddings(), base.get_output_embeddings()
    tied = head.weight is embedding.weight
    trained = TrainedRowsEmbedding(embedding, first)
    base.set_input_embeddings(trained)
    base.set_output_embeddings(TrainedRowsHead(head, first, trained if tied else None))


def first_trained_row(train_rows: str, layout: VocabLayout) -> int | None:
    """Where the rows that train begin, under `reasoning`, `all` or `none`; None where none does."""
    if train_rows == "none" or (train_rows == "reasoning" and not layout.size):
        return None
    return 0 if train_rows == "all" else layout.standard_size


def _copied_rows(table: torch.Tensor, first: int) -> nn.Parameter:
    return nn.Parameter(table.data[first:].to(torch.promote_types(table.dtype, torch.float32), copy=True))
