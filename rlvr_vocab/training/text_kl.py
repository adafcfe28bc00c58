"""The KL term over texts, in a loss that takes ratio and KL from the same log-probabilities of ids.

TRL's KL of a token is a function of `log p_ref(id) - log p(id)`. An id's log-probability is its text's plus its own
given the text; with `log p(id | text)` of the policy, gradient and all, in place of the reference's the difference is
that of the texts, and the ratio, over ids, is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_args

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from rlvr_vocab.errors import UserError
from rlvr_vocab.training.settings import KLOver
from rlvr_vocab.vocab.head import RegionScores

_REFERENCE, _REFERENCE_COPIES = "ref_per_token_logps", "ref_copy_logps"


@contextmanager
def scores_of(model: nn.Module) -> Iterator[list[RegionScores]]:
    """What the region head finds inside the block: TRL hands on log-probabilities and one entropy alone."""
    found: list[RegionScores] = []

    def keep(module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, RegionScores):
            found.append(output)

    handle = model.register_forward_hook(keep)
    try:
        yield found
    finally:
        handle.remove()


def k3(log_ratio: torch.Tensor) -> torch.Tensor:
    """The estimate of a KL divergence that TRL uses, of the log of reference over policy at what was sampled."""
    return log_ratio.exp() - log_ratio - 1


class TextKL:
    """Gives each micro-batch of a `RegionGRPOTrainer` the reference that `beta` is to pull the policy towards.

    Args:
        over: `text`, or `ids` for TRL's own.

    Raises:
        UserError: it is neither.
    """

    def __init__(self, trainer: Any, over: KLOver) -> None:
        if over not in get_args(KLOver):
            raise UserError(f"kl_over={over}: must be {' or '.join(get_args(KLOver))}")
        self._trainer, self._over = trainer, over
        self._copy_logps = WeakIdKeyDictionary()  # by the log-probabilities of ids that they belong to
        self._inputs: dict[str, Any] | None = None
        self._kls: list[tuple[torch.Tensor, torch.Tensor]] = []  # of each token, over texts and over ids

    def copy_logps(self, logps: torch.Tensor) -> torch.Tensor:
        """The log-probabilities of ids given their texts, of a pass without gradients."""
        found: torch.Tensor = self._copy_logps[logps]
        return found

    def scored(self, logps: torch.Tensor, copy_logps: torch.Tensor) -> None:
        """Take note of what a pass through a model has found; inside the loss, set what it is compared with."""
        if self._inputs is None:
            self._copy_logps[logps] = copy_logps
            return
        of_copies = self._inputs.get(_REFERENCE_COPIES)
        if of_copies is None:
            return
        of_ids = self._inputs[_REFERENCE]
        over_text = of_ids - of_copies + copy_logps
        with torch.no_grad():
            weight = self._importance(logps)
            self._kls.append((weight * k3(over_text - logps), weight * k3(of_ids - logps)))
        if self._over == "text":
            self._inputs[_REFERENCE] = over_text

    def keep_reference(self, batch: dict[str, Any]) -> None:
        """Have the micro-batches of a batch know the reference's log-probabilities given the texts."""
        if _REFERENCE in batch and self._trainer.policy.layout.size:
            batch[_REFERENCE_COPIES] = self.copy_logps(batch[_REFERENCE])

    @contextmanager
    def in_the_loss(self, inputs: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The inputs for the loss, a copy of the buffered ones; afterwards both KLs are logged, `kl` and `kl/ids`."""
        self._inputs = dict(inputs)
        try:
            yield self._inputs
            for of_both in self._kls:
                self._log(_mask(inputs), *of_both)
        finally:
            self._inputs = None
            self._kls.clear()

    def _importance(self, logps: torch.Tensor) -> torch.Tensor | float:
        """What TRL weighs the KL of each token with."""
        assert self._inputs is not None
        old = self._inputs.get("old_per_token_logps")
        if old is None or not self._trainer.args.use_bias_correction_kl:
            return 1.0
        log_ratio = logps - old
        if self._trainer.importance_sampling_level == "sequence":
            mask = _mask(self._inputs)
            log_ratio = (log_ratio * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
        return log_ratio.exp()

    def _log(self, mask: torch.Tensor, of_texts: torch.Tensor, of_ids: torch.Tensor) -> None:
        trainer = self._trainer
        metrics = trainer._metrics["train" if trainer.model.training else "eval"]
        sums = torch.stack([(of_texts * mask).sum(), (of_ids * mask).sum(), mask.sum().float()])
        texts, ids, tokens = trainer.accelerator.reduce(sums, reduction="sum").tolist()
        if self._over == "ids":  # what TRL has logged
            metrics["kl"][-1] = texts / max(tokens, 1)
        metrics["kl/ids"].append(ids / max(tokens, 1))


def _mask(inputs: dict[str, Any]) -> torch.Tensor:
    mask: torch.Tensor = inputs["completion_mask"] * inputs.get("tool_mask", 1)
    return mask
