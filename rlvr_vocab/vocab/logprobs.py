"""Log-probabilities and entropies of ids and of texts under the region policy, without `(tokens, rows)` logits.

The model for this function is `trl.kernels.ChunkedLogProbFunction`. What differs: each position is scored against
the rows that its region allows and no others; the policy's bias is added in float32 after softcap and temperature;
and a block holds standard rows with their copies, so that one pass gives the distribution over ids as that over
texts and, for each text, that over its copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from rlvr_vocab.vocab.policy import FORBIDDEN, RegionPolicy
from rlvr_vocab.vocab.text_blocks import Piece, TextBlock

# Shapes: N scored positions, n positions of one block, H hidden size, R rows of the table, v texts of one block,
# c ids of one piece of a block, K copies, r width of what tells copies from their sources.
_TOKENS_PER_BLOCK = 1024
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


class Scores(NamedTuple):
    """In nats, `(N,)` each, float32 (float64 for float64 inputs).

    Attributes:
        log_probs: of the targets; one that its region forbids has about `FORBIDDEN`.
        copy_log_probs: the same given the target's text: `log_probs - copy_log_probs` is the text's log-probability.
        text_entropy: of the distribution over texts.
        copy_entropy: what is left of the entropy over ids: that of the ids of one text, in the mean over texts.
    """

    log_probs: torch.Tensor
    copy_log_probs: torch.Tensor
    text_entropy: torch.Tensor
    copy_entropy: torch.Tensor


def region_logprobs(
    hidden_NH: torch.Tensor,
    rows: OutputRows,
    targets_N: torch.Tensor,
    regions_N: torch.Tensor,
    policy: RegionPolicy,
    settings: HeadSettings,
) -> Scores:
    """Score targets under the region policy.

    Args:
        hidden_NH: last hidden states of the positions to score, any float type.
        targets_N: the ids to score, int64.
        regions_N: region in which each target was chosen, int64.
    """
    return Scores(*_RegionLogProbs.apply(hidden_NH, *rows, targets_N, regions_N, policy, settings))


class _RegionLogProbs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, *arguments: Any) -> tuple[torch.Tensor, ...]:
        rows, (targets, regions, policy, settings) = OutputRows(*arguments[:6]), arguments[6:]
        ctx.set_materialize_grads(False)
        head = _Head(rows, policy, settings, _compute_dtype(hidden))
        texts = policy.surface_ids(targets)
        # log of the normaliser; logit of the target; log-sum-exp of its text's; entropies of texts and of ids
        figures = torch.zeros(5, len(hidden), device=hidden.device, dtype=head.sum_dtype)
        for region, positions in _token_blocks(regions):
            score = _OnlineScore(targets[positions], texts[positions], head.sum_dtype)
            inputs = head.inputs(hidden, positions)
            for block in head.blocks(region):
                score.add(block, head.logits(inputs, region, block))
            figures[:, positions] = score.results()
        ctx.save_for_backward(hidden, *rows, targets, texts, regions, figures)
        ctx.policy, ctx.settings, ctx.compute_dtype = policy, settings, head.compute_dtype
        log_z, target_z, text_z, text_entropy, id_entropy = figures
        return target_z - log_z, target_z - text_z, text_entropy.clone(), id_entropy - text_entropy

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        hidden, *saved, targets, texts, regions, figures = ctx.saved_tensors
        rows = OutputRows(*saved)
        with whole_in_zero3(rows.weight, rows.bias, rows.own_rows, rows.factor, rows.factor_bias):
            head = _Head(rows, ctx.policy, ctx.settings, ctx.compute_dtype)
            grads = _Gradients(hidden, rows, ctx.needs_input_grad, head.sum_dtype)
            for region, positions in _token_blocks(regions):
                inputs = head.inputs(hidden, positions)
                given = [None if each is None else each[positions].to(head.sum_dtype) for each in upstream]
                to_logits = _Upstream(targets[positions], texts[positions], figures[:, positions], *given)
                for block in head.blocks(region):
                    logits = head.logits(inputs, region, block)
                    head.add_gradients(to_logits.gradients(block, logits), logits, block, inputs, grads)
        return *grads.results(), None, None, None, None


@dataclass(frozen=True)
class _Inputs:
    """What the head multiplies, of one block of positions, in the type it computes in."""

    positions: torch.Tensor
    hidden_nH: torch.Tensor
    projected_nr: torch.Tensor | None


@dataclass
class _PieceLogits:
    """Logits of a piece of a block, in the summing type, and their derivative by the head's product.

    `from_source` says that the product is that of the source plus a difference.
    """

    piece: Piece
    z: torch.Tensor
    slope: torch.Tensor | float
    from_source: bool = False


class _Head:
    """Logits of one block, piece by piece: product, softcap, temperature, then the policy's bias."""

    def __init__(
        self, rows: OutputRows, policy: RegionPolicy, settings: HeadSettings, compute_dtype: torch.dtype
    ) -> None:
        self.rows, self.policy, self.settings, self.compute_dtype = rows, policy, settings, compute_dtype
        self.sum_dtype = torch.promote_types(compute_dtype, torch.float32)
        self.policy_bias = policy.bias_on(rows.weight.device, finite=True)
        standard, held = policy.layout.standard_size, rows.weight.size(0)
        self.has_own_rows = held == self.policy_bias.size(1)
        if not self.has_own_rows and held != standard:
            raise ValueError(
                f"the policy describes {self.policy_bias.size(1)} rows, {standard} of them standard tokens: "
                f"the output embedding has {held}"
            )
        self.first_own = held - (0 if rows.own_rows is None else len(rows.own_rows))

    def blocks(self, region: int) -> list[TextBlock]:
        device = self.rows.weight.device
        size = _ROWS_PER_BLOCK if device.type == "cpu" else _ROWS_PER_BLOCK_ON_ACCELERATOR
        return self.policy.text_blocks(region, size, device)

    def inputs(self, hidden_NH: torch.Tensor, positions: torch.Tensor) -> _Inputs:
        projected = self.rows.projected
        return _Inputs(
            positions,
            hidden_NH[positions].to(self.compute_dtype),
            None if projected is None else projected[positions].to(self.compute_dtype),
        )

    def logits(self, inputs: _Inputs, region: int, block: TextBlock) -> list[_PieceLogits]:
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
            pieces.append(_PieceLogits(piece, *self._finish(z, region, piece.ids), from_source=with_sources))
        if product is not None:
            standard = _PieceLogits(block.standard, *self._finish(product, region, block.texts))
            pieces.insert(0, standard)
        return pieces

    def _product(self, hidden_nH: torch.Tensor, ids: slice | torch.Tensor) -> torch.Tensor:
        parts = [_product(hidden_nH, rows.to(self.compute_dtype), self.sum_dtype) for rows, _, _ in self.table(ids)]
        z = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
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

    def _difference(self, inputs: _Inputs, piece: Piece) -> torch.Tensor | float:
        """How far products of copies lie from those of their sources."""
        ks = self._ks(piece)
        difference: torch.Tensor | float = 0.0
        if inputs.projected_nr is not None and self.rows.factor is not None:
            difference = _product(inputs.projected_nr, self.rows.factor[ks].to(self.compute_dtype), self.sum_dtype)
        if self.rows.factor_bias is not None:
            difference = difference + self.rows.factor_bias[ks].to(self.sum_dtype)
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

    def add_gradients(
        self,
        grads_of_z: list[torch.Tensor],
        logits: list[_PieceLogits],
        block: TextBlock,
        inputs: _Inputs,
        grads: _Gradients,
    ) -> None:
        """Hand gradients of the logits of a block, which are overwritten, on to what the logits were made of."""
        of_products = [grad.mul_(each.slope) for grad, each in zip(grads_of_z, logits, strict=True)]
        for grad, each in zip(of_products[::-1], logits[::-1], strict=True):  # the standard tokens last
            if each.from_source:
                each.piece.add_to_texts(of_products[0], grad)
                self._add_difference_gradients(grad, each.piece, inputs, grads)
            else:
                self._add_row_gradients(grad, each.piece.ids, inputs, grads)

    def _add_row_gradients(
        self, grad_nc: torch.Tensor, ids: slice | torch.Tensor, inputs: _Inputs, grads: _Gradients
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

    def _add_difference_gradients(
        self, grad_nc: torch.Tensor, piece: Piece, inputs: _Inputs, grads: _Gradients
    ) -> None:
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


class _OnlineScore:
    """Running sums over the blocks of one block of positions, relative to the largest logit so far."""

    def __init__(self, targets_n: torch.Tensor, texts_n: torch.Tensor, dtype: torch.dtype) -> None:
        self.targets, self.texts = targets_n, texts_n
        zeros = torch.zeros(len(targets_n), device=targets_n.device, dtype=dtype)
        self.max = zeros + 2 * FORBIDDEN
        # Sum of e^z; of e^z · z over ids, and over texts with z the log of their sum.
        self.total, self.total_id, self.total_text = zeros, zeros.clone(), zeros.clone()
        self.target_z, self.text_z = zeros + FORBIDDEN, zeros + FORBIDDEN

    def add(self, block: TextBlock, logits: list[_PieceLogits]) -> None:
        self._note_targets(block, logits)
        new_max = torch.stack([self.max, *(each.z.amax(1) for each in logits)]).amax(0)
        shift = self.max - new_max
        rescale = shift.exp()
        self.total_id = (self.total_id + self.total * shift) * rescale
        self.total_text = (self.total_text + self.total * shift) * rescale
        self.total = self.total * rescale
        self.max = new_max
        of_texts: torch.Tensor | None = None
        for each in logits:
            z = each.z.sub_(new_max.unsqueeze(1))
            weights = z.exp()
            alone = len(logits) == 1
            of_ids = row_dot(weights, z)
            self.total_id = self.total_id + of_ids
            if alone:
                self.total = self.total + weights.sum(1)
                self.total_text = self.total_text + of_ids
            elif of_texts is None:
                of_texts = _over_texts(weights, each.piece, block)
            else:
                each.piece.add_to_texts(of_texts, weights)
        if of_texts is not None:
            self.total = self.total + of_texts.sum(1)
            self.total_text = self.total_text + row_dot(of_texts, finite_log(of_texts))

    def _note_targets(self, block: TextBlock, logits: list[_PieceLogits]) -> None:
        local_texts = self.texts - block.texts.start
        for each in logits:
            column, inside, is_target = each.piece.find(self.targets, local_texts)
            z = each.z.gather(1, column.unsqueeze(1)).squeeze(1)
            self.target_z = torch.where(is_target, z, self.target_z)
            self.text_z = torch.where(inside, torch.logaddexp(self.text_z, z), self.text_z)

    def results(self) -> torch.Tensor:
        log_total = self.total.log()
        entropies = (log_total - total / self.total for total in (self.total_text, self.total_id))
        return torch.stack([self.max + log_total, self.target_z, self.text_z, *entropies])


def _over_texts(values_nc: torch.Tensor, piece: Piece, block: TextBlock) -> torch.Tensor:
    """Values of a piece with a column for each text of the block, 0 where the piece has none."""
    size = block.texts.stop - block.texts.start
    if values_nc.size(1) == size:
        return values_nc
    total = values_nc.new_zeros(len(values_nc), size)
    piece.add_to_texts(total, values_nc)
    return total


@dataclass(frozen=True)
class _Upstream:
    """Incoming gradients of one block of positions, and what turns them into gradients of its logits.

    With z the logits, p of ids and q of texts (a text is i and the others of its kind):
    d log p(t) / dz_i = 1[i = t] - p_i; d log p(t | text) / dz_i = 1[i = t] - 1[i of the text] · p_i / q;
    d H(text) / dz_i = -p_i (log q + H(text)); d H(copy | text) / dz_i = -p_i (log p_i - log q + H(copy | text)).
    """

    targets: torch.Tensor
    texts: torch.Tensor
    figures: torch.Tensor
    of_logprobs: torch.Tensor | None
    of_copy_logprobs: torch.Tensor | None
    of_text_entropy: torch.Tensor | None
    of_copy_entropy: torch.Tensor | None

    def gradients(self, block: TextBlock, logits: list[_PieceLogits]) -> list[torch.Tensor]:
        """Of the logits of each piece, which are overwritten."""
        at_targets = self._at_targets(block, logits)
        log_p = [each.z.sub_(self.figures[0].unsqueeze(1)) for each in logits]
        if self.of_text_entropy is None and self.of_copy_entropy is None:
            zeros = torch.zeros_like(self.figures[0])
            weight = (zeros if self.of_logprobs is None else self.of_logprobs).neg().unsqueeze(1)
            grads = [each.exp_().mul_(weight) for each in log_p]
        else:
            grads = self._with_entropies(block, logits, log_p)
        for grad, (column, value) in zip(grads, at_targets, strict=True):
            grad.scatter_add_(1, column.unsqueeze(1), value.unsqueeze(1))
        return grads

    def _at_targets(self, block: TextBlock, logits: list[_PieceLogits]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """For each piece the column of the target's text, and what is added to its gradient."""
        text_z, local_texts, added = self.figures[2], self.texts - block.texts.start, []
        of_target = sum(each for each in (self.of_logprobs, self.of_copy_logprobs) if each is not None)
        for each in logits:
            column, inside, is_target = each.piece.find(self.targets, local_texts)
            value = is_target * of_target
            if self.of_copy_logprobs is not None:
                z = each.z.gather(1, column.unsqueeze(1)).squeeze(1)
                value = value - torch.where(inside, (z - text_z).exp(), 0.0) * self.of_copy_logprobs
            added.append((column, value.to(text_z.dtype)))
        return added

    def _with_entropies(
        self, block: TextBlock, logits: list[_PieceLogits], log_p: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        text_entropy, id_entropy = self.figures[3:]
        zeros = torch.zeros_like(text_entropy)
        g_text, g_copy, g_logprobs = (
            zeros if each is None else each for each in (self.of_text_entropy, self.of_copy_entropy, self.of_logprobs)
        )
        p = [each.exp() for each in log_p]
        if len(p) == 1:
            log_q = None
        else:
            q = _over_texts(p[0].clone(), logits[0].piece, block)
            for each, of_piece in zip(logits[1:], p[1:], strict=True):
                each.piece.add_to_texts(q, of_piece)
            log_q = finite_log(q)
        constant = (g_logprobs + g_text * text_entropy + g_copy * (id_entropy - text_entropy)).unsqueeze(1)
        grads = []
        for each, of_piece, log_of_piece in zip(logits, p, log_p, strict=True):
            log_q_of_piece = log_of_piece if log_q is None else each.piece.of_texts(log_q)
            weight = constant + (g_text - g_copy).unsqueeze(1) * log_q_of_piece + g_copy.unsqueeze(1) * log_of_piece
            grads.append(of_piece.mul_(weight).neg_())
        return grads


class _Gradients:
    """Gradients of hidden states and rows, summed in float32 (or float64) whatever the type of the products."""

    def __init__(self, hidden: torch.Tensor, rows: OutputRows, needed: tuple[bool, ...], dtype: torch.dtype) -> None:
        """
        Args:
            needed: which of the hidden states and the rows need a gradient.
        """
        self._inputs = (hidden, *rows)
        self._sums = [
            torch.zeros(tensor.shape, device=tensor.device, dtype=dtype) if need and tensor is not None else None
            for tensor, need in zip(self._inputs, needed[: len(self._inputs)], strict=True)
        ]
        self.hidden, *of_rows = self._sums
        self.weight, self.bias, self.own_rows, self.projected, self.factor, self.factor_bias = of_rows

    def results(self) -> tuple[torch.Tensor | None, ...]:
        return tuple(
            None if grad is None or tensor is None else grad.to(tensor.dtype)
            for grad, tensor in zip(self._sums, self._inputs, strict=True)
        )


def whole_in_zero3(*parameters: torch.Tensor | None) -> AbstractContextManager[None]:
    """Inside the block parameters that DeepSpeed's ZeRO-3 has sharded are whole; nothing happens without it."""
    from trl.trainer.utils import maybe_gather_lm_head_ctx

    return maybe_gather_lm_head_ctx(*parameters)


def _token_blocks(regions_N: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    for region in regions_N.unique().tolist():
        for block in (regions_N == region).nonzero().squeeze(1).split(_TOKENS_PER_BLOCK):
            yield region, block


def _compute_dtype(hidden: torch.Tensor) -> torch.dtype:
    device = hidden.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype


def finite_log(weights: torch.Tensor) -> torch.Tensor:
    """The logarithm, finite for 0: `torch.special.entr` would do, and takes five times as long."""
    return weights.clamp(min=torch.finfo(weights.dtype).tiny).log_()


def row_dot(a_nv: torch.Tensor, b_nv: torch.Tensor) -> torch.Tensor:
    """Sum of the products in each row; `b` is overwritten."""
    return b_nv.mul_(a_nv).sum(1)


def _product(a_nk: torch.Tensor, b_vk: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`a @ b.T` in `dtype`, rounded to nothing less on the way where the device can."""
    if a_nk.is_cuda and a_nk.dtype in (torch.float16, torch.bfloat16):
        return torch.mm(a_nk, b_vk.t(), out_dtype=dtype)
    return torch.mm(a_nk, b_vk.t()).to(dtype)


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
