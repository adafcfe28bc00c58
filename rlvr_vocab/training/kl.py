"""The KL to the initial model: over texts in a loss over ids, and logged where the loss has none.

TRL's KL of a token is a function of `log p_ref(id) - log p(id)`, and log p(id) = log p(text) + log p(id | text). With
`log p(id | text)` of the policy, gradient included, in place of the reference's, the difference is that of the texts.
The ratio, over ids, does not change.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_args

import torch
from peft import PeftModel
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary
from transformers import PreTrainedModel
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import create_model_from_path

from rlvr_vocab.errors import UserError
from rlvr_vocab.training.settings import KLOver
from rlvr_vocab.training.sharding import is_sharded, shard_like_policy
from rlvr_vocab.vocab.copied_rows import attach_low_rank_rows
from rlvr_vocab.vocab.head import RegionScores, attach_region_head

_REFERENCE, _REFERENCE_COPIES = "ref_per_token_logps", "ref_copy_logps"


@contextmanager
def scores_of(model: nn.Module) -> Iterator[list[RegionScores]]:
    """Everything that the region head computes inside the block; TRL keeps log-probabilities and one entropy."""
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
    """TRL's estimate of a KL divergence, from log(reference / policy) at sampled tokens."""
    return log_ratio.exp() - log_ratio - 1


class TextKL:
    """Gives each micro-batch of a `RegionGRPOTrainer` the reference for `beta`.

    Args:
        over: `text`, or `ids` for TRL's own; anything else raises UserError.
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
        """Keep the log-probabilities of a forward pass; inside the loss, set their reference."""
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
        """Add the reference's log-probabilities given the texts to a batch."""
        if _REFERENCE in batch and self._trainer.policy.layout.size:
            batch[_REFERENCE_COPIES] = self.copy_logps(batch[_REFERENCE])

    @contextmanager
    def in_the_loss(self, inputs: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """A copy of the buffered inputs for the loss; afterwards `kl` and `kl/ids` are logged."""
        self._inputs = dict(inputs)
        try:
            yield self._inputs
            for of_both in self._kls:
                self._log(_mask(inputs), *of_both)
        finally:
            self._inputs = None
            self._kls.clear()

    def _importance(self, logps: torch.Tensor) -> torch.Tensor | float:
        """TRL's weight of each token's KL."""
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
        sums = torch.stack([(of_texts * mask).sum(), (of_ids * mask).sum(), mask.sum().float()])
        texts, ids, tokens = trainer.accelerator.reduce(sums, reduction="sum").tolist()
        if self._over == "ids":  # what TRL has logged
            trainer.present_metrics["kl"][-1] = texts / max(tokens, 1)
        trainer.present_metrics["kl/ids"].append(ids / max(tokens, 1))


def _mask(inputs: dict[str, Any]) -> torch.Tensor:
    mask: torch.Tensor = inputs["completion_mask"] * inputs.get("tool_mask", 1)
    return mask


# One measurement costs about a third of a step (docs/guide.md).
USUAL_STEPS = 50


class ReferenceKL:
    """Logs `kl` of a `RegionGRPOTrainer` every so many steps, with a reference that is loaded for it.

    Args:
        every: 0 for never; None for every `USUAL_STEPS`, and never where the policy is sharded: each process would read
            a whole model into main memory.
    """

    def __init__(self, trainer: Any, every: int | None) -> None:
        self._trainer, self._asked = trainer, every

    @property
    def _every(self) -> int:
        if self._asked is not None:
            return self._asked
        return 0 if is_sharded(self._trainer.accelerator.state) else USUAL_STEPS

    def log_if_due(self, batch: dict[str, torch.Tensor]) -> None:
        """Log at the first generation at or after a multiple of `every`, where `beta` is 0."""
        args = self._trainer.args
        if not self._every or self._trainer.beta != 0.0:
            return
        batches = args.steps_per_generation * self._trainer.num_iterations
        steps_between_generations = max(1, batches // args.gradient_accumulation_steps)
        if self._trainer.state.global_step % self._every < steps_between_generations:
            for name, value in self._kl(batch).items():
                self._trainer.train_metrics[name].append(value)

    @torch.no_grad()
    def _kl(self, batch: dict[str, torch.Tensor]) -> dict[str, float]:
        """Means over tokens: `kl` over texts and, where one text has several ids, `kl/ids`."""
        trainer = self._trainer
        arguments = (
            torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1),
            torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1),
            batch["completion_ids"].size(1),
            trainer.args.per_device_train_batch_size,
        )
        device = trainer.accelerator.device
        with (
            torch.random.fork_rng([device] if device.type == "cuda" else []),
            disable_gradient_checkpointing(trainer.model, trainer.args.gradient_checkpointing_kwargs),
        ):
            logps, *_ = trainer._get_per_token_logps_and_entropies(trainer.model, *arguments)
            reference_logps = self._reference_logps(*arguments)
        of_copies = trainer.text_kl.copy_logps(reference_logps) - trainer.text_kl.copy_logps(logps)
        log_ratios = {"kl": reference_logps - logps - of_copies, "kl/ids": reference_logps - logps}
        if not trainer.policy.layout.size:
            del log_ratios["kl/ids"]
        mask = batch["completion_mask"].double()
        sums = torch.stack([*((k3(each) * mask).sum() for each in log_ratios.values()), mask.sum()])
        *totals, tokens = trainer.accelerator.reduce(sums, reduction="sum").tolist()
        return {name: total / max(tokens, 1) for name, total in zip(log_ratios, totals, strict=True)}

    def _reference_logps(self, *arguments: Any) -> torch.Tensor:
        with self.reference() as reference:
            logps: torch.Tensor = self._trainer._get_per_token_logps_and_entropies(reference, *arguments)[0]
        del reference
        gc.collect()  # its forward refers to it: the whole model would stay for many steps
        return logps

    @contextmanager
    def reference(self) -> Iterator[PreTrainedModel]:
        """The initial model: the one that trains with its adapter switched off, or read from disk."""
        trainer = self._trainer
        if isinstance(trainer.model, PeftModel):
            with trainer.model.disable_adapter():
                yield trainer.model
        else:
            yield shard_like_policy(self._load_reference(), trainer.accelerator)

    def _load_reference(self) -> PreTrainedModel:
        trainer = self._trainer
        reference = create_model_from_path(
            str(trainer.initial_model),
            dtype=trainer.model.dtype,
            attn_implementation=(trainer.args.model_init_kwargs or {}).get("attn_implementation"),
            device_map=None,
            use_safetensors=True,
        )
        attach_low_rank_rows(reference, trainer.initial_model)
        attach_region_head(reference, policy=trainer.policy, temperature=trainer.temperature)
        return reference.eval()
