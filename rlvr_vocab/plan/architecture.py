"""The shape of a language model, from its `config.json`, and its number of weights."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.files import read_json

CONFIG = "config.json"
_KEYS = (
    *("model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "head_dim", "vocab_size"),
)
# From the `config.json` of the shipped models, for machines without these models.
SHIPPED: Mapping[str, Mapping[str, Any]] = {
    name: {**dict(zip(_KEYS, values, strict=True)), "tie_word_embeddings": True}
    for name, *values in (
        ("Qwen/Qwen3-0.6B", "qwen3", 1024, 3072, 28, 16, 8, 128, 151936),
        ("Qwen/Qwen3-1.7B", "qwen3", 2048, 6144, 28, 16, 8, 128, 151936),
        ("Qwen/Qwen2.5-1.5B-Instruct", "qwen2", 1536, 8960, 28, 12, 2, 128, 151936),
        ("google/gemma-3-1b-it", "gemma3_text", 1152, 6912, 26, 4, 1, 256, 262144),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "llama", 576, 1536, 30, 9, 3, 64, 49152),
    )
}


@dataclass(frozen=True)
class Family:
    """Properties of a `model_type` that its configuration leaves open."""

    norms: int = 2  # of the hidden size, in each layer
    head_norms: bool = False  # whether queries and keys are normed, with weights of the size of a head
    qkv_bias: bool = False
    head_dim: int | None = None  # this and the next: defaults of keys that a configuration may lack
    tied: bool = False


FAMILIES = {
    "llama": Family(),
    "mistral": Family(),
    "smollm3": Family(tied=True),
    "qwen2": Family(qkv_bias=True),
    "qwen3": Family(head_norms=True, head_dim=128),
    "gemma": Family(head_dim=256, tied=True),
    "gemma2": Family(norms=4, head_dim=256, tied=True),
    "gemma3_text": Family(norms=4, head_norms=True, head_dim=256, tied=True),
}


@dataclass(frozen=True)
class Architecture:
    """The shape of a dense decoder; `rows` of its embedding are those before any copies, padding rows included."""

    model_type: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rows: int
    tied: bool

    @property
    def family(self) -> Family:
        """Llama's where the family is unknown."""
        return FAMILIES.get(self.model_type, Family())

    @property
    def query_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def key_width(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def tables(self) -> int:
        """Tables of the vocabulary's size: the embedding, and the head unless it is tied."""
        return 1 if self.tied else 2

    @property
    def linears(self) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of each linear layer of a block."""
        hidden, inner = self.hidden, self.intermediate
        attention = ((hidden, self.query_width), *[(hidden, self.key_width)] * 2, (self.query_width, hidden))
        return (*attention, (hidden, inner), (hidden, inner), (inner, hidden))

    @property
    def linear_weights(self) -> int:
        """Weights of the linear layers of all blocks, without biases."""
        return self.layers * sum(inputs * outputs for inputs, outputs in self.linears)

    @property
    def weights(self) -> int:
        """All parameters without copies; tied ones count once."""
        family = self.family
        of_layer = family.norms * self.hidden + 2 * self.head_dim * family.head_norms
        of_layer += (self.query_width + 2 * self.key_width) * family.qkv_bias
        in_tables = self.rows * self.hidden * self.tables
        return self.linear_weights + in_tables + self.layers * of_layer + self.hidden


def read_architecture(config: Mapping[str, Any], where: str) -> Architecture:
    """The shape that a `config.json` or its text part describes; UserError, which begins with `where`, for others."""
    config = config.get("text_config") or config
    kind = str(config.get("model_type", ""))
    family = FAMILIES.get(kind, Family())
    if config.get("num_local_experts") or config.get("num_experts"):
        raise UserError(f"{where}: a mixture of experts; only dense models can be planned")

    def value(name: str, default: int | None = None) -> int:
        found = config.get(name)
        found = default if found is None else found
        if not isinstance(found, int):
            raise UserError(f"{where}: has no {name}, which plan needs")
        return found

    hidden, heads = value("hidden_size"), value("num_attention_heads")
    return Architecture(
        model_type=kind,
        hidden=hidden,
        intermediate=value("intermediate_size"),
        layers=value("num_hidden_layers"),
        heads=heads,
        kv_heads=value("num_key_value_heads", heads),
        head_dim=value("head_dim", family.head_dim or hidden // heads),
        rows=value("vocab_size"),
        tied=bool(config.get("tie_word_embeddings", family.tied)),
    )


def architecture_of(name: str) -> Architecture:
    """The shape of the model in a folder, the hub's cache or the table of shipped models; UserError for others."""
    from huggingface_hub import try_to_load_from_cache  # --help does not need it

    file: Any = Path(name).expanduser() / CONFIG
    if not file.is_file():
        with suppress(ValueError):  # a path is no name on the hub
            file = try_to_load_from_cache(name, CONFIG)
    if isinstance(file, str | Path) and Path(file).is_file():
        return read_architecture(read_json(Path(file)), f"model.name={name}: its {CONFIG}")
    if name in SHIPPED:
        return read_architecture(SHIPPED[name], name)
    remedy = f"download the model, give a folder with its {CONFIG}, or plan for one of {', '.join(SHIPPED)}"
    raise UserError(f"model.name={name}: this machine has no {CONFIG} of it, and plan downloads nothing: {remedy}")
