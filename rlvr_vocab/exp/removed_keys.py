"""Training options that are not used here: what the libraries have dropped, and what of TRL's nothing reads."""

RENAMED = {
    "evaluation_strategy": "training.eval_strategy",
    "no_cuda": "training.use_cpu",
    "per_gpu_train_batch_size": "training.per_device_train_batch_size",
    "max_new_tokens": "training.max_completion_length",
    "max_length": "training.max_prompt_length and training.max_completion_length",
    "lr": "training.learning_rate",
    "batch_size": "training.per_device_train_batch_size",
    "vllm_max_model_len": "training.vllm_max_model_length",
    "vllm_guided_decoding_regex": "training.vllm_structured_outputs_regex",
    "vllm_tensor_parallel": "training.vllm_tensor_parallel_size",
    "use_liger_loss": "training.use_liger_kernel",
    "wandb_log_unique_prompts": "training.log_unique_prompts",
    "adafactor": "training.optim=adafactor",
    "dispatch_batches": "training.accelerator_config={dispatch_batches: …}",
    "split_batches": "training.accelerator_config={split_batches: …}",
    "torchdynamo": "training.torch_compile_backend",
    "report_to": "logging.enabled and logging.mode",
    "output_dir": "output_dir",
    "model_init_kwargs": "model.model_kwargs",
    "overwrite_output_dir": "overwrite",
    "logging_dir": "output_dir",
    "run_name": "exp_name",
    "project": "logging.project",
    "do_eval": "training.eval_steps",
    "seed": "seed",
    "data_seed": "seed",
    "use_transformers_paged": "training.use_transformers_continuous_batching",
    "vllm_importance_sampling_cap": "training.vllm_importance_sampling_clip_max",
    "chat_template_kwargs": "model.chat_template or dataset.open_thinking, which held-out problems are asked by too",
}

DROPPED = {
    "save_safetensors": "weights are always saved as safetensors",
    "use_mps_device": "the device is found by itself",
    "half_precision_backend": "training.bf16 and training.fp16 are enough",
    "fp16_backend": "training.bf16 and training.fp16 are enough",
    "fp16_opt_level": "training.bf16 and training.fp16 are enough",
    "jit_mode_eval": "it did nothing for training",
    "use_ipex": "it did nothing for training",
    "past_index": "it did nothing for language models",
    "tpu_num_cores": "TPUs are not supported",
    "tpu_metrics_debug": "TPUs are not supported",
    "ray_scope": "hyper-parameter search is not part of this package",
    "vllm_device": "training.vllm_mode says where vLLM runs",
    "vllm_dtype": "vLLM takes the type of the checkpoint",
    "mp_parameters": "SageMaker's model parallelism is not supported",
}

_UPLOAD = "a run uploads nothing: hf upload NAME FOLDER takes its final_model"
_HELD_OUT = "held-out problems are answered under the region policy, one answer each"
_SHARDED = "a run is spread by accelerate launch --config_file accelerate_configs/…, see docs/distributed.md"
_NO_TRACKIO = "runs are logged to W&B"
_IN_GROUPS = "problems come in groups and in seeded order"
_STILL_REFERENCE = "the reference stays the model before training"

# Fields of GRPOConfig, of this version or an earlier one, that nothing would read or that would end a run.
UNREAD = {
    **dict.fromkeys(
        (
            *("push_to_hub", "push_to_hub_model_id", "push_to_hub_token", "hub_token", "hub_private_repo"),
            *("hub_model_id", "hub_strategy", "hub_always_push", "hub_revision", "log_completions_hub_repo"),
        ),
        _UPLOAD,
    ),
    **dict.fromkeys(
        (
            *("per_device_eval_batch_size", "per_gpu_eval_batch_size", "num_generations_eval", "prediction_loss_only"),
            *("eval_accumulation_steps", "eval_do_concat_batches", "eval_use_gather_object", "batch_eval_metrics"),
            *("include_for_metrics", "include_inputs_for_metrics", "bf16_full_eval", "fp16_full_eval", "label_names"),
        ),
        _HELD_OUT,
    ),
    **dict.fromkeys(("fsdp", "fsdp_config", "deepspeed", "parallelism_config"), _SHARDED),
    **dict.fromkeys(("trackio_space_id", "trackio_bucket_id", "trackio_static_space_id"), _NO_TRACKIO),
    **dict.fromkeys(("train_sampling_strategy", "group_by_length", "length_column_name"), _IN_GROUPS),
    **dict.fromkeys(("ref_model_mixup_alpha", "ref_model_sync_steps"), _STILL_REFERENCE),
    "max_tool_calling_iterations": "there are no tools to call",
    "log_multimodal": "problems are text",
    "label_smoothing_factor": "GRPO's loss has no labels",
    "remove_unused_columns": "reward functions are given every column",
    "do_train": "the command says what is done",
    "do_predict": "rlvr-vocab evaluate and generate do that",
    "local_rank": "the launcher tells each process its rank",
}


def removed_key_line(key: str) -> str | None:
    """One line for a training key that is not used here, with its section or without; None for any other key."""
    section, _, name = key.rpartition(".")
    if section not in ("", "training"):
        return None
    if name in RENAMED:
        return f"{key} is not used here: set {RENAMED[name]}"
    if name in DROPPED:
        return f"{key} no longer exists: {DROPPED[name]}"
    if name in UNREAD:
        return f"{key} is not used here: {UNREAD[name]}"
    return None
