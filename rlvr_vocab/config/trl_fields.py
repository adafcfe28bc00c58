"""Fields of TRL's GRPOConfig: those with bounds of ours, those that nothing here uses, and the others by TRL."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, get_type_hints

from annotated_types import Ge, Gt, Le, Lt
from pydantic import AfterValidator, BeforeValidator, ConfigDict, with_config
from typing_extensions import TypedDict  # pydantic takes that of typing from Python 3.12 on

from rlvr_vocab.bounds import Count, NotNegative, Share, Whole, WholeFrom0
from rlvr_vocab.config.values import read, unknown_keys
from rlvr_vocab.errors import UserError

_MOST_HELD_OUT = 256


def _no_is_text(value: Any) -> Any:
    return "no" if value is False else value  # YAML reads an unquoted no as false


def _in_steps(value: float) -> float:
    return int(value) if value.is_integer() else value  # TRL tells a count of steps from a share by its type and size


Steps = Annotated[NotNegative, AfterValidator(_in_steps)]


@with_config(ConfigDict(extra="allow", allow_inf_nan=False))
class GrpoFields(TypedDict):
    """Fields of TRL's GRPOConfig in the shipped files, and a few others, with bounds that TRL does not ask for.

    The required ones have a default in training/_base; TRL's own annotations read all other fields.
    """

    per_device_train_batch_size: Count
    gradient_accumulation_steps: Count
    num_generations: Annotated[Whole, Ge(2)]
    steps_per_generation: Count | None
    generation_batch_size: Count | None
    num_train_epochs: NotNegative
    max_steps: Count | None
    max_completion_length: Count
    temperature: Annotated[float, Gt(0)]
    num_iterations: Count
    learning_rate: NotNegative
    lr_scheduler_type: str
    max_grad_norm: NotNegative
    optim: str
    beta: NotNegative
    loss_type: Literal["bnpo", "cispo", "dapo", "dr_grpo", "grpo", "luspo", "sapo", "vespo"]
    importance_sampling_level: Literal["token", "sequence"]
    epsilon_high: NotNegative | None
    entropy_coef: float
    gradient_checkpointing: bool
    eval_steps: Annotated[Steps, Gt(0)] | None
    save_strategy: Annotated[Literal["no", "steps", "epoch", "best"], BeforeValidator(_no_is_text)]
    save_steps: Steps
    save_total_limit: Count | None
    save_only_model: bool
    use_vllm: bool
    vllm_mode: Literal["colocate", "server"]
    vllm_gpu_memory_utilization: Share
    vllm_enable_sleep_mode: bool
    vllm_importance_sampling_correction: bool
    vllm_importance_sampling_mode: Literal["sequence_mask", "sequence_truncate", "token_mask", "token_truncate"]
    epsilon: NotRequired[NotNegative]
    scale_rewards: NotRequired[Literal["group", "batch", "none"] | bool]
    mask_truncated_completions: NotRequired[bool]
    warmup_steps: NotRequired[Steps]
    weight_decay: NotRequired[NotNegative]
    adam_beta1: NotRequired[Annotated[float, Ge(0), Lt(1)]]
    adam_beta2: NotRequired[Annotated[float, Ge(0), Lt(1)]]
    bf16: NotRequired[bool | None]
    use_cpu: NotRequired[bool]
    logging_steps: NotRequired[Steps]
    eval_strategy: NotRequired[Annotated[Literal["no", "steps", "epoch"], BeforeValidator(_no_is_text)]]
    generation_kwargs: NotRequired[dict[str, Any] | None]
    top_p: NotRequired[Annotated[float, Gt(0), Le(1)]]
    top_k: NotRequired[WholeFrom0]
    min_p: NotRequired[Share | None]
    max_tool_calling_iterations: NotRequired[Count | None]


# Keys that users type all the same, and the key that decides it.
_INSTEAD = {
    "max_new_tokens": "set training.max_completion_length",
    "max_length": "set training.max_prompt_length and training.max_completion_length",
    "lr": "set training.learning_rate",
    "batch_size": "set training.per_device_train_batch_size",
    "report_to": "set logging=wandb, tensorboard, trackio, mlflow or none, or several: logging=[wandb,tensorboard]",
    "output_dir": "set output_dir",
    "model_init_kwargs": "set model.model_kwargs",
    "reward_weights": "set the weight of each of rewards.functions",
    "run_name": "set exp_name",
    "seed": "set seed",
    "hub_token": "leave it to HF_TOKEN or to hf auth login",
    "chat_template_kwargs": "set model.chat_template or dataset.open_thinking, which hold for held-out problems too",
}
_NOTHING = (
    *("hub_strategy", "hub_always_push", "log_completions_hub_repo"),
    *("trackio_space_id", "trackio_bucket_id", "trackio_static_space_id"),
    *("per_device_eval_batch_size", "num_generations_eval", "prediction_loss_only", "eval_accumulation_steps"),
    *("eval_do_concat_batches", "eval_use_gather_object", "batch_eval_metrics", "include_for_metrics"),
    *("bf16_full_eval", "fp16_full_eval", "label_names", "label_smoothing_factor", "do_train", "do_predict"),
    *("fsdp", "fsdp_config", "deepspeed", "parallelism_config", "local_rank"),
    *("train_sampling_strategy", "length_column_name", "remove_unused_columns", "log_multimodal"),
    *("ref_model_mixup_alpha", "ref_model_sync_steps", "do_sample", "data_seed"),
    *("project", "do_eval", "use_transformers_paged", "vllm_importance_sampling_cap", "resume_from_checkpoint"),
    "include_num_input_tokens_seen",  # with which the Trainer logs a step as the end of a training
)
_WHY_NOTHING = "nothing reads it (uploads: training.push_to_hub; several GPUs: accelerate launch, docs/distributed.md)"
NOT_USED = _INSTEAD | dict.fromkeys(_NOTHING, _WHY_NOTHING)


def refuse_what_is_not_used(key: str) -> None:
    """Raises UserError for a key of NOT_USED, with its section or without."""
    section, _, name = key.rpartition(".")
    if section in ("", "training") and name in NOT_USED:
        raise UserError(f"{key} is not used here: {NOT_USED[name]}")


def trl_values(fields: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that `GrpoFields` does not name, as GRPOConfig annotates them; UserError for an unknown or bad one."""
    for name in fields:
        refuse_what_is_not_used(f"training.{name}")
    if not fields:
        return {}
    hints = field_types()
    if unknown := [f"training.{name}" for name in fields if f"training.{name}" not in hints]:
        raise UserError(unknown_keys(unknown, {**known, **hints}))
    return {name: read(hints[f"training.{name}"], value, f"training.{name}") for name, value in fields.items()}


def field_types() -> dict[str, Any]:
    """The annotations of all fields of GRPOConfig, as keys of `training`; imports TRL."""
    from trl import GRPOConfig

    hints = get_type_hints(GRPOConfig)
    for field in dataclasses.fields(GRPOConfig):
        if field.metadata.get("choices"):  # which Transformers does not compare with
            hints[field.name] = Literal[tuple(field.metadata["choices"])] | None
    return {f"training.{name}": hint for name, hint in hints.items()}


def held_out_batch(grpo: Mapping[str, Any]) -> int:
    """Held-out problems that a process answers at a time; without gradients more fit than are trained on."""
    return int(min(_MOST_HELD_OUT, 8 * grpo["per_device_train_batch_size"]))
