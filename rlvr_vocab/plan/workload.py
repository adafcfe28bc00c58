"""The work of one process of a run: its model, the part that trains, and its batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.config.trl_fields import held_out_batch
from rlvr_vocab.plan.architecture import Architecture, architecture_of
from rlvr_vocab.plan.devices import Device
from rlvr_vocab.training.settings import Lora

Sharding = Literal["none", "fsdp2", "deepspeed_zero3"]
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
# Training problems of the shipped sets, by their pages on the hub.
_SHIPPED = {
    "agentica-org/DeepScaleR-Preview-Dataset": 40_315,
    "openai/gsm8k": 7_473,
    "DigitalLearningGmbH/MATH-lighteval": 7_500,
}
_PROMPT = 256
_TOOL = 100  # tokens of a schema, and of the words before all of them: 75 and 100 under Qwen3's template
_TINY_ROWS = 517  # at most: bytes and words up to 512, and five that are added
# Bytes of optimizer state for each trained weight, by how the optimizer's name begins, `paged_` aside; others hold the
# two moments of AdamW.
_ADAM_IN_8_BITS = ("adamw_8bit", "adamw_bnb_8bit")  # of bitsandbytes
_OPTIMIZER_BYTES = {**dict.fromkeys(_ADAM_IN_8_BITS, 2), "lion": 4, "adafactor": 0.1, "sgd": 0}


@dataclass(frozen=True)
class Workload:
    """The work of one process of a run, or of one stage; problems: number for training, None where unknown.

    copies: the number of reasoning tokens; prompts: tokens of each, empty where unknown; prompt: of the longest.
    """

    run: RunSettings
    device: Device
    architecture: Architecture
    copies: int
    processes: int = 1
    sharding: Sharding = "none"
    problems: int | None = None
    prompts: tuple[int, ...] = ()
    prompt: int = _PROMPT

    @property
    def grpo(self) -> Mapping[str, Any]:
        return self.run.training.grpo

    @property
    def lora(self) -> Lora | None:
        return self.run.model.lora if self.run.model.trains_adapter else None

    @property
    def bits(self) -> int | None:
        """Bits of a quantized weight of the linear layers; None where they are not quantized."""
        return None if self.lora is None else self.run.model.bits

    @property
    def frozen_bytes(self) -> int:
        """Bytes of a weight under an adapter."""
        dtype = self.run.model.dtype
        return _BYTES[dtype if self.device.has_bf16 or dtype != "bfloat16" else "float32"]

    @property
    def trained_bytes(self) -> int:
        """Bytes of a weight that trains."""
        return _BYTES[self.run.model.loaded_dtype] if self.lora is None else 4

    @property
    def halved_by(self) -> Literal["autocast", "weights"] | None:
        """The cause of products in 16 bits: autocast, or frozen weights in that type."""
        grpo = self.grpo
        asked = not grpo.get("fp16") if grpo.get("bf16") is None else bool(grpo["bf16"])
        if grpo.get("fp16") or (asked and self.device.has_bf16):
            return "autocast"
        return "weights" if self.lora is not None and self.frozen_bytes < 4 else None

    @property
    def width(self) -> int:
        """Bytes of a number in products."""
        return 4 if self.halved_by is None else 2

    @property
    def at_once(self) -> int:
        """Completions that are scored at a time."""
        return int(self.grpo["per_device_train_batch_size"])

    @property
    def batches(self) -> int:
        """Batches of `at_once` completions in an optimisation step."""
        return int(self.grpo["gradient_accumulation_steps"])

    @property
    def drawn(self) -> int:
        """Completions that are sampled together."""
        return self.at_once * self.drawn_batches

    @property
    def drawn_batches(self) -> int:
        """Batches of `at_once` completions that are sampled together."""
        size = self.grpo["generation_batch_size"]
        if size is not None:
            return int(size) // (self.at_once * self.processes)
        return int(self.grpo["steps_per_generation"] or self.batches)

    @property
    def completion(self) -> int:
        return int(self.grpo["max_completion_length"])

    @property
    def tokens(self) -> int:
        """Tokens of the longest completion with its prompt."""
        return self.prompt + self.completion

    @property
    def trained_at_once(self) -> int:
        """Completions of an optimisation step, of all processes."""
        return self.at_once * self.batches * self.processes

    @property
    def sampled_at_once(self) -> float:
        """Completions that are sampled for an optimisation step, of all processes."""
        return self.trained_at_once / self.grpo["num_iterations"]

    @property
    def scored_before(self) -> bool:
        """Whether the policy scores a batch once more before it is trained on."""
        grpo, lora = self.grpo, self.lora
        is_unaligned = self.batches * self.at_once % (self.drawn * grpo["num_iterations"]) != 0
        corrects_vllm = bool(grpo.get("use_vllm") and grpo["vllm_importance_sampling_correction"])
        return is_unaligned or corrects_vllm or (lora is not None and lora.lora_dropout > 0)

    @property
    def held_out(self) -> int:
        """Held-out problems that are answered at a time."""
        dataset = self.run.dataset
        if not dataset.eval_fraction and dataset.eval_split is None:
            return 0
        batch = held_out_batch(self.grpo)
        return batch if dataset.max_eval_samples is None else min(batch, dataset.max_eval_samples)

    @property
    def vllm_memory(self) -> float | None:
        """Bytes of the card that vLLM holds, 0 on a server of its own; None where Transformers samples."""
        if not self.grpo.get("use_vllm"):
            return None
        share = self.grpo["vllm_gpu_memory_utilization"] if self.grpo["vllm_mode"] == "colocate" else 0.0
        return float(share * self.device.memory)

    @property
    def shards(self) -> int:
        """Processes over which what trains is spread."""
        return 1 if self.sharding == "none" else self.processes

    @property
    def own_rows(self) -> int:
        """Copies that are rows of their own."""
        return self.copies if self.run.model.reasoning_rank is None else 0

    @property
    def copy_weights(self) -> int:
        """Trained parameters of the copies in one table."""
        hidden, rank = self.architecture.hidden, self.run.model.reasoning_rank
        return self.copies * hidden if rank is None or not self.copies else (self.copies + hidden) * rank

    @property
    def adapter_weights(self) -> int:
        if self.lora is None:
            return 0
        linears, targets = self.architecture.linears, self.lora.target_modules
        adapted = 1.0 if isinstance(targets, str) else min(1.0, len(targets) / len(linears))
        return round(self.architecture.layers * self.lora.r * sum(map(sum, linears)) * adapted)

    @property
    def trained_weights(self) -> int:
        shape = self.architecture
        if self.lora is None:
            return shape.weights + self.copy_weights * shape.tables
        rows = {"all": shape.rows * shape.hidden + self.copy_weights, "reasoning": self.copy_weights, "none": 0}
        return self.adapter_weights + rows[self.lora.train_rows] * shape.tables

    @property
    def frozen_weights(self) -> int:
        """Weights of the base under an adapter, with the initial rows of copies that have rows of their own."""
        shape = self.architecture
        return 0 if self.lora is None else shape.weights + self.own_rows * shape.hidden * shape.tables

    @property
    def optimizer_state(self) -> float:
        """Bytes in all processes together."""
        name, in_32_bits = str(self.grpo["optim"]).removeprefix("paged_"), 0
        if self.lora is None and name in _ADAM_IN_8_BITS:
            # Transformers keeps both moments of an embedding in float32.
            in_32_bits = (self.architecture.rows + self.own_rows) * self.architecture.hidden
        known = (size for prefix, size in _OPTIMIZER_BYTES.items() if name.startswith(prefix))
        of_weight = next(known, 2 * self.trained_bytes)
        return 8 * in_32_bits + (self.trained_weights - in_32_bits) * of_weight


def workload_of(run: RunSettings, device: Device, **known: Any) -> Workload:
    """The work of a run on a device; `known` are further attributes. UserError for a model without a `config.json`."""
    size, tiny = run.model.reasoning_vocab_size, run.model.tiny
    if tiny is None:
        shape = architecture_of(run.model.name)
    else:
        sizes = (tiny.hidden_size, tiny.intermediate_size, tiny.num_layers, tiny.num_heads, tiny.num_kv_heads)
        shape = Architecture("qwen3", *sizes, tiny.head_dim, _TINY_ROWS, tied=True)
    if run.model.chooses_by_text:  # the tokenizer decides: at most
        size = "full" if isinstance(run.model.source_ids, str) else 2 * len(run.model.source_ids or ())
    copies = shape.rows * run.model.reasoning_multiplicity if size == "full" else size
    if run.uses_tools:
        known.setdefault("prompt", _PROMPT + _TOOL * (1 + len(run.tools) + (run.environment is not None)))
    return Workload(run, device, shape, copies, **known)


def configured_problems(run: RunSettings) -> int | None:
    """The number of training problems that follows from the configuration alone; None where unknown."""
    dataset = run.dataset
    known, held_out = dataset.num_problems, dataset.eval_fraction
    if dataset.generator is not None:
        known = dataset.generator.num_problems
    if known is None:
        known, held_out = _SHIPPED.get(dataset.name), held_out if dataset.eval_split is None else 0.0
    most = dataset.max_train_samples
    if known is None:
        return most
    found = round(known * (1 - held_out))
    return found if most is None else min(most, found)
