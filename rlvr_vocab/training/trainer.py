"""TRL's GRPO trainer under the region policy: generate, score, reward, loss, log, save."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from peft import PeftConfig, PeftModel
from torch.utils.weak import WeakIdKeyDictionary
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PrinterCallback
from trl import GRPOTrainer

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.adaptive import AdaptiveWeight
from rlvr_vocab.tools.format import ToolFormat, without_prefill
from rlvr_vocab.tools.functions import check_tools, offered_tools
from rlvr_vocab.training.arguments import GRPOConfig, checked_arguments, drop_long_prompts
from rlvr_vocab.training.checkpoint_folders import checkpoint_for_all
from rlvr_vocab.training.checkpoints import OnFullDisk, TrainerCheckpoints
from rlvr_vocab.training.drawn_tokens import DrawnTokens, sampled_spans
from rlvr_vocab.training.dynamic_sampling import ChosenBatch, DynamicSampling, ProblemOrder, has_spread
from rlvr_vocab.training.metrics.batch import (
    BatchMetrics,
    ReferenceKL,
    SamplingGap,
    TextKL,
    add_sampled_mask,
    require_scores,
)
from rlvr_vocab.training.metrics.completions import Rollouts, gather_rollouts, write_completions
from rlvr_vocab.training.metrics.step_clock import StepClock
from rlvr_vocab.training.metrics.weights import UpdatedShare
from rlvr_vocab.training.models.load import (
    LOADED,
    accumulate_tied_gradient,
    as_the_machine_computes,
    check_trained_weights,
    disable_functional_dropout,
    initial_model_of,
    refuse_other_logits,
    remember,
    with_its_adapter,
)
from rlvr_vocab.training.models.lora import (
    adapter_config,
    complete_adapter,
    renew_reference,
    unrounded,
    without_dropout,
)
from rlvr_vocab.training.settings import CurriculumSettings, KLOver, Lora
from rlvr_vocab.training.sharding import keep_float32, require_sharding
from rlvr_vocab.training.stage import AtTrainBegin, StageContext, count_run_steps
from rlvr_vocab.training.trl_seams import (
    CLIPPED_RATIO,
    TRLSeams,
    region_head_in_trl,
    replaying,
    scores_of,
    take_token_losses,
)
from rlvr_vocab.training.vllm_rollouts import prepare_vllm, set_vllm_context
from rlvr_vocab.vocab.expand import Expansion
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.refuse_off_policy import refuse_altered_config
from rlvr_vocab.vocab.sampling import attach_region_sampler
from rlvr_vocab.vocab.tokenizer import assistant_turn, think_tags
from rlvr_vocab.vocab.truncation import PackedTexts
from rlvr_vocab.vocab.weights import refuse_not_finite

logger = logging.getLogger(__name__)

# Held-out metrics of the model that a trainer holds, by name.
EvalFn = Callable[["RegionGRPOTrainer"], Mapping[str, float | None]]


class RegionGRPOTrainer(TRLSeams):
    """GRPO under the region policy, with TRL's arguments; rewards get the whole assistant turn, prefilled text too.

    Attributes:
        sampled_entropies: of the newest tokens, over texts and over copies of the text; None with a vLLM server.
        kept_texts: those that truncated sampling kept, of the completions that are scored; None without.
        copy_logps: maps a tensor of id log-probabilities that `score` returned to log p(id | text) of the same tokens.
        newest_rollouts: the completions of the last generation, until a logged step has written them.
    """

    model: Any  # a union with None in Transformers, which a script would have to narrow at each use
    processing_class: Any
    num_generations: Any
    # (B, R) rewards of all processes: of the batch, and of all completions drawn for it.
    _rewards_BR: torch.Tensor
    _drawn_rewards_BR: torch.Tensor

    def __init__(
        self,
        model: str | Path | PreTrainedModel | PeftModel,
        reward_funcs: Any = None,
        args: GRPOConfig | None = None,
        train_dataset: Any = None,
        *,
        processing_class: PreTrainedTokenizerBase | None = None,
        peft_config: PeftConfig | Lora | None = None,
        reasoning_vocab_size: int | None = 0,
        expansion: Expansion | None = None,
        kl_log_steps: int | None = None,
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
        """A loaded `model` trains itself, in its dtype and on its device; its own sampling options are removed.

        What it is now is written to `initial_model` in `args.output_dir`; a folder written by `expand` is its own. With
        `beta`, the reference is the folder that the model was read from, or a copy of a given adapter as it is now.

        Args:
            reasoning_vocab_size: reasoning tokens to add, with think tags; None for a copy of every token.
            expansion: all options, in place of `reasoning_vocab_size`; adds think tags also at size 0.
            kl_log_steps: log `kl` so often when `beta` is 0; 0 = never; None = 50, never under FSDP or DeepSpeed.
            max_rounds: most sampling rounds for a batch; above 1, other problems replace groups of equal rewards.
            solved_by: the name of the reward that tells which answers are right, and from which score.
        """
        if "tokenizer" in kwargs:
            raise UserError("tokenizer=…: the trainer takes it as processing_class=…")
        tools = offered_tools(kwargs.get("tools"), kwargs.get("environment_factory"))
        check_tools(tools or ())
        with_tools = bool(kwargs.get("tools") or kwargs.get("environment_factory"))
        skip_solved = None if curriculum is None else curriculum.skip_solved
        if with_tools and (max_rounds > 1 or skip_solved is not None):
            raise UserError("tools: not together with dynamic sampling or skip_solved, which know no later turns")
        adds_copies = reasoning_vocab_size != 0 or expansion is not None  # else a folder may have some
        args = checked_arguments(args, model, copies=adds_copies or None, **kwargs)
        shares_vllm = args.vllm_mode == "server" or args.vllm_tensor_parallel_size > 1
        if with_tools and args.use_vllm and args.world_size > 1 and shares_vllm:
            alone = "vllm_mode=colocate, vllm_tensor_parallel_size=1"
            raise UserError(f"tools: TRL mixes up the turns of processes that share a vLLM: {alone}")
        if expansion is not None and reasoning_vocab_size != 0:
            raise UserError(f"reasoning_vocab_size={reasoning_vocab_size} beside expansion=…: give Expansion(size=…)")
        if expansion is None and reasoning_vocab_size != 0:
            expansion = Expansion(size=reasoning_vocab_size)
        self.model_name = str(model) if isinstance(model, str | Path) else model.config.name_or_path
        model = with_its_adapter(model, args)
        initial = initial_model_of(model, args, expansion, processing_class)
        self.initial_model, tokenizer = initial.folder, initial.tokenizer
        given = isinstance(model, LOADED)
        if not given:
            args.model_init_kwargs = as_the_machine_computes(args, self.initial_model)
        self.policy = RegionPolicy(initial.layout)
        self.stage_context = stage_context or StageContext(Path(args.output_dir))
        self.checkpoints = TrainerCheckpoints(self, on_full_disk)
        self.adaptive_weights = dict(adaptive_weights or {})
        self.newest_rollouts: Rollouts | None = None
        self.sampled_entropies: Sequence[Sequence[list[float]]] | None = None
        self.kept_texts: Sequence[PackedTexts] | None = None
        self.dynamic_sampling: DynamicSampling | None = None
        self.copy_logps = WeakIdKeyDictionary()
        self._text_kl = TextKL(self, kl_over)
        self._loss_inputs: dict[str, Any] | None = None
        self.drawn_tokens = DrawnTokens()
        self._clock = StepClock(self)
        self._batch_metrics = BatchMetrics(self)
        self._sampling_gap = SamplingGap(self)
        self._reference_kl = ReferenceKL(self, kl_log_steps)
        self._measure = measure
        self.kl_over, self.kl_log_steps = kl_over, kl_log_steps
        self._chosen: ChosenBatch | None = None
        checked_arguments(args, model, copies=self.policy.layout.size > 0)
        self._check_per_token_loss(args)
        limit, of_template = getattr(args, "max_prompt_length", None), args.chat_template_kwargs or {}
        shown = {"tools": tools, **of_template}
        train_dataset = drop_long_prompts(train_dataset, tokenizer, limit, **shown)
        set_vllm_context(args, self.policy.layout, tokenizer, train_dataset, kwargs.get("eval_dataset"), **shown)
        if isinstance(model, PeftModel):
            renew_reference(model, args.beta)
        self.tool_format = ToolFormat(tokenizer, self.policy.layout, of_template) if with_tools else None
        with (
            region_head_in_trl(self.policy),
            unrounded(model) if given else nullcontext(),
            without_prefill(tokenizer, self.policy.layout) if with_tools else nullcontext(),
        ):
            super().__init__(
                model=model if given else str(self.initial_model),
                reward_funcs=reward_funcs,
                args=args,
                train_dataset=train_dataset,
                processing_class=tokenizer,
                peft_config=None if peft_config is None else adapter_config(peft_config),
                **kwargs,
            )
        if self.tool_format is not None:
            self.chat_template = self.tool_format.chat_template
            self.drop_repeated_reward()
        refuse_altered_config(self.model.generation_config, self.initial_model)
        refuse_not_finite(self.model, self.initial_model)
        remember(self.model, initial)
        if isinstance(self.model, PeftModel):
            train_rows = peft_config.train_rows if isinstance(peft_config, Lora) else "reasoning"
            complete_adapter(self.model, train_rows, self.policy.layout, self.initial_model, given=peft_config is None)
        if given:
            check_trained_weights(self.model)
        if self.args.disable_dropout:
            disable_functional_dropout(self.model)
        refuse_other_logits(self)
        accumulate_tied_gradient(self.model, self.accelerator)
        if max_rounds > 1 or skip_solved is not None:
            order = ProblemOrder(len(self.train_dataset), self.args.seed, skip_solved)
            self.dynamic_sampling = DynamicSampling(self, max_rounds, order, solved_by)
        self.sampler = attach_region_sampler(self.accelerator.unwrap_model(self.model), self.policy)
        self.remove_callback(PrinterCallback)
        self.add_callback(UpdatedShare(self.train_metrics))
        self.add_callback(self._clock)
        self.add_callback(AtTrainBegin(self.checkpoints.restore))
        count_run_steps(self, self.stage_context)
        if self.use_vllm:
            prepare_vllm(self)

    # --- for subclasses to override ---

    def advantages(self, rewards_BR: torch.Tensor, advantages_B: torch.Tensor) -> torch.Tensor:
        """`(B,)` advantages of a training batch: B completions of all processes, in groups of `num_generations`.

        Args:
            rewards_BR: the rewards of each function (`reward_func_names`) before its weight; NaN for none.
            advantages_B: TRL's, by `reward_weights`, `scale_rewards` and `multi_objective_aggregation`; the default.
        """
        return advantages_B

    def keep_groups(self, rewards_NGR: torch.Tensor) -> torch.Tensor:
        """`(N,)` bool: which of N groups of G completions are trained on.

        Dynamic sampling replaces the others, by default those of equal rewards. An override counts without it too:
        the groups that stay in a batch though they are not kept have advantage 0.
        """
        weights, aggregation = self.reward_weights, self.multi_objective_aggregation
        return torch.tensor([has_spread(rewards_GR, weights, aggregation) for rewards_GR in rewards_NGR])

    def per_token_loss(
        self, logps_BC: torch.Tensor, old_logps_BC: torch.Tensor, batch: Mapping[str, torch.Tensor]
    ) -> torch.Tensor | None:
        """`(B, C)` losses of the completion tokens of a part of a batch; None, the default: TRL's clipped ratio.

        TRL masks them, divides them as `loss_type` says, and adds its terms of KL and entropy.

        Args:
            batch: `advantages` `(B,)`, `completion_ids` and `sampled_mask` `(B, C)`, `prompt_ids`, ….
        """
        return None

    def _overrides(self, method: str) -> bool:
        return getattr(type(self), method) is not getattr(RegionGRPOTrainer, method)

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        require_sharding(self.accelerator.state)
        keep_float32(self.accelerator.state)

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any) -> Any:
        """Train; a checkpoint (True: the newest) is resumed to the bit."""
        checkpoint = checkpoint_for_all(self.checkpoints.output_dir, resume_from_checkpoint)
        self.checkpoints.prepare_start(checkpoint)
        return super().train(None if checkpoint is None else str(checkpoint), **kwargs)

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        loss: torch.Tensor = super().training_step(*args, **kwargs)
        self._clock.enter("time/optimizer" if self.accelerator.sync_gradients else "time/other")
        return loss

    def generate_and_score(
        self, inputs: list[dict[str, Any]], trl_generate_and_score: Callable[..., dict[str, Any]]
    ) -> dict[str, Any]:
        """Completions of a batch of problems with rewards and advantages, as the loss takes them; logs the batch."""
        if self.model.training and self.dynamic_sampling is not None:
            self._chosen = self.dynamic_sampling.fill(len(inputs))
            inputs = [dict(rollout.row) for rollout in self._chosen.rollouts]
        batch = trl_generate_and_score(inputs)
        self._text_kl.keep_reference(batch)
        add_sampled_mask(batch)
        if self.kept_texts is not None:
            batch["kept_texts"] = self.kept_texts
        if self.model.training and (self._overrides("advantages") or self._overrides("keep_groups")):
            self._set_advantages(batch)
        self._batch_metrics.log_batch(batch, self._rewards_BR, self.sampled_entropies)
        if self.model.training:
            self._sampling_gap.completions_drawn()
            self._reference_kl.log_if_due(batch)
            self.newest_rollouts = gather_rollouts(self, inputs, batch)
            self._adapt_weights()
            self._chosen = None
        self.kept_texts = None
        return batch

    def _set_advantages(self, batch: dict[str, Any]) -> None:
        """Put the advantages of a subclass, 0 for groups that are not kept, into a batch and the logged columns."""
        rewards_BR, trl_B = self._rewards_BR, self.accelerator.gather(batch["advantages"])
        own_B = self.advantages(rewards_BR, trl_B)
        self._check_shape("advantages", own_B, trl_B)
        if not own_B.isfinite().all():
            raise UserError(f"{type(self).__name__}.advantages: not all are finite; 0 is for a completion without one")
        if self._overrides("keep_groups"):
            rewards_NGR = rewards_BR.unflatten(0, (-1, self.num_generations))
            kept_N = self.kept_groups(rewards_NGR) if self._chosen is None else self._chosen.kept_N
            self.train_metrics["groups/kept"].append(kept_N.float().mean().item())
            own_B = own_B * kept_N.to(own_B.device).repeat_interleave(self.num_generations)
        own_B = own_B.detach().to(trl_B)
        mine = len(batch["advantages"])
        batch["advantages"] = own_B[mine * self.accelerator.process_index :][:mine]
        self.replace_logged_advantages(own_B.tolist())

    def kept_groups(self, rewards_NGR: torch.Tensor) -> torch.Tensor:
        """The checked result of `keep_groups`."""
        kept_N = self.keep_groups(rewards_NGR)
        self._check_shape("keep_groups", kept_N, rewards_NGR[:, 0, 0])
        if kept_N.dtype != torch.bool:
            raise UserError(f"{type(self).__name__}.keep_groups returned {kept_N.dtype}, not torch.bool")
        return kept_N

    def _check_shape(self, method: str, found: Any, like: torch.Tensor) -> None:
        shape = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
        if shape != tuple(like.shape):
            raise UserError(f"{type(self).__name__}.{method} returned {shape}, not a tensor of {tuple(like.shape)}")

    def generate_turns(self, generate: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Ids of prompts and completions, and the messages or texts of the assistant's whole turns."""
        with self._clock.phase("time/generation"):
            prompt_ids, completion_ids, tool_mask, completions, *rest = generate()
            self._clock.wait_for_others()
        masks = [[1] * len(ids) for ids in completion_ids] if tool_mask is None else tool_mask
        rows = list(zip(prompt_ids, completion_ids, masks, strict=True))
        if self._chosen is None:
            self.sampled_entropies = self.drawn_tokens.entropies(rows)
            self.kept_texts = self.drawn_tokens.kept_texts(rows)
        self.drawn_tokens, self.sampler.last_kept = DrawnTokens(), []
        completions = [self._whole_turns(completion, *row) for completion, row in zip(completions, rows, strict=True)]
        return prompt_ids, completion_ids, tool_mask, completions, *rest

    def _whole_turns(self, completion: Any, prompt_ids: list[int], ids: list[int], mask: list[int]) -> Any:
        """A completion in which each message of the assistant has the text of its whole turn, prefilled text too."""
        turns = (
            assistant_turn(self.processing_class, self.policy.layout, prompt_ids + ids[:start], ids[start:end])
            for start, end in sampled_spans(mask)
        )
        if isinstance(completion, str):
            return next(turns)
        if self.tool_format is None:
            return [{**completion[0], "content": next(turns)}, *completion[1:]]
        whole = self.tool_format.with_whole_turn
        return [whole(next(turns), each) if each["role"] == "assistant" else each for each in completion]

    def sample(
        self, prompt_ids: list[list[int]], generate: Callable[[], Any]
    ) -> tuple[list[list[int]], list[list[float]] | None]:
        """Ids of one turn for each prompt, with their log-probabilities; those of the chosen batch if there is one."""
        if self._chosen is not None:
            entropies = self._chosen.column("entropies")
            self.sampled_entropies = None if entropies is None else list(zip(*entropies, strict=True))
            self.kept_texts = self._chosen.column("kept_texts")
            return self._chosen.column("completion_ids"), self._chosen.column("logps")
        # The same autocast as in scoring: float32 weights would otherwise sample from a slightly other policy.
        with self.accelerator.autocast(), self.sampler.recording(), without_dropout(self.model):
            completion_ids, logps = generate()
        self._clock.sampled_tokens += sum(map(len, completion_ids))
        if logps is None:
            logps = self.drawn_tokens.add_recorded(prompt_ids, completion_ids, self.sampler)
        return completion_ids, logps

    def score(
        self, model: Any, ids: torch.Tensor, mask: torch.Tensor, logps_and_entropies: Callable[[], tuple[Any, ...]]
    ) -> tuple[Any, ...]:
        """Log-probabilities and entropies of completions, each position under the policy of its region."""
        # The loss alone sees dropout; old and reference log-probs are those of the whole policy.
        in_the_loss = torch.is_grad_enabled()
        with (
            self._clock.phase("time/forward" if in_the_loss else "time/logprobs"),
            nullcontext() if in_the_loss else without_dropout(model),
            replaying(model, self.kept_texts),
            scores_of(model) as found,
        ):
            logps, entropies, aux_loss = logps_and_entropies()
        copy_logps, copy_entropies, copy_capacities = (
            torch.cat([each[name][:, -logps.size(1) :] for each in found])
            for name in ("copy_log_probs", "copy_entropy", "copy_capacity")
        )
        sampled_BC = mask[:, -logps.size(1) :] if self._loss_inputs is None else self._loss_inputs["sampled_mask"]
        if self.tool_format is not None:  # a given token may be one that its region forbids
            logps, copy_logps = (each.masked_fill(sampled_BC == 0, 0.0) for each in (logps, copy_logps))
        if self._loss_inputs is None:
            self.copy_logps[logps] = copy_logps
        else:
            self._text_kl.set_reference(self._loss_inputs, logps, copy_logps)
            self._set_token_losses(self._loss_inputs, logps)
        if in_the_loss:
            self._sampling_gap.loss_logps = logps.detach()
        if entropies is not None:
            self._batch_metrics.log_entropies(entropies.detach(), copy_entropies, ids, sampled_BC, copy_capacities)
        return logps, entropies, aux_loss

    def calculate_rewards(self, calculate: Callable[[], torch.Tensor]) -> torch.Tensor:
        """`(B, R)` rewards of the completions of all processes by each function, NaN for none."""
        if self._chosen is not None:
            self._rewards_BR, self._drawn_rewards_BR = self._chosen.rewards_BR, self._chosen.sampled_BR
            self.extra_logs.update(self._chosen.extra)
        else:
            with self._clock.phase("time/rewards"):
                self._rewards_BR = self._drawn_rewards_BR = calculate()
            if self.model.training and self.dynamic_sampling is not None:
                return self._rewards_BR  # of a round, which may be small
        step = self.stage_context.run_step(self.state.global_step)
        require_scores(self._drawn_rewards_BR, self.reward_func_names, step, self.extra_logs)
        return self._rewards_BR

    def _adapt_weights(self) -> None:
        """Log the weights that this batch was scored with, and move them by its rewards."""
        for name, weight in self.adaptive_weights.items():
            self.train_metrics[f"rewards/{name}/weight"].append(weight.value)
            rewards = self._drawn_rewards_BR[:, self.reward_func_names.index(name)].tolist()
            weight.observe([None if math.isnan(reward) else reward for reward in rewards])
        self.apply_adaptive_weights()

    def apply_adaptive_weights(self) -> None:
        """Weigh the rewards of the next batch by the adaptive weights as they are now."""
        for name, weight in self.adaptive_weights.items():
            self.reward_weights[self.reward_func_names.index(name)] = weight.value

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> torch.Tensor:
        self.kept_texts = inputs.get("kept_texts")
        with self._clock.phase("time/forward"), self._sampling_gap.measured(model, inputs):
            # The reference changes in it, and the buffered inputs stay.
            self._loss_inputs = {name: each for name, each in inputs.items() if name != "kept_texts"}
            loss: torch.Tensor = super().compute_loss(model, self._loss_inputs, *args, **kwargs)
            self._loss_inputs = None
            self._text_kl.log()
            if self._overrides("per_token_loss"):  # TRL has counted the ratios that it was given, which are 1
                for name in [name for name in self.present_metrics if name.startswith("clip_ratio/")]:
                    del self.present_metrics[name]
        self.kept_texts = None
        self._clock.trained_tokens += int(inputs["sampled_mask"].sum())
        self._clock.enter("time/backward")
        return loss

    def _check_per_token_loss(self, args: GRPOConfig) -> None:
        """Raises UserError where `per_token_loss` is overridden and arguments act on the ratio that it replaces."""
        if not self._overrides("per_token_loss"):
            return
        name = f"{type(self).__name__}.per_token_loss takes the place of TRL's clipped ratio"
        if args.loss_type not in CLIPPED_RATIO:
            raise UserError(f"{name}: loss_type={args.loss_type} has none, set one of {', '.join(CLIPPED_RATIO)}")
        if args.off_policy_mask_threshold is not None:
            raise UserError(f"{name}, which off_policy_mask_threshold is about: leave it out")

    def _set_token_losses(self, inputs: dict[str, Any], logps_BC: torch.Tensor) -> None:
        old_BC = inputs.get("old_per_token_logps")
        own_BC = self.per_token_loss(logps_BC, logps_BC.detach() if old_BC is None else old_BC, inputs)
        if own_BC is not None:
            self._check_shape("per_token_loss", own_BC, logps_BC)
            own_BC = own_BC.masked_fill(inputs["sampled_mask"] == 0, 0.0)
            if not own_BC.isfinite().all():
                raise UserError(f"{type(self).__name__}.per_token_loss: not all are finite")
            take_token_losses(inputs, logps_BC, own_BC + self._text_kl.bias_correction(inputs, logps_BC))

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Log what `measure` finds in a row of its own; without it TRL's own evaluation."""
        if self._measure is None:
            return super().evaluate(*args, **kwargs)
        with self.accelerator.autocast():  # that of training: flash attention computes in 16 bits alone
            figures: dict[str, Any] = {f"eval_{name}": value for name, value in self._measure(self).items()}
        # Past TRL's, which would add the metrics of the step that is being trained.
        super(GRPOTrainer, self).log(figures)
        self.callback_handler.on_evaluate(self.args, self.state, self.control, figures)
        return figures

    def _warn_without_thinking(self) -> None:
        """Warn where no completion of the first logged step could sample copies."""
        lengths = None if self.state.log_history else self.train_metrics.get("thinking/mean_length")
        if self.policy.layout.size and lengths and not any(lengths) and self.accelerator.is_main_process:
            tag = think_tags(self.processing_class, self.policy.layout)[0]
            where = "outside of which no reasoning token is sampled: dataset.open_thinking or Expansion(open_thinking)"
            logger.warning("no completion of the first logged step opened %s, %s can be prefill", tag, where)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        training = self.model.training
        at_the_end = "train_runtime" in logs  # of the training, or of the part before it is interrupted: no step
        self._batch_metrics.drop_all_scored()
        if training and not at_the_end:
            self._warn_without_thinking()
        super().log(logs, start_time)
        if training and not at_the_end and self.newest_rollouts is not None and self.accelerator.is_main_process:
            step, folder = self.stage_context.run_step(self.state.global_step), self.stage_context.run_folder
            write_completions(self.newest_rollouts, step, self.processing_class, folder / "completions")
            self.newest_rollouts = None
