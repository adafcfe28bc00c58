"""TRL's GRPO trainer under the region policy: rollouts, policy, old and reference log-probs, entropy and KL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
import trl.trainer.grpo_trainer as trl_grpo
from accelerate.utils import DistributedType, gather_object
from peft import PeftModel
from transformers import PreTrainedModel, PrinterCallback
from trl import GRPOConfig, GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import create_model_from_path

from rlvr_vocab.rewards.adaptive import AdaptiveWeight
from rlvr_vocab.rewards.guard import REASON
from rlvr_vocab.rewards.turns import turn_text
from rlvr_vocab.training.completions import CompletionRows, write_completions
from rlvr_vocab.training.lora import Lora, complete_adapter, without_dropout
from rlvr_vocab.training.metrics import region_counts, region_entropies, region_metrics
from rlvr_vocab.training.observed import ObservedGRPOTrainer
from rlvr_vocab.training.resumable import OnFullDisk
from rlvr_vocab.training.reward_weights import require_scores
from rlvr_vocab.training.sharding import keep_float32, require_sharding, spread, without_tied_copies
from rlvr_vocab.training.stage import RunPlace
from rlvr_vocab.training.vllm_rollouts import VLLMCanary
from rlvr_vocab.training.wandb_steps import count_steps_of_the_run
from rlvr_vocab.training.weight_checks import MovementCheck
from rlvr_vocab.vocab.chat import assistant_turn
from rlvr_vocab.vocab.head import attach_region_head
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.on_policy import check_on_policy, refuse_altered
from rlvr_vocab.vocab.peft.adapter_base import record_base
from rlvr_vocab.vocab.peft.trained_rows import TrainedRows
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import ANSWERING, THINKING, scored_regions
from rlvr_vocab.vocab.sampling import attach_region_sampler
from rlvr_vocab.vocab.tokenizer import load_tokenizer

# Elements of a tied embedding from which a second gradient of its size (64 MiB) is worth sparing.
_SMALLEST_SPARED_TABLE = 2**24

# Figures of the model that a trainer holds, by name.
Measure = Callable[["RegionGRPOTrainer"], Mapping[str, float | None]]


@contextmanager
def region_head_in_trl(policy: RegionPolicy) -> Iterator[None]:
    """While a `GRPOTrainer` is constructed it gives policy and reference a fused head: ours, in its place."""
    original = trl_grpo.add_fused_lm_head
    trl_grpo.add_fused_lm_head = partial(attach_region_head, policy=policy)
    try:
        yield
    finally:
        trl_grpo.add_fused_lm_head = original


class RegionGRPOTrainer(ObservedGRPOTrainer):
    """GRPO on an expanded checkpoint.

    Policy, reference and tokenizer are read from one folder, so that the reference is the model before training
    and nothing has to expand again. Reward functions receive the whole assistant turn, with what the chat template
    prefilled of it.

    Attributes:
        policy: the region policy of the folder, in force in every forward and every sample.
        sampler: what generates, and records the log-probability of each sampled token.
    """

    log_completions: bool

    def __init__(
        self,
        initial_model: str | Path,
        args: GRPOConfig,
        *,
        kl_log_steps: int = 0,
        adaptive_weights: Mapping[str, AdaptiveWeight] | None = None,
        place: RunPlace | None = None,
        lora: Lora | None = None,
        model: PeftModel | None = None,
        on_full_disk: OnFullDisk = "stop",
        measure: Measure | None = None,
        **kwargs: Any,
    ) -> None:
        """
        Args:
            initial_model: folder written by `rlvr_vocab.vocab.expand`.
            kl_log_steps: log `kl` to the initial model every so many steps when `beta` is 0; 0 = never.
            adaptive_weights: weights that follow success, by the name of their reward function.
            place: where in a run of several stages this trainer stands; by default it is the whole run.
            lora: train an adapter, and rows of the vocabulary beside it, in place of the model's own weights.
            model: the initial model with its adapter on, where something else has loaded it.
            on_full_disk: end the training where a checkpoint has no room, or go on without it.
            measure: what the held-out problems say of the model, by name, where `eval_strategy` asks for it.
            kwargs: passed on to `GRPOTrainer` (`reward_funcs`, `train_dataset`, `callbacks`, …).
        """
        self.initial_model = Path(initial_model)
        self.policy = RegionPolicy(VocabLayout.load(initial_model))
        self.kl_log_steps = kl_log_steps
        self._measure = measure
        self._sampled_entropies: list[list[float]] | None = None
        check_on_policy(vars(args), reasoning=self.policy.layout.size > 0)
        with region_head_in_trl(self.policy):
            super().__init__(
                model=str(initial_model) if model is None else model,
                args=args,
                processing_class=load_tokenizer(initial_model),
                peft_config=None if lora is None or model is not None else lora.config(),
                place=place or RunPlace(Path(args.output_dir)),
                adaptive_weights=adaptive_weights or {},
                on_full_disk=on_full_disk,
                **kwargs,
            )
        set_there = vars(self.model.generation_config)
        refuse_altered(
            {name: value for name, value in set_there.items() if value is not None and name != "do_sample"},
            f"{initial_model}/generation_config.json: ",
        )
        if lora is not None:
            complete_adapter(self.model, lora, self.policy.layout)
        self.remove_callback(PrinterCallback)
        self.add_callback(MovementCheck())
        count_steps_of_the_run(self, self.place)
        self._spare_the_embedding_gradient()
        self.sampler = attach_region_sampler(self.accelerator.unwrap_model(self.model), self.policy)
        if self.use_vllm and self.policy.layout.size:
            self.add_callback(VLLMCanary(self))

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        require_sharding(self.accelerator.state)
        keep_float32(self.accelerator.state)

    def _spare_the_embedding_gradient(self) -> None:
        """With tied weights, add the input side's gradient to the head's row by row.

        The dense gradient of an embedding is another tensor of the table's size, nearly all zeros; a sparse one is
        added to the head's dense gradient where it lies. Only in one process: DDP wants to know beforehand which
        gradients are sparse, and sharded tables have their own way.
        """
        embedding, head = self.model.get_input_embeddings(), self.model.get_output_embeddings()
        tied = embedding.weight is head.weight
        table = embedding.parameter if isinstance(embedding, TrainedRows) else embedding.weight
        large = table.requires_grad and table.numel() >= _SMALLEST_SPARED_TABLE
        if tied and large and self.accelerator.distributed_type == DistributedType.NO:
            embedding.sparse = True

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> tuple[list[list[int]], list[list[float]] | None]:
        # The same autocast as in scoring: float32 weights would otherwise sample from a slightly other policy.
        with (
            self.phases.during("sampling"),
            self.accelerator.autocast(),
            self.sampler.recording(),
            without_dropout(self.model),
        ):
            completion_ids, logps = super()._generate_single_turn(*args, **kwargs)
        self._sampled_entropies = None  # of a server, which tells none
        if logps is None and self.sampler.last_logps is not None and self.sampler.last_entropies is not None:
            logps, self._sampled_entropies = (
                [row[: len(ids)] for row, ids in zip(figures.tolist(), completion_ids, strict=True)]
                for figures in (self.sampler.last_logps, self.sampler.last_entropies)
            )
        return completion_ids, logps

    def _generate(self, prompts: list[Any]) -> tuple[Any, ...]:
        prompt_ids, completion_ids, tool_mask, completions, *rest = super()._generate(prompts)
        for row, (before, sampled) in enumerate(zip(prompt_ids, completion_ids, strict=True)):
            turn = assistant_turn(self._tokenizer, self.policy.layout, before, sampled)
            if isinstance(completions[row], str):  # as its prompt is
                completions[row] = turn
            else:
                completions[row][0]["content"] = turn
        return prompt_ids, completion_ids, tool_mask, completions, *rest

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        rewards_BR = super()._calculate_rewards(*args, **kwargs)
        said = {name: self._pending_extra_logs.get(f"{REASON}{name}", ()) for name in self.reward_func_names}
        require_scores(rewards_BR, self.reward_func_names, self.place.step(self.state.global_step), said)
        return rewards_BR

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        batch = super()._generate_and_score_completions(inputs)
        mode = "train" if self.model.training else "eval"
        counts = region_counts(batch["prompt_ids"], batch["completion_ids"], batch["completion_mask"], self.policy)
        for name, value in region_metrics(self.accelerator.reduce(counts, reduction="sum")).items():
            self._metrics[mode][name].append(value)
        if mode == "train":
            if self._kl_is_due():
                self._metrics[mode]["kl"].append(self._kl_to_initial_model(batch))
            self._rollouts = self._gather_rollouts(inputs, batch)
            self._move_weights()
        return batch

    def _move_weights(self) -> None:
        """Log the weights that this batch was scored with, and set those of the next."""
        for name, value in self.weights.values().items():
            self._metrics["train"][f"rewards/{name}/weight"].append(value)
        self.weights.observe(self._rewards_BR, self.reward_func_names)
        for name, value in self.weights.values().items():
            self.reward_weights[self.reward_func_names.index(name)] = value

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        # The loss alone sees dropout; what it is compared with (old and reference log-probs) is the whole policy.
        with nullcontext() if torch.is_grad_enabled() else self._scoring(model):
            logps, entropies, aux_loss = super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, *args, **kwargs
            )
        if entropies is not None:
            self._log_region_entropies(entropies.detach(), input_ids, attention_mask)
        return logps, entropies, aux_loss

    @contextmanager
    def _scoring(self, model: Any) -> Iterator[None]:
        with self.phases.during("scoring"), without_dropout(model):
            yield

    def _log_region_entropies(
        self, entropies: torch.Tensor, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> None:
        kept = entropies.size(1)
        regions = scored_regions(input_ids, self.policy.layout)[:, -kept:]
        sums = self.accelerator.reduce(region_entropies(entropies, regions, attention_mask[:, -kept:]), reduction="sum")
        mode = "train" if self.model.training else "eval"
        for region, name in ((ANSWERING, "entropy/answering"), (THINKING, "entropy/thinking")):
            self._means[mode].log(name, sums[region], self.state.global_step, self._metrics[mode])

    def _kl_is_due(self) -> bool:
        """Whether this generation is the first at or after a multiple of `kl_log_steps`."""
        if not self.kl_log_steps or self.beta != 0.0:
            return False
        batches = self.args.steps_per_generation * self.num_iterations
        steps_between_generations = max(1, batches // self.args.gradient_accumulation_steps)
        return self.state.global_step % self.kl_log_steps < steps_between_generations

    @torch.no_grad()
    def _kl_to_initial_model(self, batch: dict[str, torch.Tensor]) -> float:
        """Mean over tokens of the k3 estimate that TRL uses for `beta > 0`, with a reference loaded for the moment."""
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        attention_mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        arguments = (
            ids,
            attention_mask,
            batch["completion_ids"].size(1),
            self.args.per_device_train_batch_size,
        )
        with (
            torch.random.fork_rng(),
            disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs),
        ):
            logps, *_ = self._get_per_token_logps_and_entropies(self.model, *arguments)
            with self._reference() as reference:
                reference_logps, *_ = self._get_per_token_logps_and_entropies(reference, *arguments)
        log_ratio = reference_logps - logps
        mask = batch["completion_mask"]
        kl = ((log_ratio.exp() - log_ratio - 1) * mask).double().sum()
        total, tokens = self.accelerator.reduce(torch.stack([kl, mask.double().sum()]), reduction="sum").tolist()
        return total / max(tokens, 1)

    @contextmanager
    def _reference(self) -> Iterator[PreTrainedModel]:
        """The initial model: the one that trains with its adapter switched off, or read from disk for the moment."""
        if isinstance(self.model, PeftModel):
            with self.model.disable_adapter():
                yield self.model
        else:
            with self.phases.during("loading the reference"):
                reference = spread(self._load_reference(), self.accelerator)
            yield reference

    def _load_reference(self) -> PreTrainedModel:
        reference = create_model_from_path(
            str(self.initial_model),
            dtype=self.model.dtype,
            attn_implementation=self.model.config._attn_implementation,
            device_map=None,
            use_safetensors=True,
        )
        attach_region_head(reference, policy=self.policy, temperature=self.temperature)
        return reference.eval()

    def _gather_rollouts(self, inputs: list[dict[str, Any]], batch: dict[str, Any]) -> CompletionRows:
        masks = batch["completion_mask"].bool()
        local_rows = {
            "prompt_ids": [
                row[mask.bool()].tolist() for row, mask in zip(batch["prompt_ids"], batch["prompt_mask"], strict=True)
            ],
            "completion_ids": [row[mask].tolist() for row, mask in zip(batch["completion_ids"], masks, strict=True)],
            "solution": [str(row.get("solution", "")) for row in inputs],
        }
        if "sampling_per_token_logps" in batch:
            logps = batch["sampling_per_token_logps"]
            local_rows["sampling_logps"] = [row[mask].tolist() for row, mask in zip(logps, masks, strict=True)]
        if self._sampled_entropies is not None:
            lengths = masks.sum(1).tolist()
            local_rows["sampling_entropies"] = [
                row[:length] for row, length in zip(self._sampled_entropies, lengths, strict=True)
            ]
        columns = {name: gather_object(values) for name, values in local_rows.items()}
        num_rows = len(columns["solution"])
        rewards = {name: list(values)[-num_rows:] for name, values in self._logs["rewards"].items()}
        said = {name: self._logs["extra"].get(f"{REASON}{name}", ()) for name in self.reward_func_names}
        return CompletionRows(
            **columns,
            completion=[turn_text(turn) for turn in list(self._logs["completion"])[-num_rows:]],
            advantage=list(self._logs["advantages"])[-num_rows:],
            rewards=rewards,
            reasons={name: list(reasons)[-num_rows:] for name, reasons in said.items() if any(reasons)},
            weights=dict(zip(self.reward_func_names, self.reward_weights.tolist(), strict=True)),
        )

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        training = self.model.training
        at_the_end = "train_runtime" in logs  # of the training, or of the part before it is interrupted: no step
        tables = self.log_completions
        self.log_completions = tables and not at_the_end
        super().log(logs, start_time)
        self.log_completions = tables
        if training and not at_the_end and self._rollouts is not None and self.accelerator.is_main_process:
            step, folder = self.place.step(self.state.global_step), self.place.run_folder / "completions"
            write_completions(self._rollouts, step, self._tokenizer, folder)
            self._rollouts = None

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Log what `measure` finds in a row of its own; TRL's own evaluation where there is none."""
        if self._measure is None:
            return super().evaluate(*args, **kwargs)
        # The autocast of training: flash attention computes in 16 bits alone.
        with self.phases.during("evaluating"), self.accelerator.autocast():
            figures: dict[str, Any] = {f"eval_{name}": value for name, value in self._measure(self).items()}
        # Past TRL's, which would take the figures of the step that is being trained for those of an evaluation.
        super(GRPOTrainer, self).log(figures)
        self.callback_handler.on_evaluate(self.args, self.state, self.control, figures)
        return figures

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        super()._save(output_dir, without_tied_copies(self.model, state_dict))
        if self.args.should_save:
            self.policy.layout.save(output_dir or self.args.output_dir)
            record_base(output_dir or self.args.output_dir, self.initial_model)
