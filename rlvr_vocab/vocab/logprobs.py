"""Log-probabilities and entropies of ids and of texts under the region policy, without `(tokens, rows)` logits.

The function follows `trl.kernels.ChunkedLogProbFunction`, with three differences. Each position is scored only against
the rows that its region allows. The policy's bias is added in float32 after softcap and temperature. A block holds
standard rows with their copies, so that one pass gives the distribution over texts and, for each text, the
distribution over its copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from rlvr_vocab.vocab.head_logits import HeadLogits, HeadSettings, HeadWeights, whole_in_zero3
from rlvr_vocab.vocab.policy import FORBIDDEN, RegionPolicy, TextBlock
from rlvr_vocab.vocab.truncation import KeptTexts

# Shapes: N scored positions, n positions of one block, H hidden size, v texts of one block, c ids of one group of it.
_TOKENS_PER_BLOCK = 1024
_TOKENS_PER_BLOCK_ON_ACCELERATOR = 4096


class Scores(NamedTuple):
    """In nats, `(N,)` each, float32 (float64 for float64 inputs); `copy_entropy` and `copy_capacity` have no gradient.

    `log_probs` are those of the targets, about `FORBIDDEN` for a target that its region forbids. `copy_log_probs` are
    the same given the target's text; the difference is the text's log-probability. `entropy` is that of the
    distribution over texts; `copy_entropy`, H(copy | text), is entropy over ids minus that over texts. `copy_capacity`
    is the maximum of H(copy | text), reached with equally likely open ids.
    """

    log_probs: torch.Tensor
    copy_log_probs: torch.Tensor
    entropy: torch.Tensor
    copy_entropy: torch.Tensor
    copy_capacity: torch.Tensor


def region_logprobs(
    hidden_NH: torch.Tensor,
    weights: HeadWeights,
    targets_N: torch.Tensor,
    regions_N: torch.Tensor,
    policy: RegionPolicy,
    settings: HeadSettings,
    kept_texts: KeptTexts | None = None,
) -> Scores:
    """Score `targets_N`, each chosen in its region (both int64), from last hidden states of any float type.

    `kept_texts` are those that targets were drawn from; None for all.
    """
    return Scores(*_RegionLogProbs.apply(hidden_NH, *weights, targets_N, regions_N, policy, settings, kept_texts))


class _RegionLogProbs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, *arguments: Any) -> tuple[torch.Tensor, ...]:
        weights, (targets, regions, policy, settings, kept_texts) = HeadWeights(*arguments[:5]), arguments[5:]
        ctx.set_materialize_grads(False)
        device = hidden.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        head = HeadLogits(weights, policy, settings, dtype)
        texts = policy.surface_ids(targets)
        # log of the normaliser; logit of the target; log-sum-exp of its text's; entropies of texts and of ids; capacity
        figures = torch.zeros(6, len(hidden), device=hidden.device, dtype=head.sum_dtype)
        for region, positions in _token_blocks(regions):
            score = _OnlineScore(targets[positions], texts[positions], head.sum_dtype)
            inputs, kept = head.inputs(hidden, positions), None if kept_texts is None else kept_texts.select(positions)
            for block in head.blocks(region):
                score.add(block, _truncated(head.logits(inputs, region, block)[0], block, kept))
            figures[:, positions] = score.results()
        ctx.save_for_backward(hidden, *weights, targets, texts, regions, figures)
        ctx.policy, ctx.settings, ctx.kept_texts, ctx.compute_dtype = policy, settings, kept_texts, head.compute_dtype
        log_z, target_z, text_z, text_entropy, id_entropy, capacity = figures
        capacity, copy_entropy = capacity.clone(), id_entropy - text_entropy
        ctx.mark_non_differentiable(copy_entropy, capacity)
        return target_z - log_z, target_z - text_z, text_entropy.clone(), copy_entropy, capacity

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        hidden, *saved, targets, texts, regions, figures = ctx.saved_tensors
        weights = HeadWeights(*saved)
        with whole_in_zero3(weights.weight, weights.bias, weights.own_rows, weights.factor):
            head = HeadLogits(weights, ctx.policy, ctx.settings, ctx.compute_dtype)
            # Summed in float32 (or float64) for products of any dtype.
            sums = [
                each.new_zeros(each.shape, dtype=head.sum_dtype) if needed and each is not None else None
                for each, needed in zip((hidden, *weights), ctx.needs_input_grad[:6], strict=True)
            ]
            of_hidden, of_weights = sums[0], HeadWeights(*sums[1:])  # type: ignore[arg-type]
            for region, positions in _token_blocks(regions):
                inputs = head.inputs(hidden, positions)
                kept = None if ctx.kept_texts is None else ctx.kept_texts.select(positions)
                given = [None if each is None else each[positions].to(head.sum_dtype) for each in upstream[:3]]
                of_positions = (targets[positions], texts[positions], figures[:, positions], given)
                for block in head.blocks(region):
                    z, slopes = head.logits(inputs, region, block)
                    of_z = _gradients_of_logits(block, _truncated(z, block, kept), *of_positions)
                    of_products = head.gradients_of_products(of_z, slopes, block.groups)
                    head.add_gradients(of_products, block.groups, inputs, of_hidden, of_weights)
        of_inputs = zip(sums, (hidden, *weights), strict=True)
        results = (None if total is None or each is None else total.to(each.dtype) for total, each in of_inputs)
        return *results, None, None, None, None, None


def _truncated(z: list[torch.Tensor], block: TextBlock, kept: KeptTexts | None) -> list[torch.Tensor]:
    """Forbid, in place, the ids of texts that were not kept."""
    if kept is not None:
        dropped_nv = kept.drop_mask(block.texts)
        for group, each in zip(block.groups, z, strict=True):
            each.masked_fill_(dropped_nv[:, group.texts], FORBIDDEN)
    return z


class _OnlineScore:
    """Running sums over the blocks of one block of positions, relative to the largest logit so far."""

    def __init__(self, targets_n: torch.Tensor, texts_n: torch.Tensor, dtype: torch.dtype) -> None:
        self.targets, self.texts = targets_n, texts_n
        self.sums = torch.zeros(7, len(targets_n), device=targets_n.device, dtype=dtype)
        # Views: sum of e^z; of e^z · z over ids, and over texts with z the log of their sum; of e^z times the log of
        # the number of open ids of its text.
        self.max, self.total, self.total_id, self.total_text, self.total_open, self.target_z, self.text_z = self.sums
        self.max.fill_(2 * FORBIDDEN)
        self.target_z.fill_(FORBIDDEN)
        self.text_z.fill_(FORBIDDEN)

    def add(self, block: TextBlock, z: list[torch.Tensor]) -> None:
        """Add a block, given the logits of each group, which are overwritten."""
        self._add_targets(block, z)
        new_max = torch.stack([self.max, *(each.amax(1) for each in z)]).amax(0)
        shift = self.max - new_max
        rescale = shift.exp()
        self.total_id.add_(self.total * shift).mul_(rescale)
        self.total_text.add_(self.total * shift).mul_(rescale)
        self.total.mul_(rescale)
        self.total_open.mul_(rescale)
        self.max.copy_(new_max)
        for each in z:
            each.sub_(new_max.unsqueeze(1))
        weights = [each.exp() for each in z]
        if len(z) == 1:
            weighted = row_dot(weights[0], z[0])
            self.total += weights[0].sum(1)
            self.total_id += weighted
            self.total_text += weighted
            return
        self.total_id += sum(row_dot(*pair) for pair in zip(weights, z, strict=True))
        of_texts = _over_texts(weights, block)
        self.total += of_texts.sum(1)
        if block.log_open is not None:
            # Not `@`, which autocast would compute in bfloat16.
            self.total_open += (of_texts * block.log_open.to(of_texts.dtype)).sum(1)
        self.total_text += row_dot(of_texts, finite_log(of_texts))

    def _add_targets(self, block: TextBlock, z: list[torch.Tensor]) -> None:
        local_texts = self.texts - block.texts.start
        for group, of_group in zip(block.groups, z, strict=True):
            column, inside, is_target = group.find(self.targets, local_texts)
            found = of_group.gather(1, column.unsqueeze(1)).squeeze(1)
            self.target_z.copy_(torch.where(is_target, found, self.target_z))
            self.text_z.copy_(torch.where(inside, torch.logaddexp(self.text_z, found), self.text_z))

    def results(self) -> torch.Tensor:
        log_total = self.total.log()
        entropies = (log_total - total / self.total for total in (self.total_text, self.total_id))
        capacity = self.total_open / self.total
        return torch.stack([self.max + log_total, self.target_z, self.text_z, *entropies, capacity])


def _over_texts(values: list[torch.Tensor], block: TextBlock) -> torch.Tensor:
    """`(n, v)`: the sum of the values of each text's ids, given those of each group; the first is overwritten."""
    if values[0].size(1) == block.size:
        total = values[0]
    else:
        total = values[0].new_zeros(len(values[0]), block.size)
        block.groups[0].add_to_texts(total, values[0])
    for group, of_group in zip(block.groups[1:], values[1:], strict=True):
        group.add_to_texts(total, of_group)
    return total


def _gradients_of_logits(
    block: TextBlock,
    z: list[torch.Tensor],
    targets_n: torch.Tensor,
    texts_n: torch.Tensor,
    figures_6n: torch.Tensor,
    upstream: Sequence[torch.Tensor | None],
) -> list[torch.Tensor]:
    """Gradients of the logits of each group from the gradients of three scores; the logits are overwritten.

    z are logits, p probabilities of ids, q of texts (the text of i is i with its source and other copies):
    d log p(t) / dz_i = 1[i = t] - p_i; d log p(t | text) / dz_i = 1[i = t] - 1[i of the text] · p_i / q;
    d H(text) / dz_i = -p_i (log q + H(text)).
    """
    of_logprobs, of_copy_logprobs, of_text_entropy = upstream
    log_z, _, text_z, entropy, *_ = figures_6n
    of_target = sum(each for each in (of_logprobs, of_copy_logprobs) if each is not None)
    at_targets = []
    for group, each in zip(block.groups, z, strict=True):
        column, inside, is_target = group.find(targets_n, texts_n - block.texts.start)
        value = is_target * of_target
        if of_copy_logprobs is not None:
            found = each.gather(1, column.unsqueeze(1)).squeeze(1)
            value = value - torch.where(inside, (found - text_z).exp(), 0.0) * of_copy_logprobs
        at_targets.append((column.unsqueeze(1), value.to(figures_6n.dtype).unsqueeze(1)))
    log_p = [each.sub_(log_z.unsqueeze(1)) for each in z]
    g_logprobs = torch.zeros_like(log_z) if of_logprobs is None else of_logprobs
    if of_text_entropy is None:
        grads = [each.exp_().mul_(g_logprobs.neg().unsqueeze(1)) for each in log_p]
    else:
        g_text, p = of_text_entropy.unsqueeze(1), [each.exp() for each in log_p]
        constant = g_logprobs.unsqueeze(1) + g_text * entropy.unsqueeze(1)
        log_q = log_p[0] if len(p) == 1 else finite_log(_over_texts([p[0].clone(), *p[1:]], block))
        of_groups = [log_q] if len(p) == 1 else [log_q[:, group.texts] for group in block.groups]
        grads = [each.mul_(constant + g_text * of_text).neg_() for each, of_text in zip(p, of_groups, strict=True)]
    for grad, at_target in zip(grads, at_targets, strict=True):
        grad.scatter_add_(1, *at_target)
    return grads


def _token_blocks(regions_N: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    size = _TOKENS_PER_BLOCK if regions_N.device.type == "cpu" else _TOKENS_PER_BLOCK_ON_ACCELERATOR
    for region in regions_N.unique().tolist():
        for block in (regions_N == region).nonzero().squeeze(1).split(size):
            yield region, block


def finite_log(weights: torch.Tensor) -> torch.Tensor:
    """The logarithm, finite for 0; `torch.special.entr` would work too, but takes five times as long."""
    return weights.clamp(min=torch.finfo(weights.dtype).tiny).log_()


def row_dot(a_nv: torch.Tensor, b_nv: torch.Tensor) -> torch.Tensor:
    """Sum of the products in each row; `b` is overwritten."""
    return b_nv.mul_(a_nv).sum(1)
