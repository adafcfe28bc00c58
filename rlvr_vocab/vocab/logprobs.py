"""Per-token log-probabilities and entropy under the region policy, without ever holding `(tokens, rows)` logits.

The model for this function is `trl.kernels.ChunkedLogProbFunction`. What differs: each position is scored against
the rows that its region allows and no others, and the policy's bias is added in float32 after softcap and
temperature.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from rlvr_vocab.vocab.policy import FORBIDDEN, RegionPolicy

# Shapes: N scored positions, n positions of one block, H hidden size, V embedding rows, v rows of one block.
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


def region_logprobs(
    hidden_NH: torch.Tensor,
    weight_VH: torch.Tensor,
    head_bias_V: torch.Tensor | None,
    targets_N: torch.Tensor,
    regions_N: torch.Tensor,
    policy: RegionPolicy,
    settings: HeadSettings,
    trained_rows_MH: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Score targets under the region policy.

    Args:
        hidden_NH: last hidden states of the positions to score, any float type.
        weight_VH: the whole output embedding (a parameter, not a slice of one).
        head_bias_V: bias of the output layer, or None.
        targets_N: the ids to score, int64.
        regions_N: region in which each target was chosen, int64.
        trained_rows_MH: a parameter that stands for the last M rows of the output embedding, or None.

    Returns:
        Log-probabilities and entropies in nats, `(N,)` each, float32 (float64 for float64 inputs). A target that
        its region forbids scores about `FORBIDDEN`.
    """
    return _RegionLogProbs.apply(
        hidden_NH, weight_VH, head_bias_V, trained_rows_MH, targets_N, regions_N, policy, settings
    )


class _RegionLogProbs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        head_bias: torch.Tensor | None,
        trained_rows: torch.Tensor | None,
        targets: torch.Tensor,
        regions: torch.Tensor,
        policy: RegionPolicy,
        settings: HeadSettings,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.set_materialize_grads(False)
        head = _Head(weight, head_bias, trained_rows, policy, settings, _compute_dtype(hidden))
        log_z = torch.empty(len(hidden), device=hidden.device, dtype=head.sum_dtype)
        logprobs, entropy = torch.empty_like(log_z), torch.empty_like(log_z)
        for region, block in _token_blocks(regions):
            score = _OnlineScore(targets[block], head.sum_dtype)
            hidden_nH = hidden[block].to(head.compute_dtype)
            for rows in head.row_blocks(region):
                score.add(head.logits(hidden_nH, region, rows)[0], rows.start)
            log_z[block], logprobs[block], entropy[block] = score.results()
        ctx.save_for_backward(hidden, weight, head_bias, trained_rows, targets, regions, log_z, entropy)
        ctx.policy, ctx.settings, ctx.compute_dtype = policy, settings, head.compute_dtype
        return logprobs, entropy

    @staticmethod
    def backward(
        ctx: Any, grad_logprobs: torch.Tensor | None, grad_entropy: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        hidden, weight, head_bias, trained_rows, targets, regions, log_z, entropy = ctx.saved_tensors
        with whole_in_zero3(weight, head_bias, trained_rows):
            head = _Head(weight, head_bias, trained_rows, ctx.policy, ctx.settings, ctx.compute_dtype)
            grads = _Gradients((hidden, weight, head_bias, trained_rows), ctx.needs_input_grad, head)
            for region, block in _token_blocks(regions):
                hidden_nH = hidden[block].to(head.compute_dtype)
                upstream = _Upstream(
                    targets[block],
                    log_z[block],
                    entropy[block],
                    None if grad_logprobs is None else grad_logprobs[block].to(head.sum_dtype),
                    None if grad_entropy is None else grad_entropy[block].to(head.sum_dtype),
                )
                for rows in head.row_blocks(region):
                    logits, slope = head.logits(hidden_nH, region, rows)
                    grad_logits = upstream.to_logits(logits, rows.start).mul_(slope)
                    grads.add(grad_logits.to(head.compute_dtype), hidden_nH, head.weight_of(rows), block, rows)
        return *grads.results(), None, None, None, None


class _Head:
    """Logits of one block: product, softcap, temperature, then the policy's bias."""

    def __init__(
        self,
        weight: torch.Tensor,
        head_bias: torch.Tensor | None,
        trained_rows: torch.Tensor | None,
        policy: RegionPolicy,
        settings: HeadSettings,
        compute_dtype: torch.dtype,
    ) -> None:
        self.weight, self.head_bias, self.settings, self.compute_dtype = (
            weight,
            head_bias,
            settings,
            compute_dtype,
        )
        self.trained_rows = trained_rows
        self.first_trained = len(weight) - (0 if trained_rows is None else len(trained_rows))
        self.sum_dtype = torch.promote_types(compute_dtype, torch.float32)
        self.policy_bias = policy.bias_on(weight.device, finite=True)
        self.row_ranges = policy.row_ranges
        if self.policy_bias.size(1) != weight.size(0):
            raise ValueError(
                f"the policy describes {self.policy_bias.size(1)} rows, the output embedding has {weight.size(0)}"
            )

    def row_blocks(self, region: int) -> Iterator[slice]:
        size = _ROWS_PER_BLOCK if self.weight.device.type == "cpu" else _ROWS_PER_BLOCK_ON_ACCELERATOR
        for start, end in self._of_one_table(self.row_ranges[region]):
            for block_start in range(start, end, size):
                yield slice(block_start, min(block_start + size, end))

    def weight_of(self, rows: slice) -> torch.Tensor:
        if self.trained_rows is None or rows.start < self.first_trained:
            return self.weight[rows].to(self.compute_dtype)
        return self.trained_rows[self.trained_slice(rows)].to(self.compute_dtype)

    def trained_slice(self, rows: slice) -> slice:
        """Where rows of the output embedding lie among the trained ones."""
        return slice(rows.start - self.first_trained, rows.stop - self.first_trained)

    def _of_one_table(self, ranges: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """The same rows, cut where the trained ones begin."""
        for start, end in ranges:
            cut = min(max(start, self.first_trained), end)
            yield from ((first, last) for first, last in ((start, cut), (cut, end)) if first < last)

    def logits(self, hidden_nH: torch.Tensor, region: int, rows: slice) -> tuple[torch.Tensor, torch.Tensor | float]:
        """`(n, v)` logits in the summing type, and their derivative by the head's product (before its bias)."""
        z = _product(hidden_nH, self.weight_of(rows), self.sum_dtype)
        if self.head_bias is not None:
            z += self.head_bias[rows].to(self.sum_dtype)
        slope: torch.Tensor | float = self.settings.scale / self.settings.temperature
        if self.settings.softcap is None:
            z *= slope
        else:
            capped = z.mul_(self.settings.scale / self.settings.softcap).tanh_()
            slope = capped.square().neg_().add_(1).mul_(slope)
            z = capped * (self.settings.softcap / self.settings.temperature)
        return z.add_(self.policy_bias[region, rows]), slope


class _OnlineScore:
    """Running log-sum-exp, entropy sum and target logit of one block of positions, row block by row block."""

    def __init__(self, targets_n: torch.Tensor, dtype: torch.dtype) -> None:
        self.targets = targets_n
        zeros = torch.zeros(len(targets_n), device=targets_n.device, dtype=dtype)
        self.max = zeros + 2 * FORBIDDEN
        self.sum_exp, self.sum_z_exp = zeros, zeros.clone()
        self.target_logit = zeros + FORBIDDEN

    def add(self, z_nv: torch.Tensor, first_row: int) -> None:
        local = self.targets - first_row
        inside = (local >= 0) & (local < z_nv.size(1))
        target_z = z_nv.gather(1, local.clamp(0, z_nv.size(1) - 1).unsqueeze(1)).squeeze(1)
        self.target_logit = torch.where(inside, target_z, self.target_logit)
        new_max = torch.maximum(self.max, z_nv.amax(1))
        rescale = (self.max - new_max).exp()
        exp_nv = (z_nv - new_max.unsqueeze(1)).exp_()
        self.sum_exp = self.sum_exp * rescale + exp_nv.sum(1)
        self.sum_z_exp = self.sum_z_exp * rescale + exp_nv.mul_(z_nv).sum(1)
        self.max = new_max

    def results(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        log_z = self.max + self.sum_exp.log()
        return log_z, self.target_logit - log_z, log_z - self.sum_z_exp / self.sum_exp


@dataclass(frozen=True)
class _Upstream:
    """Incoming gradients of one block of positions, and what turns them into gradients of its logits."""

    targets: torch.Tensor
    log_z: torch.Tensor
    entropy: torch.Tensor
    grad_logprobs: torch.Tensor | None
    grad_entropy: torch.Tensor | None

    def to_logits(self, z_nv: torch.Tensor, first_row: int) -> torch.Tensor:
        """d log p_t / dz_j = 1[j = t] - p_j and d entropy / dz_j = -p_j (log p_j + entropy); overwrites `z_nv`."""
        log_p = z_nv.sub_(self.log_z.unsqueeze(1))
        p = log_p.exp()
        if self.grad_entropy is None:
            grad = p.neg_()
            grad *= 0.0 if self.grad_logprobs is None else self.grad_logprobs.unsqueeze(1)
        else:
            weight = log_p.add_(self.entropy.unsqueeze(1)).mul_(self.grad_entropy.unsqueeze(1))
            if self.grad_logprobs is not None:
                weight += self.grad_logprobs.unsqueeze(1)
            grad = p.mul_(weight).neg_()
        if self.grad_logprobs is not None:
            local = self.targets - first_row
            inside = (local >= 0) & (local < grad.size(1))
            at_target = torch.where(inside, self.grad_logprobs, 0.0).unsqueeze(1)
            grad.scatter_add_(1, local.clamp(0, grad.size(1) - 1).unsqueeze(1), at_target)
        return grad


class _Gradients:
    """Gradients of the inputs, summed in float32 (or float64) whatever the type of the products."""

    def __init__(self, inputs: tuple[torch.Tensor | None, ...], needed: tuple[bool, ...], head: _Head) -> None:
        """
        Args:
            inputs: hidden states, weight, head bias and trained rows, as given.
            needed: which of them need a gradient.
        """
        self._inputs, self._head = inputs, head
        self.hidden, self.weight, self.head_bias, self.trained_rows = (
            torch.zeros(tensor.shape, device=tensor.device, dtype=head.sum_dtype)
            if need and tensor is not None
            else None
            for tensor, need in zip(inputs, needed[:4], strict=True)
        )

    def add(
        self,
        grad_nv: torch.Tensor,
        hidden_nH: torch.Tensor,
        weight_vH: torch.Tensor,
        block: torch.Tensor,
        rows: slice,
    ) -> None:
        if self.hidden is not None:
            self.hidden.index_add_(0, block, _product(grad_nv, weight_vH.t(), self.hidden.dtype))
        table = self._table(rows)
        if table is not None:
            _add_product(table, grad_nv.t(), hidden_nH)
        if self.head_bias is not None:
            self.head_bias[rows] += grad_nv.sum(0, dtype=self.head_bias.dtype)

    def _table(self, rows: slice) -> torch.Tensor | None:
        """The gradient of the rows of one block, whichever tensor they belong to."""
        if rows.start >= self._head.first_trained:
            return None if self.trained_rows is None else self.trained_rows[self._head.trained_slice(rows)]
        return None if self.weight is None else self.weight[rows]

    def results(self) -> tuple[torch.Tensor | None, ...]:
        gradients = (self.hidden, self.weight, self.head_bias, self.trained_rows)
        return tuple(
            None if grad is None or tensor is None else grad.to(tensor.dtype)
            for grad, tensor in zip(gradients, self._inputs, strict=True)
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


def _product(a_nk: torch.Tensor, b_vk: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`a @ b.T` in `dtype`, rounded to nothing less on the way where the device can."""
    if a_nk.is_cuda and a_nk.dtype in (torch.float16, torch.bfloat16):
        return torch.mm(a_nk, b_vk.t(), out_dtype=dtype)
    return torch.mm(a_nk, b_vk.t()).to(dtype)


def _add_product(total: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    """`total += a @ b`. Rounding each product to bf16 before the sum would bias training (TRL, `_addmm_fp32`)."""
    if total.is_cuda and a.dtype in (torch.float16, torch.bfloat16):
        torch.addmm(total, a, b, out_dtype=total.dtype, out=total)
    else:
        total.addmm_(a.to(total.dtype), b.to(total.dtype))
