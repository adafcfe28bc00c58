"""The trainer that survives, with the figures that tell whether a run is a healthy one."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from trl.models.utils import disable_gradient_checkpointing

from rlvr_vocab.rewards.turns import turn_text
from rlvr_vocab.training.lora import drops
from rlvr_vocab.training.metrics import StepMeans, duplicates, gap_sums, reward_spread, shared
from rlvr_vocab.training.resumable import ResumableGRPOTrainer
from rlvr_vocab.training.weight_checks import MovedValues

# Completions of a batch that are scored once more where the pass of the loss drops what sampling does not.
_SCORED_WITHOUT_DROPOUT = 4


class ObservedGRPOTrainer(ResumableGRPOTrainer):
    """GRPO that logs how much the groups of a batch differ, how well samples and scores agree, and where time goes.

    The figures of a batch are those of all processes' completions; those of the clock are the first process's.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._means = {"train": StepMeans(), "eval": StepMeans()}
        self._seconds: dict[str, float] = defaultdict(float)
        self._scored_logps: Any = None
        # A checkpoint is written after an update: completions that a resume finds pending were drawn before it.
        self._drawn_at: int | None = None
        super().__init__(*args, **kwargs)
        self.add_callback(MovedValues(self._metrics["train"]))

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        # Whatever else a step consists of has a phase of its own.
        with self.phases.during("backward"):
            loss: torch.Tensor = super().training_step(*args, **kwargs)
        if self._step % self.current_gradient_accumulation_steps == 0:  # as TRL logs step_time
            for name in ("time/generation", "time/rewards"):
                self._metrics["train"][name].append(self._seconds.pop(name, 0.0))
        return loss

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] += time.perf_counter() - started

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        with self._timed("time/generation"):
            return super()._generate(*args, **kwargs)

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        with self._timed("time/rewards"):
            self._rewards_BR: torch.Tensor = super()._calculate_rewards(*args, **kwargs)
        return self._rewards_BR

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        with self.phases.during("training"):
            batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if self.model.training:
            self._drawn_at = self.state.global_step
            self._log_groups()
        return batch

    def _log_groups(self) -> None:
        metrics, rows = self._metrics["train"], len(self._rewards_BR)
        prompts, completions = (list(self._logs[name])[-rows:] for name in ("prompt", "completion"))
        texts = [turn_text(turn) for turn in completions]
        spread = reward_spread(self._rewards_BR, self.reward_weights, self.num_generations)
        if spread is not None:
            metrics["groups/reward_std"].append(spread)
        metrics["completions/duplicates"].append(duplicates(texts, self.num_generations))
        metrics["completions/shared"].append(shared(texts, [str(prompt) for prompt in prompts]))
        for name, missing in zip(self.reward_func_names, self._rewards_BR.isnan().double().mean(0), strict=True):
            metrics[f"rewards/{name}/unscored"].append(missing.item())

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        scored: tuple[Any, ...] = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if torch.is_grad_enabled():  # the pass of the loss
            self._scored_logps = scored[0].detach()
        return scored

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        before_any_update = self.model.training and self._drawn_at == self.state.global_step
        compared = before_any_update and "sampling_per_token_logps" in inputs
        scored = self._scores_of_the_whole_policy(model, inputs) if compared else None
        with self.phases.during("loss"):
            loss: torch.Tensor = super()._compute_loss(model, inputs)
        if compared:
            scored = self._scored_logps if scored is None else scored
            sampled, mask = (inputs[name][: len(scored)] for name in ("sampling_per_token_logps", "completion_mask"))
            sums = self.accelerator.reduce(gap_sums(sampled, scored, mask), reduction="sum")
            self._means["train"].log("sampling/logp_gap", sums, self.state.global_step, self._metrics["train"])
        self._scored_logps = None
        return loss

    @torch.no_grad()
    def _scores_of_the_whole_policy(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor | None:
        """Log-probabilities of the first completions, at least; None where the pass of the loss gives those of all."""
        if "old_per_token_logps" in inputs:
            return inputs["old_per_token_logps"]
        if not drops(model):
            return None
        few = slice(_SCORED_WITHOUT_DROPOUT)
        ids, mask = (
            torch.cat([inputs[f"prompt_{name}"][few], inputs[f"completion_{name}"][few]], dim=1)
            for name in ("ids", "mask")
        )
        with disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs):
            scored, *_ = self._get_per_token_logps_and_entropies(model, ids, mask, inputs["completion_ids"].size(1))
        return scored

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        metrics = self._metrics["train"]
        for name in [name for name, values in metrics.items() if name.endswith("/unscored") and not any(values)]:
            del metrics[name]
        super().log(logs, start_time)
