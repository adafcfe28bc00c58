"""Logits of blocks of texts, and the way back from their gradients to what they are made of.

A block is multiplied in a few pieces: standard rows, and the copies of each of them, whose product is either one with
a row of their own or their source's plus a difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch

from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.text_blocks import Piece, TextBlock

# Shapes: N scored positions, n positions of one block, H hidden size, R rows of the table, v texts of one block,
# c ids of one piece of a block, K copies, r width of what tells copies from their sources.
# A block of logits that stays near a CPU's caches (a fifth faster than one of 64 MiB, measured); an accelerator would
# rather have fewer, larger kernels.
_ROWS_PER_BLOCK = 4096
_ROWS_PER_BLOCK_ON_ACCELERATOR = 16384


@dataclass(frozen=True)
class HeadSettings:
    """What stands between the head's product and the policy: `softcap · tanh(scale · z / softcap) / temperature`."""

    temperature: float = 1.0
    softcap: float | None = None
    scale: float = 1.0


class OutputRows(NamedTuple):
    """The output embedding, in either of two forms.

    With `weight` and `bias` of all ids each copy has a row of its own; `own_rows` may then stand for the last of them.
    Otherwise they are those of the standard tokens, and a copy's product is its source's plus `projected · factor[k]`
    plus `factor_bias[k]`, each where it is given.

    Attributes:
        weight: `(R, H)`, a whole parameter, not a slice of one.
        bias: `(R,)`.
        own_rows: `(…, H)`, a parameter.
        projected: `(N, r)`, made of the hidden states.
        factor: `(K, r)`, a parameter.
        factor_bias: `(K,)`, a parameter.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None = None
    own_rows: torch.Tensor | None = None
    projected: torch.Tensor | None = None
    factor: torch.Tensor | None = None
    factor_bias: torch.Tensor | None = None

    def with_tables_in(self, dtype: torch.dtype) -> OutputRows:
        own, factor = (None if table is None else table.to(dtype) for table in (self.own_rows, self.factor))
        return self._replace(weight=self.weight.to(dtype), own_rows=own, factor=factor)


@dataclass(frozen=True)
class Inputs:
    """What the head multiplies, of one block of positions, in the type it computes in."""

    positions: torch.Tensor
    hidden_nH: torch.Tensor
    projected_nr: torch.Tensor | None


@dataclass
class PieceLogits:
    """Logits of a piece of a block, in the summing type, and their derivative by the head's product.

    `from_source` says that the product is that of the source plus a difference.
    """

    piece: Piece
    z: torch.Tensor
    slope: torch.Tensor | float
    from_source: bool = False


@dataclass(frozen=True)
class PieceProducts:
    """The head's products of a piece, or their gradients; if `is_difference`, how far copies lie from their sources."""

    piece: Piece
    values: torch.Tensor
    is_difference: bool


@dataclass(frozen=True)
class BlockProducts:
    """Products of the pieces of a block, or their gradients, one matrix after another in one memory.

    Attributes:
        taken: the standard tokens, if `has_standard`, then the copies, if `has_copies`.
        from_source: whether a copy's product is its source's, plus a difference if `has_copies`.
    """

    memory: torch.Tensor
    taken: tuple[Piece, ...]
    has_standard: bool
    from_source: bool

    @property
    def has_copies(self) -> bool:
        return len(self.taken) > self.has_standard

    @cached_property
    def pieces(self) -> list[PieceProducts]:
        widths = [piece.width for piece in self.taken]
        n = len(self.memory) // sum(widths)
        matrices = self.memory.split([n * width for width in widths])
        return [
            PieceProducts(piece, matrix.view(n, width), self.from_source and (index > 0))
            for index, (piece, matrix, width) in enumerate(zip(self.taken, matrices, widths, strict=True))
        ]


class HeadLogits:
    """Logits of one block, piece by piece: product, softcap, temperature, then the policy's bias."""

    def __init__(
        self, rows: OutputRows, policy: RegionPolicy, settings: HeadSettings, compute_dtype: torch.dtype
    ) -> None:
        self.policy, self.settings, self.compute_dtype = policy, settings, compute_dtype
        # An accelerator casts the tables once; a CPU has them cast block by block, and needs no room for a whole copy.
        self.rows = rows if rows.weight.device.type == "cpu" else rows.with_tables_in(compute_dtype)
        self.sum_dtype = torch.promote_types(compute_dtype, torch.float32)
        self.policy_bias = policy.bias_on(rows.weight.device, finite=True)
        standard, held = policy.layout.standard_size, rows.weight.size(0)
        self.has_own_rows = held == self.policy_bias.size(1)
        if not self.has_own_rows and held != standard:
            raise ValueError(
                f"the policy describes {self.policy_bias.size(1)} rows, {standard} of them standard tokens: "
                f"the output embedding has {held}"
            )
        self.has_factor = rows.projected is not None and rows.factor is not None
        self.first_own = held - (0 if rows.own_rows is None else len(rows.own_rows))

    def suits_kernels(self, block: TextBlock) -> bool:
        """Whether `products` can lay the block out: no copies are looked up, and sums are float32."""
        only_bias = self.rows.factor_bias is not None and not self.has_factor
        return block.slices is not None and self.sum_dtype == torch.float32 and not only_bias

    def blocks(self, region: int) -> list[TextBlock]:
        device = self.rows.weight.device
        size = _ROWS_PER_BLOCK if device.type == "cpu" else _ROWS_PER_BLOCK_ON_ACCELERATOR
        return self.policy.text_blocks(region, size, device)

    def inputs(self, hidden_NH: torch.Tensor, positions: torch.Tensor) -> Inputs:
        projected = self.rows.projected
        return Inputs(
            positions,
            hidden_NH[positions].to(self.compute_dtype),
            None if projected is None else projected[positions].to(self.compute_dtype),
        )

    def logits(self, inputs: Inputs, region: int, block: TextBlock) -> list[PieceLogits]:
        """Those of the standard tokens first, where they are allowed or a copy's logits begin with them."""
        with_sources = bool(block.copies) and not self.has_own_rows
        product = None
        if block.allows_standard or with_sources:
            product = self._product(inputs.hidden_nH, block.texts)
        pieces = []
        for piece in block.copies:
            if product is not None and with_sources:
                z = piece.of_texts(product) + self._difference(inputs, piece)
            else:
                z = self._product(inputs.hidden_nH, piece.ids)
            pieces.append(PieceLogits(piece, *self._finish(z, region, piece.ids), from_source=with_sources))
        if product is not None:
            standard = PieceLogits(block.standard, *self._finish(product, region, block.texts))
            pieces.insert(0, standard)
        return pieces

    def products(self, inputs: Inputs, block: TextBlock) -> BlockProducts:
        """What `logits` makes the logits of, all pieces in one memory."""
        from_source = bool(block.copies) and not self.has_own_rows
        has_standard = block.allows_standard or from_source
        has_copies = not from_source or self.has_factor
        taken = (*([block.standard] if has_standard else []), *(block.copies if has_copies else []))
        size = len(inputs.positions) * sum(piece.width for piece in taken)
        memory = torch.empty(size, device=inputs.hidden_nH.device, dtype=self.sum_dtype)
        products = BlockProducts(memory, taken, has_standard, from_source)
        for each in products.pieces:
            if each.is_difference:
                self._difference(inputs, each.piece, each.values)
            else:
                self._product(inputs.hidden_nH, each.piece.ids, each.values)
        return products

    def _product(
        self, hidden_nH: torch.Tensor, ids: slice | torch.Tensor, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        parts = [rows.to(self.compute_dtype) for rows, _, _ in self.table(ids)]
        if len(parts) == 1:
            z = _product(hidden_nH, parts[0], self.sum_dtype, out)
        else:
            z = torch.cat([_product(hidden_nH, rows, self.sum_dtype) for rows in parts], dim=1, out=out)
        return z if self.rows.bias is None else z.add_(self.rows.bias[ids].to(self.sum_dtype))

    def table(self, ids: slice | torch.Tensor) -> Iterator[tuple[torch.Tensor, bool, slice | torch.Tensor]]:
        """The rows of ids, whether they are own rows, and their places there or in the weight; cut where these meet."""
        weight, own, first = self.rows.weight, self.rows.own_rows, self.first_own
        if own is None:
            yield weight[ids], False, ids
        elif isinstance(ids, torch.Tensor):
            # Copies, which lie in a table with own rows whole: those are the last ones, or all.
            yield own[ids - first], True, ids - first
        else:
            cut = min(max(ids.start, first), ids.stop)
            if ids.start < cut:
                yield weight[ids.start : cut], False, slice(ids.start, cut)
            if cut < ids.stop:
                there = slice(cut - first, ids.stop - first)
                yield own[there], True, there

    def _difference(self, inputs: Inputs, piece: Piece, out: torch.Tensor | None = None) -> torch.Tensor | float:
        """How far products of copies lie from those of their sources."""
        ks = self._ks(piece)
        difference: torch.Tensor | float = 0.0
        if inputs.projected_nr is not None and self.rows.factor is not None:
            factor = self.rows.factor[ks].to(self.compute_dtype)
            difference = _product(inputs.projected_nr, factor, self.sum_dtype, out)
        if self.rows.factor_bias is not None:
            of_bias = self.rows.factor_bias[ks].to(self.sum_dtype)
            difference = difference.add_(of_bias) if isinstance(difference, torch.Tensor) else of_bias
        return difference

    def _ks(self, piece: Piece) -> slice | torch.Tensor:
        standard = self.policy.layout.standard_size
        if isinstance(piece.ids, slice):
            return slice(piece.ids.start - standard, piece.ids.stop - standard)
        return piece.ids - standard

    def _finish(
        self, product: torch.Tensor, region: int, ids: slice | torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | float]:
        """The logits of products, which are overwritten, and their derivative by them."""
        settings, bias = self.settings, self.policy_bias[region, ids]
        scale = settings.scale / settings.temperature
        if settings.softcap is None:
            return torch.add(bias, product, alpha=scale, out=product), scale
        capped = product.mul_(settings.scale / settings.softcap).tanh_()
        slope = capped.square().neg_().add_(1).mul_(scale)
        return torch.add(bias, capped, alpha=settings.softcap / settings.temperature, out=capped), slope

    def gradients_of_products(self, grads_of_z: list[torch.Tensor], logits: list[PieceLogits]) -> list[PieceProducts]:
        """Gradients of what the logits of a block were made of; those of the logits are overwritten."""
        of_products = [grad.mul_(each.slope) for grad, each in zip(grads_of_z, logits, strict=True)]
        for grad, each in zip(of_products[::-1], logits[::-1], strict=True):
            if each.from_source:
                each.piece.add_to_texts(of_products[0], grad)
        return [
            PieceProducts(each.piece, grad, each.from_source) for grad, each in zip(of_products, logits, strict=True)
        ]

    def add_gradients(self, of_products: list[PieceProducts], inputs: Inputs, grads: Gradients) -> None:
        """Hand gradients of the products of a block on to hidden states and rows."""
        for each in reversed(of_products):
            if each.is_difference:
                self._add_difference_gradients(each.values, each.piece, inputs, grads)
            else:
                self._add_row_gradients(each.values, each.piece.ids, inputs, grads)

    def _add_row_gradients(
        self, grad_nc: torch.Tensor, ids: slice | torch.Tensor, inputs: Inputs, grads: Gradients
    ) -> None:
        if grads.bias is not None:
            grads.bias[ids] += grad_nc.sum(0)
        grad_nc, column = grad_nc.to(self.compute_dtype), 0
        for rows, are_own, places in self.table(ids):
            part = grad_nc[:, column : column + len(rows)]
            column += len(rows)
            if grads.hidden is not None:
                product = _product(part, rows.to(self.compute_dtype).t(), self.sum_dtype)
                grads.hidden.index_add_(0, inputs.positions, product)
            _add_rows(grads.own_rows if are_own else grads.weight, places, part.t(), inputs.hidden_nH)

    def _add_difference_gradients(self, grad_nc: torch.Tensor, piece: Piece, inputs: Inputs, grads: Gradients) -> None:
        ks = self._ks(piece)
        if grads.factor_bias is not None:
            grads.factor_bias[ks] += grad_nc.sum(0)
        if inputs.projected_nr is None or self.rows.factor is None:
            return
        grad_nc = grad_nc.to(self.compute_dtype)
        if grads.projected is not None:
            factor = self.rows.factor[ks].to(self.compute_dtype)
            grads.projected.index_add_(0, inputs.positions, _product(grad_nc, factor.t(), self.sum_dtype))
        _add_rows(grads.factor, ks, grad_nc.t(), inputs.projected_nr)


class Gradients:
    """Gradients of hidden states and rows, summed in float32 (or float64) whatever the type of the products."""

    def __init__(self, hidden: torch.Tensor, rows: OutputRows, needed: tuple[bool, ...], head: HeadLogits) -> None:
        """
        Args:
            needed: which of the hidden states and the rows need a gradient.
        """
        dtype = head.sum_dtype
        self._inputs = (hidden, *rows)
        self._sums = [
            torch.zeros(tensor.shape, device=tensor.device, dtype=dtype) if need and tensor is not None else None
            for tensor, need in zip(self._inputs, needed[: len(self._inputs)], strict=True)
        ]
        self.hidden, *of_rows = self._sums
        self.weight, self.bias, self.own_rows, self.projected, self.factor, self.factor_bias = of_rows
        # Of the products' gradients: biases sum them as they are, all else multiplies them.
        self.of_products = dtype if self.bias is not None or self.factor_bias is not None else head.compute_dtype

    def results(self) -> tuple[torch.Tensor | None, ...]:
        return tuple(
            None if grad is None or tensor is None else grad.to(tensor.dtype)
            for grad, tensor in zip(self._sums, self._inputs, strict=True)
        )


def whole_in_zero3(*parameters: torch.Tensor | None) -> AbstractContextManager[None]:
    """Inside the block parameters that DeepSpeed's ZeRO-3 has sharded are whole; nothing happens without it."""
    from trl.trainer.utils import maybe_gather_lm_head_ctx

    return maybe_gather_lm_head_ctx(*parameters)


def compute_dtype_of(hidden: torch.Tensor) -> torch.dtype:
    device = hidden.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype


def _product(
    a_nk: torch.Tensor, b_vk: torch.Tensor, dtype: torch.dtype, out: torch.Tensor | None = None
) -> torch.Tensor:
    """`a @ b.T` in `dtype`, rounded to nothing less on the way where the device can."""
    if a_nk.is_cuda and a_nk.dtype in (torch.float16, torch.bfloat16):
        return torch.mm(a_nk, b_vk.t(), out_dtype=dtype, out=out)
    if a_nk.dtype == dtype:
        return torch.mm(a_nk, b_vk.t(), out=out)
    product = torch.mm(a_nk, b_vk.t())
    return product.to(dtype) if out is None else out.copy_(product)


def _add_rows(total: torch.Tensor | None, places: slice | torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    """`total[places] += a @ b`, where there is a total."""
    if total is None:
        return
    if isinstance(places, slice):
        _add_product(total[places], a, b)
    else:
        product = torch.zeros(len(a), b.size(1), device=total.device, dtype=total.dtype)
        _add_product(product, a, b)
        total.index_add_(0, places, product)


def _add_product(total: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    """`total += a @ b`. Rounding each product to bf16 before the sum would bias training (TRL, `_addmm_fp32`)."""
    if total.is_cuda and a.dtype in (torch.float16, torch.bfloat16):
        torch.addmm(total, a, b, out_dtype=total.dtype, out=total)
    else:
        total.addmm_(a.to(total.dtype), b.to(total.dtype))
