"""The gradient of a tied embedding from its input side, which is as large as the table and nearly all zeros."""

from __future__ import annotations

from typing import Any

from accelerate import Accelerator
from accelerate.utils import DistributedType

from rlvr_vocab.vocab.peft.trained_rows import TrainedRows

# Elements of a table from which a second gradient of its size (64 MiB) is worth sparing.
_SMALLEST_SPARED_TABLE = 2**24


def spare_embedding_gradient(model: Any, accelerator: Accelerator) -> None:
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
