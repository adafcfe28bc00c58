"""The KL divergence from the initial model, logged now and then where the loss has no reference model."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from peft import PeftModel
from transformers import PreTrainedModel
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import create_model_from_path

from rlvr_vocab.training.sharding import is_sharded, shard_like_policy
from rlvr_vocab.training.text_kl import k3
from rlvr_vocab.vocab.head import attach_region_head
from rlvr_vocab.vocab.reasoning_rows import attach_low_rank_rows

# One of them costs about a third of a step: docs/guide.md has the figures.
USUAL_STEPS = 50


class ReferenceKL:
    """Logs `kl` of a `RegionGRPOTrainer` every so many steps, with a reference loaded for the moment.

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
                self._trainer._metrics["train"][name].append(value)

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
        gc.collect()  # its forward is a function that holds it: by itself it would stay, a whole model, for many steps
        return logps

    @contextmanager
    def reference(self) -> Iterator[PreTrainedModel]:
        """The initial model: the one that trains with its adapter switched off, or read from disk for the moment."""
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
            attn_implementation=trainer.model.config._attn_implementation,
            device_map=None,
            use_safetensors=True,
        )
        attach_low_rank_rows(reference, trainer.initial_model)
        attach_region_head(reference, policy=trainer.policy, temperature=trainer.temperature)
        return reference.eval()
