"""The private functions and attributes of TRL 1.16 and Transformers 5.23 that training replaces or reads, all of them.

Each override names the function that it takes the place of and why no public seam serves. `tests/training/
test_trl_seams.py` fails when TRL or Transformers change one of them.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import trl.trainer.grpo_trainer as trl_grpo
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from torch import nn
from transformers import PreTrainedModel, Trainer
from transformers.trainer import TRAINING_ARGS_NAME
from transformers.trainer_utils import HubStrategy
from transformers.utils.hub import PushInProgress, hf_api
from trl import GRPOTrainer

from rlvr_vocab.rewards.guard import Reward
from rlvr_vocab.tools.functions import guarded_tools
from rlvr_vocab.training.metrics.step_clock import peak_memory
from rlvr_vocab.training.sharding import is_sharded, without_tied_copies
from rlvr_vocab.vocab.copied_rows import attach_low_rank_rows, copied_rows_of
from rlvr_vocab.vocab.head import RegionScores, attach_region_head
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.truncation import PackedTexts
from rlvr_vocab.vocab.weights import record_base, refuse_not_finite

# The folder in `output_dir` that is uploaded to the hub, and the files of a checkpoint that stay out of it.
HUB = "hub"
_TRAINING_STATE = ("optimizer*", "scheduler.pt", "scaler.pt", "rng_state*", "pending_*", "trainer_state.json", "*.bin")


@contextmanager
def region_head_in_trl(policy: RegionPolicy) -> Iterator[None]:
    """Inside the block `GRPOTrainer.__init__` gives policy and reference the region head.

    `add_fused_lm_head`: the constructor calls it for both models, and prepares the reference right after it.
    `BaseTunerLayer`: it refuses adapters on the head, which `TrainedRows` of an earlier trainer are not.
    """
    original = trl_grpo.add_fused_lm_head, trl_grpo.BaseTunerLayer

    def add_region_head(model: PreTrainedModel, **settings: Any) -> None:
        if policy.layout.holds_deltas and copied_rows_of(model) is None:
            attach_low_rank_rows(model, model.name_or_path)
        attach_region_head(model, policy=policy, **settings)

    trl_grpo.add_fused_lm_head, trl_grpo.BaseTunerLayer = add_region_head, LoraLayer
    try:
        yield
    finally:
        trl_grpo.add_fused_lm_head, trl_grpo.BaseTunerLayer = original


@contextmanager
def scores_of(model: nn.Module) -> Iterator[list[RegionScores]]:
    """Everything that the region head computes inside the block; TRL keeps log-probabilities and one entropy."""
    found: list[RegionScores] = []

    def keep(module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, RegionScores):
            found.append(output)

    with model.register_forward_hook(keep):
        yield found


@contextmanager
def replaying(model: nn.Module, kept_texts: Sequence[PackedTexts] | None) -> Iterator[None]:
    """Inside the block the region head replays a truncation; TRL divides the rows, and has no argument for them."""
    if kept_texts is None:
        yield
        return
    rows = iter(kept_texts)

    def add(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        return args, {**kwargs, "kept_texts": list(islice(rows, len(kwargs["input_ids"])))}

    with model.register_forward_pre_hook(add, with_kwargs=True):
        yield


# The types of `GRPOTrainer._compute_loss` whose loss of a token is -min(ratio, clipped ratio) × advantage.
CLIPPED_RATIO = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")


def take_token_losses(inputs: dict[str, Any], logps_BC: torch.Tensor, losses_BC: torch.Tensor) -> None:
    """Make `GRPOTrainer._compute_loss` use these losses of tokens, whose own it has no seam for.

    With the new log-probabilities as the old ones its ratio is 1, and the gradient of the ratio is 0.
    """
    inputs["old_per_token_logps"], inputs["advantages"] = logps_BC, -losses_BC


class StagedCheckpoints(Trainer):
    """Writes a checkpoint into a folder that gets its final name once it is whole."""

    _staging: Path | None = None

    @contextmanager
    def staged_in(self, folder: Path) -> Iterator[None]:
        """Inside the block checkpoints are written below a folder."""
        self._staging = folder
        try:
            yield
        finally:
            self._staging = None

    def _get_output_dir(self, trial: Any) -> str:
        """`Trainer._get_output_dir`: `args.output_dir` is public, but names the model card as well."""
        return str(self._staging or super()._get_output_dir(trial))


class TRLSeams(StagedCheckpoints, GRPOTrainer):
    """`GRPOTrainer` with public hooks in the place of its private steps; `RegionGRPOTrainer` fills the hooks.

    Each hook gets TRL's own function, bound to its arguments.
    """

    push_in_progress: Any
    reward_weights: Any
    tool_format: Any  # the trainer's `ToolFormat`
    _in_tool_loop = False
    _sync_tool_dicts: list[dict[str, Any]]  # of each completion, by name
    _async_tool_dicts: list[dict[str, Any]]

    def _generate(self, prompts: list[Any]) -> tuple[Any, ...]:
        """`GRPOTrainer._generate`: rewards get the text that it decodes, without what the template prefilled."""
        return self.generate_turns(partial(super()._generate, prompts))

    def _generate_single_turn(self, prompt_ids: list[list[int]], *args: Any, **kwargs: Any) -> Any:
        """`GRPOTrainer._generate_single_turn`: the public `rollout_func` replaces decoding and logging too."""
        if self._in_tool_loop:
            self._another_turn_anywhere(here=True)
        return self.sample(prompt_ids, partial(super()._generate_single_turn, prompt_ids, *args, **kwargs))

    def _tool_call_loop(self, prompts: list[Any], prompt_ids: list[list[int]], *args: Any) -> Any:
        """`GRPOTrainer._tool_call_loop`: rewards and `reset` need an environment whose methods are not guarded.

        Sharded weights are gathered by all processes: one without calls generates along, and drops what it gets.
        """
        self._sync_tool_dicts = [guarded_tools(each) for each in self._sync_tool_dicts]
        self._async_tool_dicts = [guarded_tools(each) for each in self._async_tool_dicts]
        self._in_tool_loop = sharded = is_sharded(self.accelerator.state)
        found = super()._tool_call_loop(prompts, prompt_ids, *args)
        self._in_tool_loop = False
        while sharded and self._another_turn_anywhere(here=False):
            super()._generate_single_turn(prompt_ids[:1], None, {}, num_generations=1)
        return found

    def _another_turn_anywhere(self, here: bool) -> bool:
        turns = torch.tensor(float(here), device=self.accelerator.device)
        return bool(self.accelerator.reduce(turns, reduction="sum") > 0)

    def _get_tool_suffix_ids(self, tool_messages: list[dict[str, Any]]) -> list[int]:
        """`GRPOTrainer._get_tool_suffix_ids`: it encodes control tokens in a tool's words as such."""
        return self.tool_format.answer_ids(tool_messages)

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """`GRPOTrainer._calculate_rewards`: no public function sees the rewards of all processes before advantages."""
        return self.calculate_rewards(partial(super()._calculate_rewards, *args, **kwargs))

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """`GRPOTrainer._generate_and_score_completions`: no public function changes the problems of a batch."""
        return self.generate_and_score(inputs, super()._generate_and_score_completions)

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, *args: Any, **kwargs: Any
    ) -> Any:
        """`GRPOTrainer._get_per_token_logps_and_entropies`: it drops what the head finds beside log-probabilities."""
        given = (model, input_ids, attention_mask)
        own = partial(super()._get_per_token_logps_and_entropies, *given, *args, **kwargs)
        return self.score(*given, own)

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        """`GRPOTrainer._get_train_sampler`: after a resume it begins with the order of the first epoch."""
        return self.checkpoints.skip_finished_epochs(super()._get_train_sampler(dataset))

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """`GRPOTrainer._save_checkpoint`: the callback `on_save` comes after it, when a kill has left half a folder."""
        self.checkpoints.save(partial(super()._save_checkpoint, model, trial))
        whole = Path(self._get_output_dir(trial)) / f"checkpoint-{self.state.global_step}"
        if self.args.push_to_hub and whole.is_dir():  # it is not, after a save for which the disk had no room
            self._push_whole(whole)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """`Trainer._push_from_checkpoint`: called while the folder is incomplete; `_save_checkpoint` does it after."""

    def _push_whole(self, checkpoint: Path) -> None:
        """Upload the model of a checkpoint in the background; Transformers would upload all of `output_dir`."""
        args, running = self.args, self.push_in_progress
        waits = running is not None and not running.is_done() and not args.hub_always_push
        if not self.is_world_process_zero() or args.hub_strategy == HubStrategy.END or waits:
            return
        hub = Path(args.output_dir, HUB)
        shutil.rmtree(hub, ignore_errors=True)
        shutil.copytree(checkpoint, hub, ignore=shutil.ignore_patterns(*_TRAINING_STATE))
        job = hf_api().upload_folder(
            repo_id=self.hub_model_id,
            folder_path=str(hub),
            commit_message=f"Training in progress, step {self.state.global_step}",
            token=args.hub_token,
            revision=args.hub_revision,
            run_as_future=True,
        )
        self.push_in_progress = PushInProgress([job])

    def push_to_hub(self, *args: Any, **kwargs: Any) -> Any:
        """`Trainer.push_to_hub`: the same from a folder of the model alone, as `output_dir` holds the run's records."""
        if self.hub_model_id is None:
            self.init_hf_repo(kwargs.get("token"), kwargs.get("private"))
        given, self.args.output_dir = self.args.output_dir, str(Path(self.args.output_dir, HUB))
        try:
            return super().push_to_hub(*args, **kwargs)
        finally:
            self.args.output_dir = given

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """`Trainer._save`: `save_model` does not let a caller change the gathered weights."""
        folder = Path(output_dir or self.args.output_dir)
        super()._save(output_dir, without_tied_copies(self.model, state_dict))
        Path(folder, TRAINING_ARGS_NAME).unlink(missing_ok=True)  # a pickle with the user's token
        if self.args.should_save:
            self.policy.layout.save(folder)
            record_base(folder, self.initial_model)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """`Trainer._load_from_checkpoint`: it refuses a file whose tables have more rows than the model's."""
        with peak_memory.phase("loading"), self._reading(resume_from_checkpoint):
            super()._load_from_checkpoint(resume_from_checkpoint, model)
        refuse_not_finite(self.model, resume_from_checkpoint)

    def _load_best_model(self) -> None:
        """`Trainer._load_best_model`: the same."""
        with self._reading(self.state.best_model_checkpoint):
            super()._load_best_model()

    def _reading(self, checkpoint: Any) -> AbstractContextManager[None]:
        in_parts = isinstance(self.model, PeftModel) or is_sharded(self.accelerator.state)
        return nullcontext() if in_parts or (held := copied_rows_of(self.model)) is None else held.reading(checkpoint)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """`GRPOTrainer._load_optimizer_and_scheduler`: it takes rates and decay from the checkpoint too."""
        with peak_memory.phase("loading"), self.checkpoints.keeping_configured_settings():
            super()._load_optimizer_and_scheduler(checkpoint)

    def drop_repeated_reward(self) -> None:
        """`GRPOTrainer.__init__` appends `get_reward` of an environment, also where a given reward calls it."""
        name = self.reward_func_names[-1]
        if name in [each.name for each in self.reward_funcs[:-1] if isinstance(each, Reward)]:
            for column in (self.reward_funcs, self.reward_func_names, self.reward_processing_classes):
                del column[-1]
            self.reward_weights = self.reward_weights[:-1]

    # Attributes without a public name.

    @property
    def train_metrics(self) -> dict[str, list[float]]:
        """`_metrics["train"]`: the values of the row that is logged next, by name."""
        return self._metrics["train"]

    @property
    def present_metrics(self) -> dict[str, list[float]]:
        """`_metrics` of the mode that the model is in."""
        return self._metrics["train" if self.model.training else "eval"]

    @contextmanager
    def metrics_set_aside(self) -> Iterator[None]:
        """Inside the block nothing is added to `_metrics["train"]`."""
        kept, self._metrics["train"] = self._metrics["train"], defaultdict(list)
        try:
            yield
        finally:
            self._metrics["train"] = kept

    @property
    def logged_completions(self) -> dict[str, Any]:
        """`_logs`: prompts, completions, rewards and advantages of all processes, the newest last."""
        return self._logs

    def replace_logged_advantages(self, advantages_B: list[float]) -> None:
        """`_logs["advantages"]`: other advantages for the newest completions."""
        logged = self._logs["advantages"]
        kept = list(logged)[: -len(advantages_B)]
        logged.clear()
        logged.extend([*kept, *advantages_B])

    @property
    def extra_logs(self) -> dict[str, list[Any]]:
        """`_pending_extra_logs`: the columns that reward functions have logged of the present batch."""
        return self._pending_extra_logs

    @property
    def standalone_tools(self) -> list[Any]:
        """`_standalone_tools`: the functions of `tools=`; `tools` has the methods of environments too."""
        return self._standalone_tools

    def unfinished_step(self) -> dict[str, Any]:
        """`_step`, `_buffered_inputs`, `_tr_loss`, `_globalstep_last_logged`: what lies between two generations."""
        inside_a_buffer = self._step % (self.args.steps_per_generation * self.num_iterations) != 0
        return {
            "step": self._step,
            "buffered_inputs": self._buffered_inputs if inside_a_buffer else None,
            "metrics": {name: list(values) for name, values in self.train_metrics.items()},
            "loss": self._tr_loss,
            "last_logged": self._globalstep_last_logged,
        }

    def take_up_unfinished_step(self, state: dict[str, Any], *, with_buffer: bool) -> None:
        """Take over an `unfinished_step`, at the beginning of a training."""
        if with_buffer:
            self._step, self._buffered_inputs = state["step"], state["buffered_inputs"]
        self.train_metrics.update(state["metrics"])
        self._tr_loss, self._globalstep_last_logged = state["loss"], state["last_logged"]

    def send_whole_tables_to_vllm(self) -> None:
        """`VLLMGeneration._iter_named_params`: vLLM holds a row for each id, which its sync must send."""
        held, own = copied_rows_of(self.model), self.vllm_generation._iter_named_params
        if held is not None:
            self.vllm_generation._iter_named_params = lambda: held.stock_parameters(own())
