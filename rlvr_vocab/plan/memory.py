"""Memory of one process by phase of a run, and in each phase by part.

What autograd keeps of a layer is counted, not guessed: `tests/plan/test_activations.py` compares the bytes below with
what the hooks of saved tensors see on models of each kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rlvr_vocab.plan.devices import GIB, Device
from rlvr_vocab.plan.workload import Workload

Parts = Mapping[str, float]
# Phases, in the order of a run.
LOADING, GENERATION, LOGPROBS, FORWARD, BACKWARD = "loading", "generation", "logprobs", "forward", "backward"
OPTIMIZER, SAVING, EVALUATION = "optimizer", "saving", "evaluation"


@dataclass(frozen=True)
class _Kept:
    """Bytes that autograd keeps of a layer, per token.

    Attributes:
        hidden: per hidden dimension: two norms with their inputs, and the inputs of attention and feed-forward part.
        query: per query dimension: queries, and keys and values spread over all heads, as attention takes them, and
            what it gives.
        head_norm: per dimension of queries and keys, where these are normed.
        inner: per inner dimension of the feed-forward part.
        further_norm: per hidden dimension of each norm beyond two.
    """

    hidden: int
    query: int
    head_norm: int
    inner: int
    further_norm: int


# By whether an adapter trains, and what has products in 16 bits. An adapter keeps the inputs that its dropout leaves
# and the mask in place of the layer's input, in float32 where autocast does not cast them; autocast keeps an input once
# for each layer that it is cast for.
_KEPT = {
    (False, None): _Kept(24, 16, 8, 16, 8),
    (False, "autocast"): _Kept(26, 8, 6, 8, 11),
    (True, None): _Kept(48, 24, 4, 20, 4),
    (True, "autocast"): _Kept(36, 14, 4, 12, 4),
    (True, "weights"): _Kept(44, 16, 4, 14, 4),
}
# Python with torch, TRL and what they import, resident on a processor; the context of CUDA.
_PROGRAM, _CUDA_CONTEXT = 0.79 * GIB, 0.6 * GIB
_TOKENIZER_BYTES = 720  # of objects for each standard token; copies hardly count
# What an allocator holds beside what is alive, in fragments of what comes and goes: glibc's malloc, more of it where an
# adapter's own tensors lie between those that are kept, and a card's.
_FRAGMENTS, _FRAGMENTS_BESIDE_ADAPTERS, _FRAGMENTS_ON_A_CARD = 0.15, 0.55, 0.10
# And malloc, of what all layers keep or compute again, where small gradients come to lie in between.
_FRAGMENTS_BETWEEN_GRADIENTS = 0.27
_UPDATE = 0.05 * GIB  # what clipping and the optimizer bring with them on a processor
# Bytes for each weight that quantizing on a processor has left in malloc's hands, restored and in 16 bits.
_QUANTIZING = 5.5
_MAPPED_FROM = 2**25  # bytes of a block from which glibc's malloc gives it back at once
# Positions and rows of one block of the log-prob function, and about how many such blocks are alive: by Triton fewer.
_BLOCK_POSITIONS, _BLOCK_ROWS, _BLOCKS_ALIVE = 1024, 4096, 5
_BLOCK_POSITIONS_ON_A_CARD, _BLOCK_ROWS_ON_A_CARD, _BLOCKS_ALIVE_BY_TRITON = 4096, 16384, 2
# Tensors of completions × rows in float32 that a step of sampling has at once: without copies, and with them.
_SAMPLING_TENSORS, _SAMPLING_TENSORS_WITH_COPIES = 5, 8


def memory_by_phase(work: Workload, device: Device) -> dict[str, dict[str, float]]:
    """Bytes at the peak of each phase of a run, after its first optimisation step, by part."""
    standing, tokens = _standing(work, device), work.at_once * work.tokens
    trained = work.trained_weights * work.trained_bytes / work.shards
    kept, inside = kept_activations(work), _of_one_layer(work, tokens)
    head, casts = _head_blocks(work, device), cast_weights(work)
    during = {
        GENERATION: {**_generation(work), "vllm": _engine(work, device)},
        LOGPROBS: {
            "activations": inside,
            "logits": head,
            "reference": _reference(work) if work.logs_kl else 0.0,
        },
        FORWARD: {
            "gradients": trained if work.batches > 1 else 0.0,
            "activations": kept,
            "cast weights": casts,
            "logits": head,
        },
        BACKWARD: _backward(work, trained, head),
        OPTIMIZER: {"gradients": trained},
        **({SAVING: {"stock tables": _stock_tables(work)}} if work.saves else {}),
        **({EVALUATION: _evaluation(work)} if work.held_out else {}),
    }
    found = {
        phase: _with_fragments({**standing, **parts}, _fragments(work, phase, device))
        for phase, parts in during.items()
    }
    if device.is_cpu:
        _keep_small_blocks(found, work)
        _scatter_between_gradients(found, work)
    loading = {name: standing[name] for name in standing if name not in ("optimizer", "buckets")}
    return {LOADING: {**loading, "stock tables": _stock_tables(work)}, **found}


def _backward(work: Workload, trained: float, head: float) -> dict[str, float]:
    """At its beginning, with all activations; or at its end, when they have made room for the gradients of layers."""
    tokens = work.at_once * work.tokens
    inside = _of_one_layer(work, tokens) + (kept_of_layer(work, tokens) if work.checkpointing else 0.0)
    # A table's gradient is made apart from that of earlier batches, which it is added to, and, where processes have to
    # agree on it, from that of the input side (`training.models.load`).
    table = 0.0 if work.lora is not None else _table_bytes(work)
    again = table * ((work.batches > 1) + (work.processes > 1))
    first = {
        "gradients": trained if work.batches > 1 else min(trained, table),
        "activations": kept_activations(work) + inside,
        "cast weights": cast_weights(work),
        "logits": head + again,
    }
    last = {"gradients": trained, "activations": inside, "logits": again}
    return max(first, last, key=lambda parts: sum(parts.values()))


def _standing(work: Workload, device: Device) -> dict[str, float]:
    program = _PROGRAM + work.architecture.rows * _TOKENIZER_BYTES if device.is_cpu else _CUDA_CONTEXT
    parts = {
        "program": program,
        "weights": _weights(work) / work.shards,
        "optimizer": work.optimizer_state / work.shards,
        "reference": _reference(work) / work.shards if work.holds_reference else 0.0,
        "vllm": 0.0 if work.vllm_sleeps else _engine(work, device),
        "loading": _QUANTIZING * work.architecture.linear_weights if device.is_cpu and work.bits is not None else 0.0,
    }
    if work.processes > work.shards:  # DistributedDataParallel sends gradients as copies in buckets
        parts["buckets"] = work.trained_weights * work.trained_bytes
    if work.shards > 1:  # what is gathered to be computed with: the largest part, and its gradient
        parts["gathered"] = 2 * _table_bytes(work)
    return {name: size for name, size in parts.items() if size}


def _engine(work: Workload, device: Device) -> float:
    """What vLLM holds of the card."""
    return (work.vllm_share or 0.0) * device.memory


def _weights(work: Workload) -> float:
    if work.lora is None:
        return work.trained_weights * work.trained_bytes
    shape = work.architecture
    # 4 bits and 8 come with a scale for each block of weights, or row.
    of_linear = work.frozen_bytes if work.bits is None else work.bits / 8 + (0.016 if work.bits == 4 else 0.004)
    quantized = shape.linear_weights if work.bits is not None else 0
    frozen = (work.frozen_weights - quantized) * work.frozen_bytes + quantized * of_linear
    return frozen + work.trained_weights * work.trained_bytes


def _reference(work: Workload) -> float:
    return (work.architecture.weights + work.copy_weights * work.architecture.tables) * work.trained_bytes


def kept_activations(work: Workload) -> float:
    """What a forward pass keeps for the backward pass, of one batch."""
    tokens, shape = work.at_once * work.tokens, work.architecture
    last = 12 * shape.hidden * tokens
    if work.checkpointing:
        return 4 * shape.hidden * tokens * shape.layers + last
    return shape.layers * kept_of_layer(work, tokens) + last


def kept_of_layer(work: Workload, tokens: int) -> float:
    """Bytes that autograd keeps of one layer that is not checkpointed."""
    shape, kept = work.architecture, _KEPT[work.lora is not None, work.halved_by]
    further_norms = max(0, shape.family.norms - 2)
    found: float = (kept.hidden + further_norms * kept.further_norm) * shape.hidden + kept.query * shape.query_width
    if shape.family.head_norms:
        found += kept.head_norm * (shape.query_width + shape.key_width)
    inner = shape.intermediate * shape.active_experts
    found += kept.inner * inner * (1 if shape.family.gated else 1.5)
    return tokens * found + _scores(work, tokens)


def _scores(work: Workload, tokens: int) -> float:
    """Of attention that writes its scores down: once in float32, twice in the type of products."""
    if work.attention != "eager":
        return 0.0
    return tokens * work.architecture.heads * work.tokens * (4 + 2 * (2 if work.half else 4))


def cast_weights(work: Workload) -> float:
    """Copies in 16 bits of weights that lie in float32, which autocast makes and the backward pass needs."""
    wide = work.trained_bytes if work.lora is None else work.frozen_bytes
    if not work.half or wide < 4 or work.bits is not None:
        return 0.0
    of_one = work.architecture.linear_weights / (work.architecture.layers if work.checkpointing else 1)
    return 2 * of_one


def _of_one_layer(work: Workload, tokens: int) -> float:
    """What a layer has at once while nothing is kept of it."""
    shape, width = work.architecture, 2 if work.half else 4
    inner = shape.intermediate * shape.active_experts
    flowing = tokens * (8 * shape.hidden + width * (3 * inner + 4 * shape.query_width)) + _scores(work, tokens)
    dequantized = 0.0 if work.bits is None else 4 * max(inputs * outputs for inputs, outputs in shape.linears)
    return flowing + dequantized


def _head_blocks(work: Workload, device: Device) -> float:
    scored, rows = work.at_once * work.completion, work.architecture.rows
    if device.is_cpu:
        block = min(_BLOCK_POSITIONS, scored) * min(_BLOCK_ROWS, rows) * _BLOCKS_ALIVE * (2 if work.copies else 1)
    else:
        alive = _BLOCKS_ALIVE_BY_TRITON if device.has_bf16 else _BLOCKS_ALIVE
        block = min(_BLOCK_POSITIONS_ON_A_CARD, scored) * min(_BLOCK_ROWS_ON_A_CARD, rows) * alive
    cast_table = _table_bytes(work) / 2 if cast_weights(work) and not device.is_cpu else 0.0
    return 4 * block + cast_table + 4 * scored * work.architecture.hidden


def _generation(work: Workload) -> dict[str, float]:
    if work.vllm_share is not None:
        return {}
    shape, width = work.architecture, 2 if work.half else 4
    # Keys that were normed are float32 under autocast, as the weights of their norms are.
    key_width = 4 if shape.family.head_norms and work.lora is None else width
    cache = work.drawn * work.tokens * shape.layers * shape.key_width * (key_width + width)
    tensors = _SAMPLING_TENSORS_WITH_COPIES if work.copies else _SAMPLING_TENSORS
    return {
        "kv cache": cache,
        "logits": 4 * tensors * work.drawn * work.all_rows,
        "activations": _of_one_layer(work, work.drawn * work.prompt),
        "cast weights": 2 * work.architecture.linear_weights if cast_weights(work) else 0.0,
    }


def _evaluation(work: Workload) -> dict[str, float]:
    """Of answers to held-out problems, which Transformers samples; without optimizer state before the first step."""
    sampling = _generation(replace(work, drawn=work.held_out, vllm_share=None))
    return sampling if work.evaluates_between_steps else {**sampling, "optimizer": 0.0}


def _table_bytes(work: Workload) -> float:
    """Of the largest table that trains."""
    own = work.copies if work.rank is None else 0
    return 4 * (work.architecture.rows + own) * work.architecture.hidden


def _stock_tables(work: Workload) -> float:
    """Tables with a row for each id, as a folder has them, where the model holds them otherwise."""
    if not work.copies or (work.rank is None and work.lora is None):
        return 0.0
    return 4 * work.all_rows * work.architecture.hidden * work.architecture.tables


def _fragments(work: Workload, phase: str, device: Device) -> float:
    """Share of what comes and goes that the allocator holds beside it."""
    if not device.is_cpu:
        return _FRAGMENTS_ON_A_CARD
    return _FRAGMENTS_BESIDE_ADAPTERS if work.lora is not None and phase in (FORWARD, BACKWARD) else _FRAGMENTS


def _with_fragments(parts: Parts, share: float) -> dict[str, float]:
    return {name: size for name, size in {**parts, "allocator": share * _passing(parts)}.items() if size}


def _passing(parts: Parts) -> float:
    """Bytes of what comes and goes."""
    return sum(parts.get(name, 0.0) for name in ("activations", "kv cache", "logits"))


def _small_gradients(work: Workload) -> float:
    """Of weights whose gradients malloc takes for small: below 32 MiB each it maps none by itself."""
    if work.lora is not None:
        return 0.0
    shape = work.architecture
    largest = max(inputs * outputs for inputs, outputs in shape.linears) * work.trained_bytes
    return shape.linear_weights * work.trained_bytes if largest < _MAPPED_FROM else 0.0


def _keep_small_blocks(by_phase: dict[str, dict[str, float]], work: Workload) -> None:
    """What malloc was given back in small blocks it keeps, so that other phases lie on top of what was kept."""
    activations, gradients = kept_activations(work), _small_gradients(work)
    for phase in by_phase.keys() - {FORWARD, BACKWARD}:
        kept = activations + (cast_weights(work) + _UPDATE if phase == OPTIMIZER else gradients)
        by_phase[phase]["allocator"] = max(by_phase[phase].get("allocator", 0.0), kept - _passing(by_phase[phase]))


def _scatter_between_gradients(by_phase: dict[str, dict[str, float]], work: Workload) -> None:
    """Holes between small gradients, which what comes after does not fit: the next batch, or the next layer that is
    computed again."""
    if not _small_gradients(work) or (work.batches == 1 and not work.checkpointing):
        return
    all_layers = work.architecture.layers * kept_of_layer(work, work.at_once * work.tokens)
    for phase in (*((FORWARD,) if work.batches > 1 else ()), BACKWARD, OPTIMIZER):
        by_phase[phase]["allocator"] += _FRAGMENTS_BETWEEN_GRADIENTS * all_layers
