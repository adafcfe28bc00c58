"""Memory of one process by phase and part; `tests/plan/test_memory.py` compares it with what autograd keeps."""

from __future__ import annotations

from rlvr_vocab.plan.devices import GIB
from rlvr_vocab.plan.workload import Workload

Parts = dict[str, float]
# Phases, in the order of a run.
GENERATION, LOGPROBS, FORWARD, BACKWARD = "generation", "logprobs", "forward", "backward"
OPTIMIZER, SAVING, EVALUATION = "optimizer", "saving", "evaluation"

# Bytes per token that autograd keeps of a layer without checkpointing: per hidden dimension (two norms with their
# inputs, the inputs of attention and feed-forward part), per query dimension (queries, keys and values spread over all
# heads, the output of attention), per dimension of normed queries and keys, per inner dimension of the feed-forward
# part, and per hidden dimension of each norm beyond two.
# Keys: whether an adapter trains, and the cause of products in 16 bits. In place of a layer's input an adapter keeps
# the input after dropout and the mask, in float32 unless autocast casts them; autocast keeps an input once for each
# layer that it is cast for.
_KEPT = {
    (False, None): (24, 16, 8, 16, 8),
    (False, "autocast"): (26, 8, 6, 8, 11),
    (True, None): (48, 24, 4, 20, 4),
    (True, "autocast"): (36, 14, 4, 12, 4),
    (True, "weights"): (44, 16, 4, 14, 4),
}
# Python with torch and TRL on a CPU; the CUDA context.
_PROGRAM, _CUDA_CONTEXT = 0.79 * GIB, 0.6 * GIB
_TOKENIZER_BYTES = 720  # objects for each standard token; copies need hardly any
# Memory that an allocator holds in fragments, as a share of short-lived tensors: a card's allocator; glibc's malloc,
# without and with an adapter's tensors between those that are kept.
_FRAGMENTS_ON_A_CARD, _FRAGMENTS, _FRAGMENTS_BESIDE_ADAPTERS = 0.10, 0.25, 0.55
_COMING_AND_GOING = ("activations", "kv cache", "logits")
_QUANTIZING = 5.5  # bytes for each weight that malloc still holds after quantizing on a CPU
# Positions and rows of one block of the log-prob function, and about how many blocks are alive.
_BLOCK_POSITIONS, _BLOCK_ROWS, _BLOCKS_ALIVE = 1024, 4096, 5
_BLOCK_POSITIONS_ON_A_CARD, _BLOCK_ROWS_ON_A_CARD = 4096, 16384
# Float32 tensors of completions × rows that a sampling step holds at once: without copies, and with them.
_SAMPLING_TENSORS, _SAMPLING_TENSORS_WITH_COPIES = 5, 8


def memory_by_phase(work: Workload) -> dict[str, Parts]:
    """Bytes at the peak of each phase of a run, after its first optimisation step, by part."""
    standing, logits = _standing(work), _head_blocks(work)
    gradients = work.trained_weights * work.trained_bytes / work.shards
    forward = {
        "gradients": gradients if work.batches > 1 else 0.0,
        "activations": kept_activations(work),
        "cast weights": cast_weights(work),
        "logits": logits,
    }
    phases = {
        GENERATION: _sampling(work, work.drawn) if work.vllm_memory is None else {"vllm": work.vllm_memory},
        LOGPROBS: {"activations": _one_layer(work, work.at_once * work.tokens), "logits": logits},
        FORWARD: forward,
        BACKWARD: _backward(work, forward, gradients),
        OPTIMIZER: {"gradients": gradients},
    }
    # Without a reference model the initial weights are loaded to log the KL.
    logs_kl = work.run.training.kl_log_steps != 0 and not work.grpo["beta"]
    if logs_kl and work.lora is None and work.sharding == "none":
        phases[LOGPROBS]["reference"] = _reference(work)
    if work.grpo["save_strategy"] != "no":
        # A folder has a row for each id; low-rank rows and an adapter's are made into such tables.
        made = work.copies and (work.lora is not None or work.run.model.reasoning_rank is not None)
        rows = work.architecture.rows + work.copies if made else 0
        phases[SAVING] = {"stock tables": 4 * rows * work.architecture.hidden * work.architecture.tables}
    if work.held_out:
        # Held-out problems are answered by Transformers; before the first step there is no optimizer state.
        before = {"optimizer": 0.0} if work.grpo["eval_strategy"] == "no" else {}
        phases[EVALUATION] = {**_sampling(work, work.held_out), **before}
    return {phase: _with_fragments({**standing, **parts}, phase, work) for phase, parts in phases.items()}


def _standing(work: Workload) -> Parts:
    """Parts that stay in memory through all phases."""
    shape = work.architecture
    weights: float = work.trained_weights * work.trained_bytes + work.frozen_weights * work.frozen_bytes
    if work.bits is not None:  # 4 bits and 8 come with a scale for each block of weights, or row
        of_weight = work.bits / 8 + (0.016 if work.bits == 4 else 0.004)
        weights += shape.linear_weights * (of_weight - work.frozen_bytes)
    parts = {
        "program": _PROGRAM + shape.rows * _TOKENIZER_BYTES if work.device.is_cpu else _CUDA_CONTEXT,
        "weights": weights / work.shards,
        "optimizer": work.optimizer_state / work.shards,
        "vllm": 0.0 if work.grpo["vllm_enable_sleep_mode"] else work.vllm_memory or 0.0,
    }
    if work.grpo["beta"] and work.lora is None:
        parts["reference"] = _reference(work) / work.shards
    if work.device.is_cpu and work.bits is not None:
        parts["loading"] = _QUANTIZING * shape.linear_weights
    if work.processes > work.shards:  # DistributedDataParallel copies gradients into buckets
        parts["buckets"] = work.trained_weights * work.trained_bytes
    if work.shards > 1:  # the largest table, gathered for its products, and its gradient
        parts["gathered"] = 2 * _table_bytes(work)
    return parts


def _with_fragments(parts: Parts, phase: str, work: Workload) -> Parts:
    """The parts, with the memory that the allocator holds in fragments."""
    beside_adapters = work.lora is not None and phase in (FORWARD, BACKWARD)
    share = _FRAGMENTS_BESIDE_ADAPTERS if beside_adapters else _FRAGMENTS
    passing = sum(parts.get(name, 0.0) for name in _COMING_AND_GOING)
    parts = {**parts, "allocator": (share if work.device.is_cpu else _FRAGMENTS_ON_A_CARD) * passing}
    return {name: size for name, size in parts.items() if size}


def _backward(work: Workload, forward: Parts, gradients: float) -> Parts:
    """The larger of two moments: the beginning, with all activations, and the end, with the gradients of all layers."""
    tokens = work.at_once * work.tokens
    inside = _one_layer(work, tokens) + (_kept_of_layer(work, tokens) if work.grpo["gradient_checkpointing"] else 0.0)
    # A table's gradient is computed apart from that of earlier batches and, with several processes, from that of the
    # input side (`training.models.load`).
    table = 0.0 if work.lora is not None else _table_bytes(work)
    again = table * ((work.batches > 1) + (work.processes > 1))
    first = {
        **forward,
        "gradients": gradients if work.batches > 1 else min(gradients, table),
        "activations": forward["activations"] + inside,
        "logits": forward["logits"] + again,
    }
    last = {"gradients": gradients, "activations": inside, "logits": again}
    return max(first, last, key=lambda parts: sum(parts.values()))


def _reference(work: Workload) -> float:
    return (work.architecture.weights + work.copy_weights * work.architecture.tables) * work.trained_bytes


def kept_activations(work: Workload) -> float:
    """Bytes that a forward pass of one batch keeps for the backward pass."""
    tokens, shape = work.at_once * work.tokens, work.architecture
    of_layer = 4 * shape.hidden * tokens if work.grpo["gradient_checkpointing"] else _kept_of_layer(work, tokens)
    return shape.layers * of_layer + 12 * shape.hidden * tokens


def _kept_of_layer(work: Workload, tokens: int) -> int:
    shape = work.architecture
    hidden, query, head_norm, inner, further_norm = _KEPT[work.lora is not None, work.halved_by]
    found = (hidden + (shape.family.norms - 2) * further_norm) * shape.hidden
    found += query * shape.query_width + inner * shape.intermediate
    found += head_norm * (shape.query_width + shape.key_width) * shape.family.head_norms
    return tokens * found


def cast_weights(work: Workload) -> float:
    """Bytes of the 16-bit copies of float32 weights that autocast makes and the backward pass needs."""
    bytes_of_weight = work.trained_bytes if work.lora is None else work.frozen_bytes
    if work.halved_by is None or bytes_of_weight < 4 or work.bits is not None:
        return 0.0
    shape = work.architecture
    return 2 * shape.linear_weights / (shape.layers if work.grpo["gradient_checkpointing"] else 1)


def _one_layer(work: Workload, tokens: int) -> float:
    """Bytes that one layer holds at once in a pass that keeps nothing for the backward pass."""
    shape = work.architecture
    flowing = tokens * (8 * shape.hidden + work.width * (3 * shape.intermediate + 4 * shape.query_width))
    dequantized = 0 if work.bits is None else 4 * max(inputs * outputs for inputs, outputs in shape.linears)
    return flowing + dequantized


def _head_blocks(work: Workload) -> float:
    scored, rows = work.at_once * work.completion, work.architecture.rows
    hidden_states = 4 * scored * work.architecture.hidden
    if work.device.is_cpu:
        blocks = _BLOCKS_ALIVE * (2 if work.copies else 1)
        return 4 * blocks * min(_BLOCK_POSITIONS, scored) * min(_BLOCK_ROWS, rows) + hidden_states
    logits = 4 * _BLOCKS_ALIVE * min(_BLOCK_POSITIONS_ON_A_CARD, scored) * min(_BLOCK_ROWS_ON_A_CARD, rows)
    return logits + hidden_states + (_table_bytes(work) / 2 if cast_weights(work) else 0.0)


def _sampling(work: Workload, completions: int) -> Parts:
    """The parts of so many completions that Transformers samples together."""
    shape, tensors = work.architecture, _SAMPLING_TENSORS_WITH_COPIES if work.copies else _SAMPLING_TENSORS
    # Normed keys are float32 under autocast, like the weights of their norms.
    key_bytes = 4 if shape.family.head_norms and work.lora is None else work.width
    return {
        "kv cache": completions * work.tokens * shape.layers * shape.key_width * (key_bytes + work.width),
        "logits": 4 * tensors * completions * (shape.rows + work.copies),
        "activations": _one_layer(work, completions * work.prompt),
        "cast weights": 2 * shape.linear_weights if cast_weights(work) else 0.0,
    }


def _table_bytes(work: Workload) -> float:
    """Bytes of the largest trained table."""
    return 4 * (work.architecture.rows + work.own_rows) * work.architecture.hidden
