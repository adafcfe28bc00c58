"""Fields of TRL's GRPOConfig: those that nothing here would read, and those that TRL alone knows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, get_type_hints

from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.config.values import keys_of, read, unknown_key
from rlvr_vocab.errors import UserError

_NO_UPLOAD = "a run uploads nothing: hf upload NAME FOLDER takes its final_model"
_HELD_OUT = "held-out problems are answered under the region policy, one answer each"
_LAUNCHED = "a run is spread by accelerate launch --config_file accelerate_configs/…, see docs/distributed.md"
_REFERENCE = "the reference stays the model before training"
_ORDER = "problems come in groups and in seeded order"
# What users type all the same, and the key that decides it, or why nothing does.
NOT_USED = {
    "evaluation_strategy": "set training.eval_strategy",
    "max_new_tokens": "set training.max_completion_length",
    "max_length": "set training.max_prompt_length and training.max_completion_length",
    "lr": "set training.learning_rate",
    "batch_size": "set training.per_device_train_batch_size",
    "report_to": "set logging=wandb, logging=offline or logging=disabled (logging.enabled and logging.mode)",
    "output_dir": "set output_dir",
    "model_init_kwargs": "set model.model_kwargs",
    "overwrite_output_dir": "set overwrite",
    "logging_dir": "set output_dir",
    "reward_weights": "set the weight of each of rewards.functions",
    "run_name": "set exp_name",
    "project": "set logging.project",
    "do_eval": "set training.eval_steps",
    "seed": "set seed",
    "data_seed": "set seed",
    "use_transformers_paged": "set training.use_transformers_continuous_batching",
    "vllm_importance_sampling_cap": "set training.vllm_importance_sampling_clip_max",
    "chat_template_kwargs": "set model.chat_template or dataset.open_thinking, by which held-out problems are asked",
    "resume_from_checkpoint": "set resume",
    **dict.fromkeys(("push_to_hub", "hub_token", "hub_private_repo", "hub_model_id", "hub_strategy"), _NO_UPLOAD),
    **dict.fromkeys(("hub_always_push", "hub_revision", "log_completions_hub_repo"), _NO_UPLOAD),
    **dict.fromkeys(("per_device_eval_batch_size", "num_generations_eval", "prediction_loss_only"), _HELD_OUT),
    **dict.fromkeys(("eval_accumulation_steps", "eval_do_concat_batches", "eval_use_gather_object"), _HELD_OUT),
    **dict.fromkeys(("batch_eval_metrics", "include_for_metrics", "bf16_full_eval", "fp16_full_eval"), _HELD_OUT),
    "label_names": _HELD_OUT,
    **dict.fromkeys(("fsdp", "fsdp_config", "deepspeed", "parallelism_config"), _LAUNCHED),
    **dict.fromkeys(("trackio_space_id", "trackio_bucket_id", "trackio_static_space_id"), "runs are logged to W&B"),
    **dict.fromkeys(("train_sampling_strategy", "length_column_name"), _ORDER),
    **dict.fromkeys(("ref_model_mixup_alpha", "ref_model_sync_steps"), _REFERENCE),
    "max_tool_calling_iterations": "there are no tools to call",
    "log_multimodal": "problems are text",
    "label_smoothing_factor": "GRPO's loss has no labels",
    "remove_unused_columns": "reward functions are given every column",
    "do_train": "the command says what is done",
    "do_sample": "training always samples, as do_sample=true says",
    "do_predict": "rlvr-vocab evaluate and generate do that",
    "local_rank": "the launcher tells each process its rank",
}


def refuse_what_is_not_used(key: str) -> None:
    """Raises UserError for a key of NOT_USED, with its section or without."""
    section, _, name = key.rpartition(".")
    if section in ("", "training") and name in NOT_USED:
        raise UserError(f"{key} is not used here: {NOT_USED[name]}")


def trl_values(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that `GrpoFields` does not name, as GRPOConfig annotates them; imports TRL where there are any.

    Raises:
        UserError: GRPOConfig has no such field, or its value has another type.
    """
    for name in fields:
        refuse_what_is_not_used(f"training.{name}")
    if not fields:
        return {}
    from trl import GRPOConfig

    hints = get_type_hints(GRPOConfig)
    for field in dataclasses.fields(GRPOConfig):
        if field.metadata.get("choices"):  # which Transformers does not compare with
            hints[field.name] = Literal[tuple(field.metadata["choices"])] | None
    for name in fields:
        if name not in hints:
            known = {**keys_of(RunSettings), **{f"training.{each}": None for each in hints if each not in NOT_USED}}
            raise UserError(unknown_key(f"training.{name}", known))
    return {name: read(hints[name], value, f"training.{name}") for name, value in fields.items()}
