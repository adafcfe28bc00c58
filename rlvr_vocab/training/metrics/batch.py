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
from rlvr_vocab.rewards.reward import assistant_text, assistant_turns
from rlvr_vocab.text import pluralize
from rlvr_vocab.training.models.lora import has_dropout
from rlvr_vocab.training.settings import KLOver
from rlvr_vocab.training.sharding import is_sharded, shard_like_policy
from rlvr_vocab.vocab.copied_rows import attach_low_rank_rows
from rlvr_vocab.vocab.head import attach_region_head
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import ANSWERING, THINKING, regions_after, scored_regions

# Shapes: B completions, of all processes where rewards are meant, group after group; R reward functions;
# G completions of a group; T positions of prompt and completion, C of the completion.


class BatchMetrics:
    """Logs the groups, regions and entropies of a `RegionGRPOTrainer`'s batches, over all processes."""

    def __init__(self, trainer: Any) -> None:
        self._trainer, self._means = trainer, StepMeans(trainer)

    def log_batch(
        self, batch: dict[str, Any], rewards_BR: torch.Tensor, entropies: Sequence[Sequence[Sequence[float]]] | None
    ) -> None:
        """Log the regions of a batch of completions, its groups where it is trained on, and the sampler's entropies.

        `entropies` are over texts, and over copies of the text, of each token of this process's completions.
        """
        trainer = self._trainer
        if trainer.model.training:
            self._log_groups(rewards_BR)
        ids, _ = whole_sequences(batch)
        sums = region_sums(ids, batch["completion_mask"], batch["sampled_mask"], trainer.policy)
        for name, (total, count) in reduced(sums, trainer.accelerator).items():
            if count:
                trainer.present_metrics[name].append(total / count)
        if "kept_texts" in batch:
            counts_BC = padded([counts.tolist() for counts, _ in batch["kept_texts"]], batch["completion_mask"])
            self._means.log({"sampling/kept_texts": masked_sum(counts_BC, batch["sampled_mask"].bool())})
        if entropies is not None:
            of_texts_BC, of_copies_BC = (padded(rows, batch["completion_mask"]) for rows in entropies)
            self.log_entropies(of_texts_BC, of_copies_BC, ids, batch["sampled_mask"], prefix="sampling/")

    def _log_groups(self, rewards_BR: torch.Tensor) -> None:
        trainer, metrics = self._trainer, self._trainer.train_metrics
        prompts, completions = (
            list(trainer.logged_completions[name])[-len(rewards_BR) :] for name in ("prompt", "completion")
        )
        texts = [assistant_text(completion) for completion in completions]
        spread = reward_spread(rewards_BR, trainer.reward_weights, trainer.num_generations)
        if spread is not None:
            metrics["groups/reward_std"].append(spread)
        metrics["completions/duplicates"].append(duplicates(texts, trainer.num_generations))
        metrics["completions/shared"].append(shared(texts, [str(prompt) for prompt in prompts]))
        if trainer.tools:
            last_turns = (assistant_turns(completion)[-1:] for completion in completions)
            unanswered = sum(turn.ended_in_call for turns in last_turns for turn in turns)
            metrics["tools/ended_in_call"].append(unanswered / len(completions))
        for name, missing in zip(trainer.reward_func_names, rewards_BR.isnan().double().mean(0), strict=True):
            metrics[f"rewards/{name}/unscored"].append(missing.item())

    def log_entropies(
        self,
        text_BC: torch.Tensor,
        copies_BC: torch.Tensor,
        ids_BT: torch.Tensor,
        mask_BC: torch.Tensor,
        capacity_BC: torch.Tensor | None = None,
        prefix: str = "",
    ) -> None:
        """Log entropies over texts, by region, over the copies of a text, and the copies' distance from chance in bits.

        `text_BC` is in nats, at the last C positions of the ids. `capacity_BC` is the largest value of `copies_BC`;
        without it no distance from chance is logged.
        """
        layout, length = self._trainer.policy.layout, text_BC.size(1)
        regions_BC, mask_BC = scored_regions(ids_BT, layout)[:, -length:], mask_BC.bool()
        thinking_BC, answering_BC = (mask_BC & (regions_BC == region) for region in (THINKING, ANSWERING))
        of_thinking, of_answering = (masked_sum(text_BC, each) for each in (thinking_BC, answering_BC))
        sums = {
            "entropy/text": of_answering + of_thinking,
            "entropy/thinking": of_thinking,
            "entropy/answering": of_answering,
        }
        if layout.size:
            sums["entropy/copies"] = masked_sum(copies_BC, thinking_BC)
            if capacity_BC is not None:
                sums |= hidden_channel_sums(copies_BC, capacity_BC, thinking_BC)
        self._means.log({f"{prefix}{name}": each for name, each in sums.items()})

    def drop_all_scored(self) -> None:
        """Remove the `unscored` of each function that scored every row since the last log."""
        metrics = self._trainer.train_metrics
        for name in [name for name, values in metrics.items() if name.endswith("/unscored") and not any(values)]:
            del metrics[name]


def whole_sequences(batch: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask `(B, T)` of prompts and completions."""
    ids, mask = (torch.cat([batch[f"prompt_{name}"], batch[f"completion_{name}"]], dim=1) for name in ("ids", "mask"))
    return ids, mask


def add_sampled_mask(batch: dict[str, torch.Tensor]) -> None:
    """Add `sampled_mask` `(B, C)`: 1 for the tokens that the model sampled, 0 for those that were given, and padding.

    The log-probabilities of given tokens become 0: a region may forbid what a tool says.
    """
    batch["sampled_mask"] = batch["completion_mask"] * batch.get("tool_mask", 1)
    if "tool_mask" in batch:
        for name in {"old_per_token_logps", _REFERENCE, _REFERENCE_COPIES} & batch.keys():
            batch[name].masked_fill_(batch["sampled_mask"] == 0, 0.0)


def padded(rows: Sequence[Sequence[float]], like_BC: torch.Tensor) -> torch.Tensor:
    """The rows with zeros behind, in the shape of a tensor."""
    width = like_BC.size(1)
    return torch.tensor([[*row, *[0.0] * (width - len(row))] for row in rows], device=like_BC.device)


def masked_sum(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """`(2,)` float64: the sum of the values under a mask of bool, and their number."""
    return torch.stack([values[mask].double().sum(), mask.sum().double()])


def reduced(sums: Mapping[str, torch.Tensor], accelerator: Any) -> dict[str, list[float]]:
    """The sums of all processes, in one exchange."""
    totals = accelerator.reduce(torch.stack([*sums.values()]), reduction="sum").tolist()
    return dict(zip(sums, totals, strict=True))


class StepMeans:
    """Logs means over the tokens of a step, of all processes and batches, however it is divided into batches."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._sums: dict[tuple[bool, str], tuple[int, float, float]] = {}

    def log(self, sums: Mapping[str, torch.Tensor]) -> None:
        """Count a batch in the logged values of its step; `sums` are those of `masked_sum`, by metric."""
        trainer, metrics = self._trainer, self._trainer.present_metrics
        step = trainer.state.global_step
        for name, (total, tokens) in reduced(sums, trainer.accelerator).items():
            key = trainer.model.training, name
            counted_step, counted_total, counted_tokens = self._sums.get(key, (step, 0.0, 0.0))
            goes_on = counted_step == step and bool(metrics.get(name)) and counted_tokens > 0
            if goes_on:
                total, tokens = total + counted_total, tokens + counted_tokens
            self._sums[key] = step, total, tokens
            if tokens:
                metrics[name][-1 if goes_on else len(metrics[name]) :] = [total / tokens]


def hidden_channel_sums(
    copies_BC: torch.Tensor, capacity_BC: torch.Tensor, thinking_BC: torch.Tensor
) -> dict[str, torch.Tensor]:
    """The sum of each meter in bits, and its number of thinking tokens or of completions that think."""
    capacity, entropy = (each[thinking_BC].double().sum() / math.log(2) for each in (capacity_BC, copies_BC))
    tokens, completions = (each.sum().double() for each in (thinking_BC, thinking_BC.any(1)))
    return {
        "hidden/capacity": torch.stack([capacity, tokens]),
        "hidden/bound": torch.stack([capacity - entropy, tokens]),
        "hidden/bound_per_thought": torch.stack([capacity - entropy, completions]),
    }


def region_sums(
    ids_BT: torch.Tensor, whole_BC: torch.Tensor, sampled_BC: torch.Tensor, policy: RegionPolicy
) -> dict[str, torch.Tensor]:
    """By metric, `(2,)` float64: a count over a batch, and the number of completions or tokens that divides it.

    A closing tag counts as thinking, an opening one as answering.
    """
    length, mask_BC = sampled_BC.size(1), sampled_BC.bool()
    thinking_BC = (scored_regions(ids_BT, policy.layout)[:, -length:] == THINKING) & mask_BC
    last = ids_BT.size(1) - length - 1 + whole_BC.bool().sum(1)
    ends_answering = regions_after(ids_BT, policy.layout).gather(1, last.unsqueeze(1)).squeeze(1) == ANSWERING
    completions, thinking = torch.tensor(len(ids_BT), device=ids_BT.device), thinking_BC.sum()
    counts = {
        "thinking/mean_length": (thinking, completions),
        "answering/mean_length": ((mask_BC & ~thinking_BC).sum(), completions),
        "thinking/closed": ((thinking_BC.any(1) & ends_answering).sum(), completions),
    }
    if policy.layout.size:
        counts["thinking/reasoning_share"] = (policy.is_reasoning(ids_BT[:, -length:]) & mask_BC).sum(), thinking
    return {name: torch.stack(each).double() for name, each in counts.items()}


def require_scores(
    rewards_BR: torch.Tensor, names: Sequence[str], step: int, logged: Mapping[str, Sequence[Any]]
) -> None:
    """UserError where no completion of a batch has a finite reward, with the reasons that functions logged."""
    if not torch.isfinite(rewards_BR).any():
        without = "gave only None, NaN or infinite ones"
        reasons = (next(filter(None, logged.get(f"{REASON}{name}", ())), without) for name in names)
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
    return None if math.isnan(spread) else spread


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


# Completions of a batch that are scored once more where the loss's forward pass has dropout.
_SCORED_WITHOUT_DROPOUT = 4


class SamplingGap:
    """Logs `sampling/logp_gap` where completions are trained on before the first update since they were drawn.

    `loss_logps` are the log-probabilities of the loss's own forward pass; the trainer sets them.
    """

    loss_logps: torch.Tensor | None = None
    # A checkpoint is written after an update: completions that a resume finds unfinished were drawn before it.
    _drawn_at: int | None = None

    def __init__(self, trainer: Any) -> None:
        self._trainer, self._means = trainer, StepMeans(trainer)

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
            sampled, mask = (inputs[name][: len(scored)] for name in ("sampling_per_token_logps", "sampled_mask"))
            distances = (sampled.double() - scored.double()).abs()
            self._means.log({"sampling/logp_gap": masked_sum(distances, mask.bool() & ~sampled.isnan())})
        self.loss_logps = None

    @torch.no_grad()
    def _scores_without_dropout(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor | None:
        """Log-probabilities of at least the first completions; None where the loss computes them without dropout."""
        if "old_per_token_logps" in inputs:
            return inputs["old_per_token_logps"]
        if not has_dropout(model):
            return None
        few, trainer = [each[:_SCORED_WITHOUT_DROPOUT] for each in whole_sequences(inputs)], self._trainer
        with disable_gradient_checkpointing(trainer.model, trainer.args.gradient_checkpointing_kwargs):
            return trainer._get_per_token_logps_and_entropies(model, *few, inputs["completion_ids"].size(1))[0]


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
        of_ids, mask = inputs[_REFERENCE], inputs["sampled_mask"]
        of_texts = of_ids - inputs[_REFERENCE_COPIES] + copy_logps
        with torch.no_grad():
            weight = self._importance(inputs, logps, mask)
            kls = (weight * k3(each - logps) for each in (of_texts, of_ids))
            self._sums = torch.stack([*((kl * mask).sum() for kl in kls), mask.sum().float()])
        if self._over == "text":
            inputs[_REFERENCE] = of_texts

    def bias_correction(self, inputs: dict[str, Any], logps: torch.Tensor) -> torch.Tensor | float:
        """The term of `use_bias_correction_kl` in losses of tokens, which TRL's loss with the ratio 1 leaves out."""
        if not self._trainer.beta or not self._trainer.args.use_bias_correction_kl:
            return 0.0
        weight = self._importance(inputs, logps, inputs["sampled_mask"]) - 1
        return self._trainer.beta * weight * k3(inputs[_REFERENCE] - logps)

    def _importance(self, inputs: dict[str, Any], logps: torch.Tensor, mask: torch.Tensor) -> torch.Tensor | float:
        """TRL's weight of each token's KL."""
        if not self._trainer.args.use_bias_correction_kl:
            return 1.0
        old = inputs.get("old_per_token_logps")
        log_ratio = logps - (logps.detach() if old is None else old)
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

    `every` is 0 for never. None is every 50, and never where the policy is sharded: each process would read a whole
    model into main memory.
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
            self._log(batch)

    @torch.no_grad()
    def _log(self, batch: dict[str, torch.Tensor]) -> None:
        """Means over tokens: `kl` over texts and, where one text has several ids, `kl/ids`."""
        trainer = self._trainer
        lengths = batch["completion_ids"].size(1), trainer.args.per_device_train_batch_size
        arguments = (*whole_sequences(batch), *lengths)
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
        mask = batch["sampled_mask"].double()
        kls = {name: k3(each.masked_fill(mask == 0, 0.0)) for name, each in log_ratios.items()}
        sums = {name: torch.stack([(each * mask).sum(), mask.sum()]) for name, each in kls.items()}
        for name, (total, tokens) in reduced(sums, trainer.accelerator).items():
            trainer.train_metrics[name].append(total / max(tokens, 1))

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
