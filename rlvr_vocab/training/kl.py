"""The KL to the initial model, measured every so many steps where the loss has none."""

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
from rlvr_vocab.vocab.copied_rows import attach_low_rank_rows
from rlvr_vocab.vocab.head import attach_region_head

# One measurement costs about a third of a step (docs/guide.md).
USUAL_STEPS = 50


class ReferenceKL:
    """Logs `kl` of a `RegionGRPOTrainer` every so many steps, with a reference that is loaded for it.

    Args:
        every: 0 for never; None for every `USUAL_STEPS`, and never where the policy is sharded: each process would read
            a whole model into main memory.
    """

    def __init__(self, trainer: Any, every: int | None) -> None:
        self._trainer, self._every = trainer, every

    def log_if_due(self, batch: dict[str, torch.Tensor]) -> None:
        """Log at the first generation at or after a multiple of `every`, where `beta` is 0."""
        trainer, args, every = self._trainer, self._trainer.args, self._every
        if every is None:
            every = 0 if is_sharded(trainer.accelerator.state) else USUAL_STEPS
        if not every or trainer.beta != 0.0:
            return
        batches = args.steps_per_generation * trainer.num_iterations
        steps_between_generations = max(1, batches // args.gradient_accumulation_steps)
        if trainer.state.global_step % every < steps_between_generations:
            trainer.train_metrics["kl"].append(self._kl(batch))

    @torch.no_grad()
    def _kl(self, batch: dict[str, torch.Tensor]) -> float:
        """The mean over tokens of TRL's estimate, from log(reference / policy) of the sampled texts."""
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
            with self.reference() as reference:
                reference_logps, *_ = trainer._get_per_token_logps_and_entropies(reference, *arguments)
        del reference
        gc.collect()  # its forward refers to it: the whole model would stay for many steps
        of_copies = trainer.copy_logps[reference_logps] - trainer.copy_logps[logps]
        log_ratio = reference_logps - logps - of_copies
        mask = batch["completion_mask"].double()
        sums = torch.stack([((log_ratio.exp() - log_ratio - 1) * mask).sum(), mask.sum()])
        total, tokens = trainer.accelerator.reduce(sums, reduction="sum").tolist()
        return float(total / max(tokens, 1))

    @contextmanager
    def reference(self) -> Iterator[PreTrainedModel]:
        """The initial model: the one that trains with its adapter switched off, or read from disk."""
        trainer = self._trainer
        if isinstance(trainer.model, PeftModel):
            with trainer.model.disable_adapter():
                yield trainer.model
            return
        reference = create_model_from_path(
            str(trainer.initial_model),
            dtype=trainer.model.dtype,
            attn_implementation=(trainer.args.model_init_kwargs or {}).get("attn_implementation"),
            device_map=None,
            use_safetensors=True,
        )
        attach_low_rank_rows(reference, trainer.initial_model)
        attach_region_head(reference, policy=trainer.policy, temperature=trainer.temperature)
        yield shard_like_policy(reference.eval(), trainer.accelerator)
