"""Logits of blocks of texts, and the gradients of hidden states and weights.

The head's product is computed group by group: standard rows, then copies. The product of a copy is that of its own
row, or its source's product plus that of its low-rank delta.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch

from rlvr_vocab.vocab.policy import IdGroup, RegionPolicy, TextBlock

# Shapes: N scored positions, n positions of one block, H hidden size, R rows of the table, c ids of one group of a
# block, K copies, r rank of the deltas.
# Ids of a block. On a CPU small blocks stay near the caches (a fifth faster than 64 MiB, measured); an accelerator is
# faster with fewer, larger kernels.
_ROWS_PER_BLOCK = 4096
_ROWS_PER_BLOCK_ON_ACCELERATOR = 16384


@dataclass(frozen=True)
class HeadSettings:
    """The steps between the head's product and the policy: `softcap · tanh(scale · z / softcap) / temperature`."""

    temperature: float = 1.0
    softcap: float | None = None
    scale: float = 1.0


class HeadWeights(NamedTuple):
    """The weights of the output embedding: of all ids, or of the standard tokens and the deltas of their copies.

    `weight` is `(R, H)`, a whole parameter, not a slice of one; `bias` is `(R,)`. `own_rows`, `(K, H)`, replace the
    copies' rows of the weight. `projected`, `(N, r)`, is hidden states times `A` of a `RowDelta`, and `factor`,
    `(K, r)`, is its `B`: the product of a copy without a row of its own is its source's plus `projected · factor[k]`.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None = None
    own_rows: torch.Tensor | None = None
    projected: torch.Tensor | None = None
    factor: torch.Tensor | None = None

    def with_tables_in(self, dtype: torch.dtype) -> HeadWeights:
        own, factor = (None if table is None else table.to(dtype) for table in (self.own_rows, self.factor))
        return self._replace(weight=self.weight.to(dtype), own_rows=own, factor=factor)


Ids = slice | torch.Tensor


class Operand(NamedTuple):
    """The table of `HeadWeights` that gives the products of some ids, their rows in it, and those with a bias."""

    table: Literal["weight", "own_rows", "factor"]
    rows: Ids
    biases: Ids | None


class Inputs(NamedTuple):
    """Hidden states of one block of positions, and their projections, in the dtype of the head's computation."""

    positions: torch.Tensor
    hidden_nH: torch.Tensor
    projected_nr: torch.Tensor | None


class HeadLogits:
    """Logits of one block, group by group: product, softcap, temperature, then the policy's bias.

    With `from_source` a copy's product is its source's plus a delta.
    """

    def __init__(
        self, weights: HeadWeights, policy: RegionPolicy, settings: HeadSettings, compute_dtype: torch.dtype
    ) -> None:
        self.policy, self.settings, self.compute_dtype = policy, settings, compute_dtype
        # An accelerator casts the tables once; a CPU casts them block by block, without memory for a whole copy.
        self.weights = weights if weights.weight.device.type == "cpu" else weights.with_tables_in(compute_dtype)
        self.sum_dtype = torch.promote_types(compute_dtype, torch.float32)
        self.policy_bias = policy.bias_on(weights.weight.device, finite=True)
        standard, held, rows = policy.layout.standard_size, weights.weight.size(0), self.policy_bias.size(1)
        self.from_source = held != rows
        if self.from_source and held != standard:
            raise ValueError(
                f"the policy describes {rows} rows, {standard} of them standard tokens: the output embedding has {held}"
            )

    def blocks(self, region: int) -> list[TextBlock]:
        device = self.weights.weight.device
        size = _ROWS_PER_BLOCK if device.type == "cpu" else _ROWS_PER_BLOCK_ON_ACCELERATOR
        return self.policy.text_blocks(region, size, device, self.from_source)

    def inputs(self, hidden_NH: torch.Tensor, positions: torch.Tensor) -> Inputs:
        dtype, projected = self.compute_dtype, self.weights.projected
        projected_nr = None if projected is None else projected[positions].to(dtype)
        return Inputs(positions, hidden_NH[positions].to(dtype), projected_nr)

    def logits(
        self, inputs: Inputs, region: int, block: TextBlock
    ) -> tuple[list[torch.Tensor], list[torch.Tensor | float]]:
        """Logits of each group, in the dtype of the sums, and their derivative by the head's product."""
        products = [self._product(inputs, group.ids) for group in block.groups]
        if self.from_source:
            for index, group in enumerate(block.groups[1:], start=1):
                assert products[0] is not None
                delta, of_source = products[index], products[0][:, group.texts]
                products[index] = of_source + (0.0 if delta is None else delta)
        finished = [
            self._finish(product, region, group.ids)
            for product, group in zip(products, block.groups, strict=True)
            if product is not None
        ]
        return [z for z, _ in finished], [slope for _, slope in finished]

    def _product(self, inputs: Inputs, ids: Ids) -> torch.Tensor | None:
        """The product of ids, or of their deltas; None where that is 0."""
        operand = self._operand(ids)
        table, bias = getattr(self.weights, operand.table), self.weights.bias
        if table is None:
            return None
        z = _product(self._left(inputs, operand), table[operand.rows].to(self.compute_dtype), self.sum_dtype)
        return z if bias is None or operand.biases is None else z.add_(bias[operand.biases].to(self.sum_dtype))

    def _operand(self, ids: Ids) -> Operand:
        standard = self.policy.layout.standard_size
        if isinstance(ids, slice) and ids.start < standard:
            return Operand("weight", ids, ids)
        ks = slice(ids.start - standard, ids.stop - standard) if isinstance(ids, slice) else ids - standard
        if self.from_source:
            return Operand("factor", ks, None)
        return Operand("weight", ids, ids) if self.weights.own_rows is None else Operand("own_rows", ks, ids)

    def _left(self, inputs: Inputs, operand: Operand) -> Any:
        return inputs.projected_nr if operand.table == "factor" else inputs.hidden_nH

    def _finish(self, product: torch.Tensor, region: int, ids: Ids) -> tuple[torch.Tensor, torch.Tensor | float]:
        """The logits of products, and their derivative by these; the products are overwritten."""
        settings, bias = self.settings, self.policy_bias[region, ids]
        scale = settings.scale / settings.temperature
        if settings.softcap is None:
            return torch.add(bias, product, alpha=scale, out=product), scale
        capped = product.mul_(settings.scale / settings.softcap).tanh_()
        slope = capped.square().neg_().add_(1).mul_(scale)
        return torch.add(bias, capped, alpha=settings.softcap / settings.temperature, out=capped), slope

    def gradients_of_products(
        self, of_z: list[torch.Tensor], slopes: list[torch.Tensor | float], groups: Sequence[IdGroup]
    ) -> list[torch.Tensor]:
        """Gradients of the products of each group; the gradients of the logits are overwritten."""
        of_products = [grad.mul_(slope) for grad, slope in zip(of_z, slopes, strict=True)]
        if self.from_source:
            for grad, group in zip(of_products[:0:-1], groups[:0:-1], strict=True):
                group.add_to_texts(of_products[0], grad)
        return of_products

    def add_gradients(
        self,
        of_products: Sequence[torch.Tensor | None],
        groups: Sequence[IdGroup],
        inputs: Inputs,
        of_hidden: torch.Tensor | None,
        of_weights: HeadWeights,
    ) -> None:
        """Add the requested gradients of hidden states and weights, given the gradients of a block's products."""
        for grad_nc, group in zip(reversed(of_products), reversed(groups), strict=True):
            operand = self._operand(group.ids)
            table = getattr(self.weights, operand.table)
            if grad_nc is None or table is None:
                continue
            if of_weights.bias is not None and operand.biases is not None:
                of_weights.bias[operand.biases] += grad_nc.sum(0)
            grad_nc = grad_nc.to(self.compute_dtype)
            of_left = of_weights.projected if operand.table == "factor" else of_hidden
            if of_left is not None:
                rows = table[operand.rows].to(self.compute_dtype)
                of_left.index_add_(0, inputs.positions, _product(grad_nc, rows.t(), self.sum_dtype))
            of_table = getattr(of_weights, operand.table)
            if of_table is not None:
                _add_rows(of_table, operand.rows, grad_nc.t(), self._left(inputs, operand))


def whole_in_zero3(*parameters: torch.Tensor | None) -> AbstractContextManager[None]:
    """Inside the block, parameters sharded by DeepSpeed's ZeRO-3 are gathered; without ZeRO-3 it does nothing."""
    from trl.trainer.utils import maybe_gather_lm_head_ctx

    return maybe_gather_lm_head_ctx(*parameters)


def _product(a_nk: torch.Tensor, b_vk: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`a @ b.T` in `dtype`, without rounding to a smaller dtype on the way where the device supports it."""
    if a_nk.is_cuda and a_nk.dtype in (torch.float16, torch.bfloat16):
        return torch.mm(a_nk, b_vk.t(), out_dtype=dtype)
    return torch.mm(a_nk, b_vk.t()).to(dtype)


def _add_rows(total: torch.Tensor, places: Ids, a: torch.Tensor, b: torch.Tensor) -> None:
    """`total[places] += a @ b`; a product rounded to bf16 before the sum would bias training (TRL, `_addmm_fp32`)."""
    part = total[places] if isinstance(places, slice) else total.new_zeros(len(a), b.size(1))
    if total.is_cuda and a.dtype in (torch.float16, torch.bfloat16):
        torch.addmm(part, a, b, out_dtype=total.dtype, out=part)
    else:
        part.addmm_(a.to(total.dtype), b.to(total.dtype))
    if isinstance(places, torch.Tensor):
        total.index_add_(0, places, part)
