"""TRL's GRPO trainer under the region policy: rollouts, policy, old and reference log-probs, entropy and KL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PrinterCallback
from transformers.trainer import TRAINING_ARGS_NAME
from trl import GRPOTrainer

from rlvr_vocab.rewards.adaptive import AdaptiveWeight
from rlvr_vocab.training.arguments import (
    GRPOConfig,
    as_the_machine_computes,
    checked_arguments,
    drop_long_prompts,
)
from rlvr_vocab.training.checkpointing.find import checkpoint_for_all
from rlvr_vocab.training.checkpointing.save_and_resume import (
    OnFullDisk,
    TrainerCheckpoints,
    keeping_configured_settings,
)
from rlvr_vocab.training.dynamic_sampling import ChosenBatch, DynamicSampling
from rlvr_vocab.training.embedding_gradient import accumulate_tied_gradient
from rlvr_vocab.training.metrics.batch import BatchMetrics
from rlvr_vocab.training.metrics.completions import (
    CompletionRows,
    SampledEntropies,
    gather_rollouts,
    write_completions,
)
from rlvr_vocab.training.metrics.peak_memory import peak_memory
from rlvr_vocab.training.metrics.reference_kl import ReferenceKL
from rlvr_vocab.training.metrics.sampling_gap import SamplingGap
from rlvr_vocab.training.metrics.step_clock import StepClock
from rlvr_vocab.training.metrics.wandb_steps import log_run_steps_to_wandb
from rlvr_vocab.training.models.initial import initial_folder
from rlvr_vocab.training.models.lora import as_lora, complete_adapter, lora_config, without_dropout
from rlvr_vocab.training.region_head import region_head_in_trl
from rlvr_vocab.training.reward_weights import AdaptiveWeights, require_scores
from rlvr_vocab.training.settings import CurriculumSettings, KLOver, Lora
from rlvr_vocab.training.sharding import is_sharded, keep_float32, require_sharding, without_tied_copies
from rlvr_vocab.training.stage import StageContext
from rlvr_vocab.training.text_kl import TextKL, scores_of
from rlvr_vocab.training.vllm_check import VLLMCheck, set_vllm_context
from rlvr_vocab.training.weight_checks import UpdateCheck, UpdatedShare
from rlvr_vocab.vocab.chat import assistant_turn
from rlvr_vocab.vocab.expand import Expansion
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.peft.adapter_base import record_base
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.reasoning_rows import held_rows
from rlvr_vocab.vocab.refuse_off_policy import refuse_altered_config
from rlvr_vocab.vocab.sampling import attach_region_sampler
from rlvr_vocab.vocab.tokenizer import load_tokenizer
from rlvr_vocab.vocab.weights import refuse_not_finite

# Figures of the model that a trainer holds, by name.
EvalFn = Callable[["RegionGRPOTrainer"], Mapping[str, float | None]]


class RegionGRPOTrainer(GRPOTrainer):
    """GRPO under the region policy, with TRL's arguments.

    Policy, reference and tokenizer are read from one folder, the expanded model, so that the reference is the model
    before training. Reward functions receive the whole assistant turn, with what the chat template prefilled of it.

    Attributes:
        initial_model: that folder.
        policy: the region policy of the folder, by which log-probabilities are computed and `generate` samples; vLLM
            reads its own from the same folder.
        text_kl: the KL over texts, and the log-probabilities of ids given their texts.
        dynamic_sampling: chooses the problems of each batch, where the loader does not.
        sampled_entropies: of what the newest tokens were drawn from; None where the sampler tells none.
        sampler: what generates, and records the log-probability of each sampled token.
        stage_context: where in a run of several stages this trainer stands.
        checkpoints: saves and resumes.
        adaptive_weights: the reward weights that follow success.
        newest_rollouts: the completions of the last generation, of all processes, until a logged step has written them.
    """

    log_completions: bool
    _rewards_BR: torch.Tensor

    def __init__(
        self,
        model: str | Path | PreTrainedModel,
        reward_funcs: Any = None,
        args: GRPOConfig | None = None,
        train_dataset: Any = None,
        *,
        processing_class: PreTrainedTokenizerBase | None = None,
        peft_config: LoraConfig | Lora | None = None,
        reasoning_vocab_size: int | None = 0,
        expansion: Expansion | None = None,
        kl_log_steps: int | None = 0,
        kl_over: KLOver = "text",
        max_rounds: int = 1,
        curriculum: CurriculumSettings | None = None,
        solved_by: tuple[str, float] | None = None,
        adaptive_weights: Mapping[str, AdaptiveWeight] | None = None,
        stage_context: StageContext | None = None,
        on_full_disk: OnFullDisk = "stop",
        measure: EvalFn | None = None,
        **kwargs: Any,
    ) -> None:
        """
        Args:
            model: a folder written by `expand`; or a hub name, another folder or a loaded model, which is expanded
                into `initial_model` below `args.output_dir`.
            processing_class: the tokenizer of a model that is not expanded, for its chat template.
            peft_config: train an adapter, and rows of the vocabulary beside it, in place of the model's own weights.
            reasoning_vocab_size: reasoning tokens to add; 0 for a baseline, None for a copy of every token.
            expansion: the same with all that there is to choose.
            kl_log_steps: log `kl` to the initial model every so many steps when `beta` is 0; 0 = never; None:
                as the command line does by default.
            max_rounds: of drawing for a batch; above 1 further problems take the place of groups whose rewards do not
                differ, dynamic sampling.
            curriculum: which problems are drawn, by how those before were answered.
            solved_by: the name of the reward that tells the curriculum which answers are right, and from which score.
            kl_over: whether `beta` acts on the KL over texts or over ids, where one text has several.
            adaptive_weights: weights that follow success, by the name of their reward function.
            stage_context: where in a run of several stages this trainer stands; by default it is the whole run.
            on_full_disk: end the training where a checkpoint has no room, or go on without it.
            measure: what the held-out problems say of the model, by name, where `eval_strategy` asks for it.
            kwargs: passed on to `GRPOTrainer` (`eval_dataset`, `callbacks`, …).

        Raises:
            UserError: what is asked for does not go together, or would sample off the policy that is trained.
        """
        args = checked_arguments(args, copies=reasoning_vocab_size != 0 or expansion is not None, **kwargs)
        if expansion is None and reasoning_vocab_size != 0:
            expansion = Expansion(size=reasoning_vocab_size)
        self.initial_model = initial_folder(model, args.output_dir, expansion, processing_class)
        lora = as_lora(peft_config)
        args.model_init_kwargs = as_the_machine_computes(args, self.initial_model)
        tokenizer = load_tokenizer(self.initial_model)
        self.policy = RegionPolicy(VocabLayout.load(self.initial_model))
        self.stage_context = stage_context or StageContext(Path(args.output_dir))
        self.checkpoints = TrainerCheckpoints(self, on_full_disk)
        self.adaptive_weights = AdaptiveWeights(adaptive_weights or {})
        self.newest_rollouts: CompletionRows | None = None
        self._clock = StepClock(self)
        self._batch_metrics = BatchMetrics(self)
        self._sampling_gap = SamplingGap(self)
        self._reference_kl = ReferenceKL(self, kl_log_steps)
        self.dynamic_sampling: DynamicSampling | None = None
        self.text_kl = TextKL(self, kl_over)
        self._measure = measure
        self.sampled_entropies: SampledEntropies | None = None
        self._chosen: ChosenBatch | None = None
        checked_arguments(args, copies=self.policy.layout.size > 0)
        train_dataset = drop_long_prompts(train_dataset, tokenizer, getattr(args, "max_prompt_length", None))
        set_vllm_context(args, self.policy.layout, tokenizer, train_dataset, kwargs.get("eval_dataset"))
        with region_head_in_trl(self.policy, self.initial_model):
            super().__init__(
                model=str(self.initial_model),
                reward_funcs=reward_funcs,
                args=args,
                train_dataset=train_dataset,
                processing_class=tokenizer,
                peft_config=None if lora is None else lora_config(lora),
                **kwargs,
            )
        refuse_altered_config(self.model.generation_config, self.initial_model)
        refuse_not_finite(self.model, self.initial_model)
        if lora is not None:
            complete_adapter(self.model, lora, self.policy.layout)
        accumulate_tied_gradient(self.model, self.accelerator)
        self.dynamic_sampling = DynamicSampling.of(self, max_rounds, curriculum or CurriculumSettings(), solved_by)
        self.sampler = attach_region_sampler(self.accelerator.unwrap_model(self.model), self.policy)
        self._add_callbacks()
        log_run_steps_to_wandb(self, self.stage_context)
        if self.use_vllm and self.policy.layout.size:
            self._send_whole_tables()
            self.add_callback(VLLMCheck(self))

    def _add_callbacks(self) -> None:
        self.remove_callback(PrinterCallback)
        for callback in (UpdatedShare(self._metrics["train"]), UpdateCheck(), self._clock):
            self.add_callback(callback)

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        require_sharding(self.accelerator.state)
        keep_float32(self.accelerator.state)

    def _send_whole_tables(self) -> None:
        """Have vLLM, which knows a row for each id, get such tables at each synchronisation."""
        held, own = held_rows(self.model), self.vllm_generation._iter_named_params
        if held is not None:
            self.vllm_generation._iter_named_params = lambda: held.stock_parameters(own())

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any) -> Any:
        """Train; from a checkpoint on, exactly as the run that wrote it would have gone on; True: from the newest."""
        checkpoint = checkpoint_for_all(self.checkpoints.output_dir, resume_from_checkpoint)
        with self.checkpoints.resuming(checkpoint):
            return super().train(None if checkpoint is None else str(checkpoint), **kwargs)

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        return self.checkpoints.skip_finished_epochs(super()._get_train_sampler(dataset))

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        loss: torch.Tensor = super().training_step(*args, **kwargs)
        self._clock.enter("time/optimizer" if self.accelerator.sync_gradients else "time/other")
        return loss

    def _generate(self, prompts: list[Any]) -> tuple[Any, ...]:
        with self._clock.phase("time/generation"):
            prompt_ids, completion_ids, tool_mask, completions, *rest = super()._generate(prompts)
        turns = map(partial(assistant_turn, self._tokenizer, self.policy.layout), prompt_ids, completion_ids)
        completions = [
            turn if isinstance(each, str) else [{**each[0], "content": turn}, *each[1:]]
            for each, turn in zip(completions, turns, strict=True)
        ]
        return prompt_ids, completion_ids, tool_mask, completions, *rest

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> tuple[list[list[int]], list[list[float]] | None]:
        if self._chosen is not None:
            self.sampled_entropies = self._chosen.entropies
            return self._chosen.completion_ids, self._chosen.logps
        # The same autocast as in scoring: float32 weights would otherwise sample from a slightly other policy.
        with self.accelerator.autocast(), self.sampler.recording(), without_dropout(self.model):
            completion_ids, logps = super()._generate_single_turn(*args, **kwargs)
        self._clock.wait_for_others()
        self._clock.count_sampled(completion_ids)
        self.sampled_entropies = None  # of a server, which tells none
        if logps is None and self.sampler.last_logps is not None and self.sampler.last_entropies is not None:
            logps, *entropies = (
                [row[: len(ids)] for row, ids in zip(figures.tolist(), completion_ids, strict=True)]
                for figures in (self.sampler.last_logps, *self.sampler.last_entropies)
            )
            self.sampled_entropies = SampledEntropies(*entropies)
        return completion_ids, logps

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        if self._chosen is not None:
            self._rewards_BR, self._sampled_BR = self._chosen.rewards_BR, self._chosen.sampled_BR
            self._pending_extra_logs.update(self._chosen.extra)
        else:
            with self._clock.phase("time/rewards"):
                self._rewards_BR = self._sampled_BR = super()._calculate_rewards(*args, **kwargs)
            if self.model.training and self.dynamic_sampling is not None:
                return self._rewards_BR  # of a round, which may be small
        step = self.stage_context.run_step(self.state.global_step)
        require_scores(self._sampled_BR, self.reward_func_names, step, self._pending_extra_logs)
        return self._rewards_BR

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        if self.model.training and self.dynamic_sampling is not None:
            self._chosen = self.dynamic_sampling.fill(len(inputs))
            inputs = [dict(rollout.row) for rollout in self._chosen.rollouts]
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        self._batch_metrics.log_batch(batch, self._rewards_BR, self.sampled_entropies)
        self.text_kl.keep_reference(batch)
        if self.model.training:
            self._sampling_gap.completions_drawn()
            self._reference_kl.log_if_due(batch)
            self.newest_rollouts = gather_rollouts(self, inputs, batch, self.sampled_entropies)
            for name, value in self.adaptive_weights.values().items():  # those that this batch was scored with
                self._metrics["train"][f"rewards/{name}/weight"].append(value)
            self.adaptive_weights.observe(self._sampled_BR, self.reward_func_names)
            self.apply_adaptive_weights()
            self._chosen = None
        return batch

    def apply_adaptive_weights(self) -> None:
        """Score the next batch with the weights as they are now."""
        for name, value in self.adaptive_weights.values().items():
            self.reward_weights[self.reward_func_names.index(name)] = value

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        # The loss alone sees dropout; what it is compared with (old and reference log-probs) is the whole policy.
        in_the_loss = torch.is_grad_enabled()
        with (
            self._clock.phase("time/forward" if in_the_loss else "time/logprobs"),
            nullcontext() if in_the_loss else without_dropout(model),
            scores_of(model) as found,
        ):
            logps, entropies, aux_loss = super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, *args, **kwargs
            )
        copy_logps, copy_entropies, copy_capacities = (
            torch.cat([each[name][:, -logps.size(1) :] for each in found])
            for name in ("copy_log_probs", "copy_entropy", "copy_capacity")
        )
        self.text_kl.scored(logps, copy_logps)
        if in_the_loss:
            self._sampling_gap.loss_logps = logps.detach()
        if entropies is not None:
            self._batch_metrics.log_entropies(
                entropies.detach(), copy_entropies, copy_capacities, input_ids, attention_mask
            )
        return logps, entropies, aux_loss

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        with (
            self._clock.phase("time/forward"),
            self._sampling_gap.measured(model, inputs),
            self.text_kl.in_the_loss(inputs) as given,
        ):
            loss: torch.Tensor = super()._compute_loss(model, given)
        self._clock.count_trained(inputs["completion_mask"])
        self._clock.enter("time/backward")
        return loss

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Log what `measure` finds in a row of its own; TRL's own evaluation where there is none."""
        if self._measure is None:
            return super().evaluate(*args, **kwargs)
        with self.accelerator.autocast():  # that of training: flash attention computes in 16 bits alone
            figures: dict[str, Any] = {f"eval_{name}": value for name, value in self._measure(self).items()}
        # Past TRL's, which would take the figures of the step that is being trained for those of an evaluation.
        super(GRPOTrainer, self).log(figures)
        self.callback_handler.on_evaluate(self.args, self.state, self.control, figures)
        return figures

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        training = self.model.training
        at_the_end = "train_runtime" in logs  # of the training, or of the part before it is interrupted: no step
        self._batch_metrics.drop_all_scored()
        tables = self.log_completions
        self.log_completions = tables and not at_the_end
        super().log(logs, start_time)
        self.log_completions = tables
        if training and not at_the_end and self.newest_rollouts is not None and self.accelerator.is_main_process:
            step, folder = self.stage_context.run_step(self.state.global_step), self.stage_context.run_folder
            write_completions(self.newest_rollouts, step, self._tokenizer, folder / "completions")
            self.newest_rollouts = None

    def _get_output_dir(self, trial: Any) -> str:
        """Where checkpoints go: while one is written, the folder aside."""
        return str(self.checkpoints.staging or super()._get_output_dir(trial))

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        self.checkpoints.save(partial(super()._save_checkpoint, model, trial), push=super()._push_from_checkpoint)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Not while it is written; `_save_checkpoint` does it once it is valid."""

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        folder = Path(output_dir or self.args.output_dir)
        super()._save(output_dir, without_tied_copies(self.model, state_dict))
        # A pickle that nothing reads, with the user's token in it; config.yaml says the same.
        Path(folder, TRAINING_ARGS_NAME).unlink(missing_ok=True)
        if self.args.should_save:
            self.policy.layout.save(folder)
            record_base(folder, self.initial_model)

    def _reading(self, checkpoint: Any) -> AbstractContextManager[None]:
        in_parts = isinstance(self.model, PeftModel) or is_sharded(self.accelerator.state)
        return nullcontext() if in_parts or (held := held_rows(self.model)) is None else held.reading(checkpoint)

    @peak_memory.phase("loading")
    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        with self._reading(resume_from_checkpoint):
            super()._load_from_checkpoint(resume_from_checkpoint, model)
        refuse_not_finite(self.model, resume_from_checkpoint)

    def _load_best_model(self) -> None:
        with self._reading(self.state.best_model_checkpoint):
            super()._load_best_model()

    @peak_memory.phase("loading")
    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Their state from a checkpoint; rates and decay from the configuration, which may have been changed."""
        with keeping_configured_settings(self.optimizer, self.lr_scheduler):
            super()._load_optimizer_and_scheduler(checkpoint)
