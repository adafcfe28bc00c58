"""The metrics of a batch that TRL does not log: groups, duplicates, regions, sampler and reference against policy."""

from __future__ import annotations

import gc
import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, get_args

import torch
from peft import PeftModel
from transformers import PreTrainedModel
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import create_model_from_path, nanstd

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.guard import REASON
from rlvr_vocab.rewards.reward import turn_text
from rlvr_vocab.text import pluralize
from rlvr_vocab.training.models.lora import has_dropout
from rlvr_vocab.training.settings import KLOver
from rlvr_vocab.training.sharding import is_sharded, shard_like_policy
from rlvr_vocab.vocab.copied_rows import attach_low_rank_rows
from rlvr_vocab.vocab.head import attach_region_head
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import ANSWERING, THINKING, regions_after, scored_regions

# Shapes: B completions, of all processes where rewards are meant, group after group; R reward functions;
# G completions of a group; T positions of prompt and completion, P of the prompt, C of the completion.


class BatchMetrics:
    """Logs the groups, regions and entropies of a `RegionGRPOTrainer`'s batches, over all processes."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._means = {True: StepMeans(), False: StepMeans()}  # by whether the model trains

    def log_batch(
        self, batch: dict[str, Any], rewards_BR: torch.Tensor, entropies: Sequence[Sequence[Sequence[float]]] | None
    ) -> None:
        """Log the regions of a batch of completions, its groups where it is trained on, and the sampler's entropies.

        Args:
            entropies: over texts, and over copies of the text, of each token of this process's completions.
        """
        trainer = self._trainer
        if trainer.model.training:
            self._log_groups(rewards_BR)
        counts = region_counts(batch["prompt_ids"], batch["completion_ids"], batch["completion_mask"], trainer.policy)
        counts = trainer.accelerator.reduce(counts, reduction="sum")
        for name, value in region_metrics(counts, copies=trainer.policy.layout.size > 0).items():
            trainer.present_metrics[name].append(value)
        if entropies is not None:
            ids, mask = (
                torch.cat([batch[f"prompt_{name}"], batch[f"completion_{name}"]], dim=1) for name in ("ids", "mask")
            )
            of_texts_BC, of_copies_BC = (_padded(rows, batch["completion_mask"]) for rows in entropies)
            self.log_entropies(of_texts_BC, of_copies_BC, ids, mask, prefix="sampling/")

    def _log_groups(self, rewards_BR: torch.Tensor) -> None:
        trainer, metrics = self._trainer, self._trainer.train_metrics
        prompts, completions = (
            list(trainer.logged_completions[name])[-len(rewards_BR) :] for name in ("prompt", "completion")
        )
        texts = [turn_text(turn) for turn in completions]
        spread = reward_spread(rewards_BR, trainer.reward_weights, trainer.num_generations)
        if spread is not None:
            metrics["groups/reward_std"].append(spread)
        metrics["completions/duplicates"].append(duplicates(texts, trainer.num_generations))
        metrics["completions/shared"].append(shared(texts, [str(prompt) for prompt in prompts]))
        for name, missing in zip(trainer.reward_func_names, rewards_BR.isnan().double().mean(0), strict=True):
            metrics[f"rewards/{name}/unscored"].append(missing.item())

    def log_entropies(
        self,
        text_BC: torch.Tensor,
        copies_BC: torch.Tensor,
        ids_BT: torch.Tensor,
        mask_BT: torch.Tensor,
        capacity_BC: torch.Tensor | None = None,
        prefix: str = "",
    ) -> None:
        """Log entropies over texts, by region, over the copies of a text, and the copies' distance from chance in bits.

        Args:
            text_BC: in nats, at the last C positions of the ids.
            capacity_BC: the largest value of `copies_BC`; without it no distance from chance is logged.
        """
        trainer, length = self._trainer, text_BC.size(1)
        mask_BC, regions_BC = mask_BT[:, -length:], scored_regions(ids_BT, trainer.policy.layout)[:, -length:]
        of_both = [region_entropies(each, regions_BC, mask_BC) for each in (text_BC, copies_BC)]
        of_text, of_copies = trainer.accelerator.reduce(torch.stack(of_both), reduction="sum")
        sums = {
            "entropy/text": of_text.sum(0),
            "entropy/thinking": of_text[THINKING],
            "entropy/answering": of_text[ANSWERING],
        }
        if trainer.policy.layout.size:
            sums["entropy/copies"] = of_copies[THINKING]
            if capacity_BC is not None:
                sums |= self._hidden_channel(copies_BC, capacity_BC, (regions_BC == THINKING) & mask_BC.bool())
        means, step, metrics = self._means[trainer.model.training], trainer.state.global_step, trainer.present_metrics
        for name, each in sums.items():
            means.log(f"{prefix}{name}", each, step, metrics)

    def _hidden_channel(
        self, copies_BC: torch.Tensor, capacity_BC: torch.Tensor, thinking_BC: torch.Tensor
    ) -> Mapping[str, torch.Tensor]:
        """The sum of each meter in bits, and its number of thinking tokens or of completions that think."""
        capacity, entropy = (each[thinking_BC].double().sum() / math.log(2) for each in (capacity_BC, copies_BC))
        tokens, completions = (each.sum().double() for each in (thinking_BC, thinking_BC.any(1)))
        capacity, bound, tokens, completions = self._trainer.accelerator.reduce(
            torch.stack([capacity, capacity - entropy, tokens, completions]), reduction="sum"
        )
        return {
            "hidden/capacity": torch.stack([capacity, tokens]),
            "hidden/bound": torch.stack([bound, tokens]),
            "hidden/bound_per_thought": torch.stack([bound, completions]),
        }

    def drop_all_scored(self) -> None:
        """Remove the `unscored` of each function that scored every row since the last log."""
        metrics = self._trainer.train_metrics
        for name in [name for name, values in metrics.items() if name.endswith("/unscored") and not any(values)]:
            del metrics[name]


def _padded(rows: Sequence[Sequence[float]], like_BC: torch.Tensor) -> torch.Tensor:
    padded = torch.zeros(like_BC.shape, device=like_BC.device)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = torch.tensor(row, device=padded.device)
    return padded


class StepMeans:
    """Adds up the batches of a step, so that a logged value is the mean over its tokens, however it is divided."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[int, torch.Tensor]] = {}

    def log(self, name: str, sums: torch.Tensor, step: int, metrics: dict[str, list[float]]) -> None:
        """Count a batch in the logged value of its step; `sums` is `(2,)`: sum of the values, number of tokens."""
        counted_step, counted = self._sums.get(name, (step, torch.zeros_like(sums)))
        goes_on = counted_step == step and bool(metrics.get(name)) and bool(counted[1])
        self._sums[name] = step, sums + counted if goes_on else sums
        total, tokens = self._sums[name][1].tolist()
        if tokens:
            metrics[name][-1 if goes_on else len(metrics[name]) :] = [total / tokens]


def require_scores(
    rewards_BR: torch.Tensor, names: Sequence[str], step: int, logged: Mapping[str, Sequence[Any]]
) -> None:
    """UserError where no completion of a batch has a finite reward, with the reasons that functions logged."""
    if not torch.isfinite(rewards_BR).any():
        reasons = [
            next(filter(None, logged.get(f"{REASON}{name}", ())), "gave only None, NaN or infinite ones")
            for name in names
        ]
        listed = "; ".join(f"{name} {reason}" for name, reason in zip(names, reasons, strict=True))
        raise UserError(f"step {step + 1}: none of {pluralize(len(rewards_BR), 'completion')} has a reward: {listed}")
    infinite = torch.isinf(rewards_BR).nonzero()
    if len(infinite):
        row, column = infinite[0].tolist()
        raise UserError(f"step {step + 1}: {names[column]} is infinite for row {row + 1} of {len(rewards_BR)}")


def weighted_total(rewards_BR: torch.Tensor, weights_R: torch.Tensor) -> torch.Tensor:
    """`(B,)` weighted rewards, NaN where no function gave one."""
    total_B = (rewards_BR * weights_R.to(rewards_BR.device)).nansum(dim=1)
    return total_B.masked_fill(rewards_BR.isnan().all(dim=1), torch.nan)


def reward_spread(rewards_BR: torch.Tensor, weights_R: torch.Tensor, group_size: int) -> float | None:
    """Mean over the groups of the standard deviation (n - 1) of the weighted reward; None without two to compare."""
    total_BG = weighted_total(rewards_BR, weights_R).double().view(-1, group_size)
    spread = nanstd(total_BG, dim=1).nanmean().item()
    return None if spread != spread else spread


def duplicates(texts: Sequence[str], group_size: int) -> float:
    """Share of completions whose text repeats an earlier one of their own group.

    >>> duplicates(["a", "a", "b", "a", "c", "c"], group_size=3)
    0.3333333333333333
    """
    groups = [texts[start : start + group_size] for start in range(0, len(texts), group_size)]
    return sum(len(group) - len(set(group)) for group in groups) / len(texts)


def shared(texts: Sequence[str], prompts: Sequence[Hashable]) -> float:
    """Share of completions whose whole text was also given to a different prompt.

    >>> shared(["a", "a", "a", "b"], ["1", "1", "2", "2"])
    0.75
    """
    prompts_of = defaultdict(set)
    for text, prompt in zip(texts, prompts, strict=True):
        prompts_of[text].add(prompt)
    return sum(len(prompts_of[text]) > 1 for text in texts) / len(texts)


def region_counts(
    prompt_ids_BP: torch.Tensor, completion_ids_BC: torch.Tensor, mask_BC: torch.Tensor, policy: RegionPolicy
) -> torch.Tensor:
    """Sums over a batch for `region_metrics`, to be added up over processes.

    Returns:
        `(5,)` float64: completions, thinking tokens (closing tag included), answering tokens, reasoning tokens,
        completions whose thinking was closed.
    """
    ids = torch.cat([prompt_ids_BP, completion_ids_BC], dim=1)
    prompt_length = prompt_ids_BP.size(1)
    mask = mask_BC.bool()
    thinking = (scored_regions(ids, policy.layout)[:, prompt_length:] == THINKING) & mask
    last = prompt_length - 1 + mask.sum(1)
    ends_answering = regions_after(ids, policy.layout).gather(1, last.unsqueeze(1)).squeeze(1) == ANSWERING
    counts = (
        torch.tensor(len(ids), device=ids.device),
        thinking.sum(),
        (mask & ~thinking).sum(),
        (policy.is_reasoning(completion_ids_BC) & mask).sum(),
        (thinking.any(1) & ends_answering).sum(),
    )
    return torch.stack(counts).double()


def region_metrics(counts: torch.Tensor, *, copies: bool) -> dict[str, float]:
    """Named metrics from `region_counts`; the share of reasoning tokens needs thinking tokens and copies."""
    completions, thinking, answering, reasoning, closed = counts.tolist()
    metrics = {
        "thinking/mean_length": thinking / completions,
        "answering/mean_length": answering / completions,
        "thinking/closed": closed / completions,
    }
    if thinking and copies:
        metrics["thinking/reasoning_share"] = reasoning / thinking
    return metrics


def region_entropies(entropies_BC: torch.Tensor, regions_BC: torch.Tensor, mask_BC: torch.Tensor) -> torch.Tensor:
    """`(2, 2)` float64: for answering and thinking, the sum of entropies in nats and the number of tokens."""
    sums = []
    for region in (ANSWERING, THINKING):
        chosen = (regions_BC == region) & mask_BC.bool()
        sums.append(torch.stack([entropies_BC[chosen].double().sum(), chosen.sum().double()]))
    return torch.stack(sums)


# Completions of a batch that are scored once more where the loss's forward pass has dropout.
_SCORED_WITHOUT_DROPOUT = 4


class SamplingGap:
    """Logs `sampling/logp_gap` where completions are trained on before the first update since they were drawn.

    `loss_logps` are the log-probabilities of the loss's own forward pass; the trainer sets them.
    """

    def __init__(self, trainer: Any) -> None:
        self.loss_logps: torch.Tensor | None = None
        self._trainer = trainer
        self._means = StepMeans()
        # A checkpoint is written after an update: completions that a resume finds unfinished were drawn before it.
        self._drawn_at: int | None = None

    def completions_drawn(self) -> None:
        self._drawn_at = self._trainer.state.global_step

    @contextmanager
    def measured(self, model: Any, inputs: dict[str, Any]) -> Iterator[None]:
        """Put around the loss."""
        trainer = self._trainer
        before_any_update = trainer.model.training and self._drawn_at == trainer.state.global_step
        compared = before_any_update and "sampling_per_token_logps" in inputs
        scored = self._scores_without_dropout(model, inputs) if compared else None
        yield
        scored = self.loss_logps if scored is None else scored
        if compared and scored is not None:
            sampled, mask = (inputs[name][: len(scored)] for name in ("sampling_per_token_logps", "completion_mask"))
            sums = trainer.accelerator.reduce(gap_sums(sampled, scored, mask), reduction="sum")
            self._means.log("sampling/logp_gap", sums, trainer.state.global_step, trainer.train_metrics)
        self.loss_logps = None

    @torch.no_grad()
    def _scores_without_dropout(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor | None:
        """Log-probabilities of at least the first completions; None where the loss computes them without dropout."""
        if "old_per_token_logps" in inputs:
            return inputs["old_per_token_logps"]
        if not has_dropout(model):
            return None
        few = slice(_SCORED_WITHOUT_DROPOUT)
        ids, mask = (
            torch.cat([inputs[f"prompt_{name}"][few], inputs[f"completion_{name}"][few]], dim=1)
            for name in ("ids", "mask")
        )
        trainer = self._trainer
        with disable_gradient_checkpointing(trainer.model, trainer.args.gradient_checkpointing_kwargs):
            scored, *_ = trainer._get_per_token_logps_and_entropies(model, ids, mask, inputs["completion_ids"].size(1))
        return scored


def gap_sums(sampled_BC: torch.Tensor, scored_BC: torch.Tensor, mask_BC: torch.Tensor) -> torch.Tensor:
    """`(2,)` float64: sum of absolute differences and number of tokens, without those whose sampled value is NaN."""
    counted = mask_BC.bool() & ~sampled_BC.isnan()
    distances = (sampled_BC.double() - scored_BC.double()).abs()
    return torch.stack([distances[counted].sum(), counted.sum().double()])


_REFERENCE, _REFERENCE_COPIES = "ref_per_token_logps", "ref_copy_logps"


def k3(log_ratio: torch.Tensor) -> torch.Tensor:
    """TRL's estimate of a KL divergence, from log(reference / policy) at sampled tokens."""
    return log_ratio.exp() - log_ratio - 1


class TextKL:
    """Makes `beta` act on the KL over texts, or with `over="ids"` on that over ids, and logs both.

    TRL's KL of a token is a function of log p_ref(id) - log p(id), and log p(id) = log p(text) + log p(id | text). The
    reference's log p(id | text) is replaced by the policy's, not detached; it cancels, which leaves the KL over texts.
    """

    def __init__(self, trainer: Any, over: KLOver) -> None:
        if over not in get_args(KLOver):
            raise UserError(f"kl_over={over}: must be {' or '.join(get_args(KLOver))}")
        self._trainer, self._over = trainer, over
        self._sums: torch.Tensor | None = None

    def keep_reference(self, batch: dict[str, Any]) -> None:
        """Add the reference's log p(id | text) to a batch that has its log-probabilities."""
        if _REFERENCE in batch and self._trainer.policy.layout.size:
            batch[_REFERENCE_COPIES] = self._trainer.copy_logps[batch[_REFERENCE]]

    def set_reference(self, inputs: dict[str, Any], logps: torch.Tensor, copy_logps: torch.Tensor) -> None:
        """Change the reference of the loss's inputs, where they have one, by the loss's own forward pass."""
        if _REFERENCE_COPIES not in inputs:
            return
        of_ids, mask = inputs[_REFERENCE], inputs["completion_mask"] * inputs.get("tool_mask", 1)
        of_texts = of_ids - inputs[_REFERENCE_COPIES] + copy_logps
        with torch.no_grad():
            weight = self._importance(inputs, logps, mask)
            kls = (weight * k3(each - logps) for each in (of_texts, of_ids))
            self._sums = torch.stack([*((kl * mask).sum() for kl in kls), mask.sum().float()])
        if self._over == "text":
            inputs[_REFERENCE] = of_texts

    def _importance(self, inputs: dict[str, Any], logps: torch.Tensor, mask: torch.Tensor) -> torch.Tensor | float:
        """TRL's weight of each token's KL."""
        old = inputs.get("old_per_token_logps")
        if old is None or not self._trainer.args.use_bias_correction_kl:
            return 1.0
        log_ratio = logps - old
        if self._trainer.importance_sampling_level == "sequence":
            log_ratio = (log_ratio * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
        return log_ratio.exp()

    def log(self) -> None:
        """Log the KLs of a loss, after TRL has logged that which `beta` acted on."""
        if self._sums is not None:
            metrics = self._trainer.present_metrics
            texts, ids, tokens = self._trainer.accelerator.reduce(self._sums, reduction="sum").tolist()
            if self._over == "ids":
                metrics["kl"][-1] = texts / max(tokens, 1)
            metrics["kl/ids"].append(ids / max(tokens, 1))
        self._sums = None


# One measurement costs about a third of a step (docs/guide.md).
_USUAL_STEPS = 50


class ReferenceKL:
    """Logs `kl` of a `RegionGRPOTrainer` every so many steps, with a reference that is loaded for it.

    Args:
        every: 0 for never; None for every 50, and never where the policy is sharded: each process would read
            a whole model into main memory.
    """

    def __init__(self, trainer: Any, every: int | None) -> None:
        self._trainer, self._every = trainer, every

    def log_if_due(self, batch: dict[str, torch.Tensor]) -> None:
        """Log at the first generation at or after a multiple of `every`, where `beta` is 0."""
        trainer, args, every = self._trainer, self._trainer.args, self._every
        if every is None:
            every = 0 if is_sharded(trainer.accelerator.state) else _USUAL_STEPS
        if not every or trainer.beta != 0.0:
            return
        batches = args.steps_per_generation * trainer.num_iterations
        steps_between_generations = max(1, batches // args.gradient_accumulation_steps)
        if trainer.state.global_step % every < steps_between_generations:
            for name, value in self._kl(batch).items():
                trainer.train_metrics[name].append(value)

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
            with self.reference() as reference:
                reference_logps, *_ = trainer._get_per_token_logps_and_entropies(reference, *arguments)
        del reference
        gc.collect()  # its forward refers to it: the whole model would stay for many steps
        of_copies = trainer.copy_logps[reference_logps] - trainer.copy_logps[logps]
        log_ratios = {"kl": reference_logps - logps - of_copies}
        if trainer.policy.layout.size:
            log_ratios["kl/ids"] = reference_logps - logps
        mask = batch["completion_mask"].double()
        sums = torch.stack([*((k3(each) * mask).sum() for each in log_ratios.values()), mask.sum()])
        *totals, tokens = trainer.accelerator.reduce(sums, reduction="sum").tolist()
        return {name: total / max(tokens, 1) for name, total in zip(log_ratios, totals, strict=True)}

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
