"""Triton kernels for the blocks of `logprobs`: all steps after the head's product in one pass instead of a dozen.

`logprobs` has the same computation in plain torch. Each kernel reads a block once. Forward: scale, softcap, temperature
and the policy's bias, added to the running sums. Backward: from the products to their gradients; those of copies are
added to their sources'. cuBLAS computes the products, as in TRL's `ChunkedLogProbFunction`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from rlvr_vocab.vocab.head_logits import HeadLogits, HeadSettings, Inputs
from rlvr_vocab.vocab.policy import FORBIDDEN, TextBlock

# Shapes: n positions and v texts of a block, of which a program has R and B at a time.
# One position, and eight texts for each of 128 threads: enough loads in flight by estimate; not measured.
_ROWS = 1
_TEXTS = 1024
_FORBIDDEN = tl.constexpr(FORBIDDEN)
_LOWEST = tl.constexpr(2 * FORBIDDEN)  # logit where there is no id: e^(z - z') is 0 even beside a forbidden id
_TINY = tl.constexpr(torch.finfo(torch.float32).tiny)
_COLUMNS = tl.constexpr(4)  # columns of `TextBlock.slices`


def add_to_sums(
    sums_7n: torch.Tensor,
    block: TextBlock,
    inputs: Inputs,
    head: HeadLogits,
    region: int,
    targets_n: torch.Tensor,
    texts_n: torch.Tensor,
) -> None:
    """Add a block to the running sums of `logprobs`, in place."""
    n = len(targets_n)
    has_open = block.log_open is not None
    with torch.cuda.device_of(sums_7n):
        _add_to_sums[(triton.cdiv(n, _ROWS),)](
            sums_7n,
            head.products(inputs, block),
            block.slices,
            head.policy_bias[region],
            block.log_open if has_open else sums_7n,
            targets_n,
            texts_n,
            n,
            *_scales(head.settings),
            HAS_OPEN=has_open,
            ROWS=_ROWS,
            TEXTS=_TEXTS,
            **_forms(block, head),
        )


def gradients_of_products(
    block: TextBlock,
    inputs: Inputs,
    head: HeadLogits,
    region: int,
    targets_n: torch.Tensor,
    texts_n: torch.Tensor,
    figures_6n: torch.Tensor,
    upstream: Sequence[torch.Tensor | None],
    dtype: torch.dtype,
) -> list[torch.Tensor | None]:
    """Gradients of the products of each group of a block; in place if they have dtype `dtype`.

    Args:
        figures_6n: of the forward pass.
        upstream: incoming gradients of log-probs, of log-probs given the text, of the entropy over texts.
    """
    products = head.products(inputs, block)
    gradients = products if dtype == products.dtype else torch.empty_like(products, dtype=dtype)
    n, v = len(targets_n), block.size
    zeros = torch.zeros_like(figures_6n[0])
    _, of_copy_logprobs, of_text_entropy = (each is not None for each in upstream)
    with torch.cuda.device_of(figures_6n):
        _gradients_of_products[(triton.cdiv(n, _ROWS), triton.cdiv(v, _TEXTS))](
            gradients,
            products,
            block.slices,
            head.policy_bias[region],
            targets_n,
            texts_n,
            figures_6n.contiguous(),
            torch.stack([zeros if each is None else each for each in upstream]),
            n,
            *_scales(head.settings),
            OF_COPY_LOGPROBS=of_copy_logprobs,
            OF_ENTROPY=of_text_entropy,
            ROWS=_ROWS,
            TEXTS=_TEXTS,
            **_forms(block, head),
        )
    return head.split(gradients, n, block)


def _scales(settings: HeadSettings) -> tuple[float, float]:
    """The scales before and after the softcap; without a softcap the second is 1."""
    if settings.softcap is None:
        return settings.scale / settings.temperature, 1.0
    return settings.scale / settings.softcap, settings.softcap / settings.temperature


def _forms(block: TextBlock, head: HeadLogits) -> dict[str, bool | int]:
    return {
        "GROUPS": len(block.groups),
        # Products of copies are their own, those of their sources, or those and their deltas'.
        "COPIES": 0 if not head.from_source else 1 if head.weights.factor is None else 2,
        "CAPPED": head.settings.softcap is not None,
    }


@triton.jit
def _logits(
    products: tl.tensor,
    slices: tl.tensor,
    bias: tl.tensor,
    group: tl.constexpr,
    row: tl.tensor,
    text: tl.tensor,
    n: tl.tensor,
    v: tl.tensor,
    before: tl.tensor,
    after: tl.tensor,
    COPIES: tl.constexpr,
    CAPPED: tl.constexpr,
) -> tl.tensor:
    """For each text: its id in a group, the place of the product, whether the group has the text, the logit (`_LOWEST`
    if not), and the product after the softcap.

    Texts are `(1, B)`, or `(R, 1)` with one text per position.
    """
    slices += (1 + group) * _COLUMNS  # the first row is that of the block
    begin = tl.load(slices)
    first_text = tl.load(slices + 1)
    width = tl.load(slices + 2) - first_text
    first_id = tl.load(slices + 3)
    column = text - first_text
    in_group = (column >= 0) & (column < width)
    inside = in_group & (row < n)
    place = begin.to(tl.int64) * n + row * width + column
    if COPIES > 0 and group > 0:
        product = tl.load(products + row * v + text, mask=inside, other=0.0)
        if COPIES == 2:
            product += tl.load(products + place, mask=inside, other=0.0)
    else:
        product = tl.load(products + place, mask=inside, other=0.0)
    product = product * before
    if CAPPED:
        product = 2 * tl.sigmoid(2 * product) - 1  # tanh
    ids = first_id + column
    z = product * after + tl.load(bias + ids, mask=in_group, other=0.0)
    return ids, place, inside, tl.where(inside, z, _LOWEST), product


@triton.jit(do_not_specialize=["n"])
def _add_to_sums(
    sums: tl.tensor,
    products: tl.tensor,
    slices: tl.tensor,
    bias: tl.tensor,
    log_open: tl.tensor,
    targets: tl.tensor,
    target_texts: tl.tensor,
    n: tl.tensor,
    before: tl.tensor,
    after: tl.tensor,
    HAS_OPEN: tl.constexpr,
    GROUPS: tl.constexpr,
    COPIES: tl.constexpr,
    CAPPED: tl.constexpr,
    ROWS: tl.constexpr,
    TEXTS: tl.constexpr,
) -> None:
    """A program adds all texts of the block for its positions; each lane keeps separate sums until the end."""
    row_R = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row = row_R[:, None]
    v, block_start = tl.load(slices + 2), tl.load(slices + 3)  # the row of the block
    highest = tl.full((ROWS, TEXTS), _FORBIDDEN, tl.float32)
    total = tl.zeros((ROWS, TEXTS), tl.float32)
    total_id = tl.zeros((ROWS, TEXTS), tl.float32)
    total_text = tl.zeros((ROWS, TEXTS), tl.float32)
    total_open = tl.zeros((ROWS, TEXTS), tl.float32)
    for start in range(0, v, TEXTS):
        text = start + tl.arange(0, TEXTS)[None, :]
        new_highest = highest
        for group in tl.static_range(GROUPS):
            _, _, _, z, _ = _logits(products, slices, bias, group, row, text, n, v, before, after, COPIES, CAPPED)
            new_highest = tl.maximum(new_highest, z)
        of_text = tl.zeros((ROWS, TEXTS), tl.float32)
        of_ids = tl.zeros((ROWS, TEXTS), tl.float32)
        for group in tl.static_range(GROUPS):
            _, _, _, z, _ = _logits(products, slices, bias, group, row, text, n, v, before, after, COPIES, CAPPED)
            z -= new_highest
            weight = tl.exp(z)
            of_text += weight
            of_ids += weight * z
        shift = highest - new_highest
        rescale = tl.exp(shift)
        if GROUPS == 1:
            weighted = of_ids
        else:
            weighted = of_text * tl.log(tl.maximum(of_text, _TINY))
        total_id = (total_id + total * shift) * rescale + of_ids
        total_text = (total_text + total * shift) * rescale + weighted
        total_open = total_open * rescale
        if HAS_OPEN:
            total_open += of_text * tl.load(log_open + text, mask=text < v, other=0.0)
        total = total * rescale + of_text
        highest = new_highest

    # Combine the lanes with one another, and with the blocks before.
    own = sums + row_R
    is_row = row_R < n
    old_highest = tl.load(own, mask=is_row, other=_FORBIDDEN)
    new_highest = tl.maximum(old_highest, tl.max(highest, axis=1))
    shift = highest - new_highest[:, None]
    rescale = tl.exp(shift)
    old_shift = old_highest - new_highest
    old_rescale = tl.exp(old_shift)
    old_total = tl.load(own + n, mask=is_row, other=0.0)
    old_id = (tl.load(own + 2 * n, mask=is_row, other=0.0) + old_total * old_shift) * old_rescale
    old_text = (tl.load(own + 3 * n, mask=is_row, other=0.0) + old_total * old_shift) * old_rescale
    old_open = tl.load(own + 4 * n, mask=is_row, other=0.0) * old_rescale
    tl.store(own, new_highest, mask=is_row)
    tl.store(own + n, old_total * old_rescale + tl.sum(total * rescale, axis=1), mask=is_row)
    tl.store(own + 2 * n, old_id + tl.sum((total_id + total * shift) * rescale, axis=1), mask=is_row)
    tl.store(own + 3 * n, old_text + tl.sum((total_text + total * shift) * rescale, axis=1), mask=is_row)
    tl.store(own + 4 * n, old_open + tl.sum(total_open * rescale, axis=1), mask=is_row)

    # The target, and the other ids of its text.
    target = tl.load(targets + row_R, mask=is_row, other=-1)[:, None]
    text = (tl.load(target_texts + row_R, mask=is_row, other=-1) - block_start).to(tl.int32)[:, None]
    target_z = tl.load(own + 5 * n, mask=is_row, other=0.0)[:, None]
    text_z = tl.load(own + 6 * n, mask=is_row, other=0.0)[:, None]
    for group in tl.static_range(GROUPS):
        ids, _, inside, z, _ = _logits(products, slices, bias, group, row, text, n, v, before, after, COPIES, CAPPED)
        larger = tl.maximum(text_z, z)
        together = larger + tl.log(tl.exp(text_z - larger) + tl.exp(z - larger))
        text_z = tl.where(inside, together, text_z)
        target_z = tl.where(inside & (ids == target), z, target_z)
    tl.store(own[:, None] + 5 * n, target_z, mask=is_row[:, None])
    tl.store(own[:, None] + 6 * n, text_z, mask=is_row[:, None])


@triton.jit(do_not_specialize=["n"])
def _gradients_of_products(
    gradients: tl.tensor,
    products: tl.tensor,
    slices: tl.tensor,
    bias: tl.tensor,
    targets: tl.tensor,
    target_texts: tl.tensor,
    figures: tl.tensor,
    upstream: tl.tensor,
    n: tl.tensor,
    before: tl.tensor,
    after: tl.tensor,
    OF_COPY_LOGPROBS: tl.constexpr,
    OF_ENTROPY: tl.constexpr,
    GROUPS: tl.constexpr,
    COPIES: tl.constexpr,
    CAPPED: tl.constexpr,
    ROWS: tl.constexpr,
    TEXTS: tl.constexpr,
) -> None:
    """A program computes some texts for its positions, with the formulas of `logprobs._gradients_of_logits`."""
    row_R = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row = row_R[:, None]
    text = tl.program_id(1) * TEXTS + tl.arange(0, TEXTS)[None, :]
    v, block_start = tl.load(slices + 2), tl.load(slices + 3)  # the row of the block
    is_row = row_R < n
    log_z = tl.load(figures + row_R, mask=is_row, other=0.0)[:, None]
    text_z = tl.load(figures + 2 * n + row_R, mask=is_row, other=0.0)[:, None]
    of_logprobs = tl.load(upstream + row_R, mask=is_row, other=0.0)[:, None]
    of_copy_logprobs = tl.load(upstream + n + row_R, mask=is_row, other=0.0)[:, None]
    of_text_entropy = tl.load(upstream + 2 * n + row_R, mask=is_row, other=0.0)[:, None]
    target = tl.load(targets + row_R, mask=is_row, other=-1)[:, None]
    is_text = text == (tl.load(target_texts + row_R, mask=is_row, other=-1) - block_start)[:, None]
    constant = of_logprobs
    if OF_ENTROPY:
        constant += of_text_entropy * tl.load(figures + 3 * n + row_R, mask=is_row, other=0.0)[:, None]

    log_q = tl.zeros((ROWS, TEXTS), tl.float32)
    if OF_ENTROPY and GROUPS > 1:
        q = tl.zeros((ROWS, TEXTS), tl.float32)
        for group in tl.static_range(GROUPS):
            _, _, _, z, _ = _logits(products, slices, bias, group, row, text, n, v, before, after, COPIES, CAPPED)
            q += tl.exp(z - log_z)
        log_q = tl.log(tl.maximum(q, _TINY))

    of_source = tl.zeros((ROWS, TEXTS), tl.float32)
    for group in tl.static_range(GROUPS):
        ids, place, inside, z, capped = _logits(
            products, slices, bias, group, row, text, n, v, before, after, COPIES, CAPPED
        )
        log_p = z - log_z
        weight = constant
        if OF_ENTROPY:
            if GROUPS == 1:
                weight += of_text_entropy * log_p
            else:
                weight += of_text_entropy * log_q
        gradient = -tl.exp(log_p) * weight
        gradient += tl.where(is_text & inside & (ids == target), of_logprobs + of_copy_logprobs, 0.0)
        if OF_COPY_LOGPROBS:
            gradient -= tl.exp(tl.where(is_text & inside, z - text_z, _LOWEST)) * of_copy_logprobs
        gradient = gradient * (before * after)
        if CAPPED:
            gradient = gradient * (1 - capped * capped)
        if COPIES > 0:
            of_source += gradient
            if COPIES == 2 and group > 0:
                tl.store(gradients + place, gradient, mask=inside)
        else:
            tl.store(gradients + place, gradient, mask=inside)
    if COPIES > 0:
        tl.store(gradients + row * v + text, of_source, mask=is_row[:, None] & (text < v))
