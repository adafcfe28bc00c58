"""The gradient of a tied embedding from its input side, which is as large as the table and nearly all zeros."""

from __future__ import annotations

from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType

from rlvr_vocab.vocab.peft.trained_rows import TrainedRows

# Elements of a table from which a second gradient of its size (64 MiB) is worth sparing.
_SMALLEST_SPARED_TABLE = 2**24


def accumulate_tied_gradient(model: Any, accelerator: Accelerator) -> None:
    """With tied weights, have the input side's gradient added to the head's row by row.

    The dense one is another tensor of the table's size; a sparse one is added to the head's where it lies. Only in one
    process: DDP wants to know beforehand which gradients are sparse, and sharded tables have their own way.
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
    """Autograd adds a sparse gradient to a dense one in a third tensor; here the sum is made in the dense one."""
    table = embedding.weight

    def give_each_its_own(*_: Any) -> None:
        if torch.is_grad_enabled():
            embedding._parameters["weight"], head._parameters["weight"] = _TwoUses.apply(table)

    def give_back(*_: Any) -> None:
        embedding._parameters["weight"] = head._parameters["weight"] = table

    model.register_forward_pre_hook(give_each_its_own)
    model.register_forward_hook(give_back, always_call=True)


class _TwoUses(torch.autograd.Function):
    """`(table, table)`: for looking up rows, with a sparse gradient, and for the head, with a dense one."""

    @staticmethod
    def forward(ctx: Any, table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.set_materialize_grads(False)
        return table.view_as(table), table.view_as(table)

    @staticmethod
    def backward(ctx: Any, sparse: torch.Tensor | None, dense: torch.Tensor | None) -> torch.Tensor | None:
        return sparse if dense is None else dense if sparse is None else dense.add_(sparse)
