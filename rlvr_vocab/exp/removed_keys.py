"""Training options of older guides that the libraries have dropped, and what to write instead."""

RENAMED = {
    "evaluation_strategy": "training.eval_strategy",
    "no_cuda": "training.use_cpu",
    "per_gpu_train_batch_size": "training.per_device_train_batch_size",
    "per_gpu_eval_batch_size": "training.per_device_eval_batch_size",
    "max_new_tokens": "training.max_completion_length",
    "max_length": "training.max_prompt_length and training.max_completion_length",
    "lr": "training.learning_rate",
    "batch_size": "training.per_device_train_batch_size",
    "vllm_max_model_len": "training.vllm_max_model_length",
    "vllm_guided_decoding_regex": "training.vllm_structured_outputs_regex",
    "vllm_tensor_parallel": "training.vllm_tensor_parallel_size",
    "use_liger_loss": "training.use_liger_kernel",
    "wandb_log_unique_prompts": "training.log_unique_prompts",
    "include_inputs_for_metrics": "training.include_for_metrics",
    "push_to_hub_model_id": "training.hub_model_id",
    "push_to_hub_token": "the environment variable HF_TOKEN",
    "adafactor": "training.optim=adafactor",
    "group_by_length": "training.train_sampling_strategy=group_by_length",
    "dispatch_batches": "training.accelerator_config={dispatch_batches: …}",
    "split_batches": "training.accelerator_config={split_batches: …}",
    "torchdynamo": "training.torch_compile_backend",
    "report_to": "logging.enabled and logging.mode",
    "output_dir": "output_dir",
    "model_init_kwargs": "model.model_kwargs",
    "overwrite_output_dir": "overwrite",
    "logging_dir": "output_dir",
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


def removed_key_line(key: str) -> str | None:
    """One line for a training key that once existed, with its section or without; None for any other key."""
    section, _, name = key.rpartition(".")
    if section not in ("", "training"):
        return None
    if name in RENAMED:
        return f"{key} is not used here: set {RENAMED[name]}"
    if name in DROPPED:
        return f"{key} no longer exists: {DROPPED[name]}"
    return None
