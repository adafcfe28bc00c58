"""The shape of a language model by its `config.json`, and its number of weights."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.files import read_json

_SHAPE = (
    *("model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings"),
)
# What is read of the `config.json` of the shipped models, for a machine that has not fetched them.
SHIPPED: Mapping[str, Mapping[str, Any]] = {
    name: {**dict(zip(_SHAPE, shape, strict=True)), "tie_word_embeddings": True}
    for name, *shape in (
        ("Qwen/Qwen3-0.6B", "qwen3", 1024, 3072, 28, 16, 8, 128, 151936, 40960),
        ("Qwen/Qwen3-1.7B", "qwen3", 2048, 6144, 28, 16, 8, 128, 151936, 40960),
        ("Qwen/Qwen2.5-1.5B-Instruct", "qwen2", 1536, 8960, 28, 12, 2, 128, 151936, 32768),
        ("google/gemma-3-1b-it", "gemma3_text", 1152, 6912, 26, 4, 1, 256, 262144, 32768),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "llama", 576, 1536, 30, 9, 3, 64, 49152, 8192),
    )
}
CONFIG = "config.json"


@dataclass(frozen=True)
class _Family:
    """Properties of a `model_type` that its configuration leaves open.

    Attributes:
        norms: of the hidden size, in each layer; `norm_values` per dimension: 2 where a norm has a bias.
        head_norms: whether queries and keys are normed, with weights of the size of a head.
        biases: linear layers that have one: `qkv`, `o`, `mlp`, `head`.
        head_dim, tied: defaults for a configuration without these keys.
    """

    norms: int = 2
    norm_values: int = 1
    head_norms: bool = False
    biases: frozenset[str] = frozenset()
    gated: bool = True
    head_dim: int | None = None
    tied: bool = False


_ALL_BIASES = frozenset(("qkv", "o", "mlp"))
_FAMILIES = {
    "llama": _Family(),
    "mistral": _Family(),
    "mixtral": _Family(),
    "smollm3": _Family(tied=True),
    "qwen2": _Family(biases=frozenset(("qkv",))),
    "qwen3": _Family(head_norms=True, head_dim=128),
    "qwen3_moe": _Family(head_norms=True),
    "gemma": _Family(head_dim=256, tied=True),
    "gemma2": _Family(norms=4, head_dim=256, tied=True),
    "gemma3_text": _Family(norms=4, head_norms=True, head_dim=256, tied=True),
    "phi": _Family(norms=1, norm_values=2, biases=_ALL_BIASES | {"head"}, gated=False),
    "gpt2": _Family(norms=2, norm_values=2, biases=_ALL_BIASES, gated=False, tied=True),
}
# Names of GPT-2's configuration; a feed-forward part whose size it leaves out is four times as wide.
_OLD_NAMES = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
}


@dataclass(frozen=True)
class Architecture:
    """A decoder's shape.

    Attributes:
        rows: of the embedding before any copies, padding rows included.
        positions: rows of a table of absolute positions; 0 where positions are rotary.
        experts, active_experts: of a layer, and how many of them each token goes through.
        is_known: whether the rules of its family are; else those of Llama stand in.
    """

    model_type: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rows: int
    tied: bool
    context: int | None
    positions: int = 0
    experts: int = 1
    active_experts: int = 1
    attention_bias: bool = False
    mlp_bias: bool = False
    is_known: bool = True

    @property
    def family(self) -> _Family:
        return _FAMILIES.get(self.model_type, _Family())

    @property
    def query_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def key_width(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def tables(self) -> int:
        """Tables of the vocabulary's size: embedding, and a head of its own."""
        return 1 if self.tied else 2

    @property
    def linears(self) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of each linear layer of a block, those of all experts."""
        attention = [(self.hidden, self.query_width), *[(self.hidden, self.key_width)] * 2]
        attention.append((self.query_width, self.hidden))
        up = [(self.hidden, self.intermediate)] * (2 if self.family.gated else 1)
        router = [(self.hidden, self.experts)] if self.experts > 1 else []
        return (*attention, *router, *[*up, (self.intermediate, self.hidden)] * self.experts)

    @property
    def linear_weights(self) -> int:
        """Of all blocks, biases aside."""
        return self.layers * sum(inputs * outputs for inputs, outputs in self.linears)

    @property
    def active_weights(self) -> int:
        """Those of them that one token is multiplied by."""
        idle = (self.experts - self.active_experts) * (3 if self.family.gated else 2)
        return self.linear_weights - self.layers * idle * self.hidden * self.intermediate

    @property
    def table_weights(self) -> int:
        """Of embedding and head, without copies."""
        return self.rows * self.hidden * self.tables

    @property
    def weights(self) -> int:
        """All parameters, without copies; those that are tied once."""
        return self.linear_weights + self.table_weights + self._small_weights

    @property
    def _small_weights(self) -> int:
        """Norms, biases and absolute positions."""
        family, biases = self.family, set(self.family.biases)
        biases |= {"qkv", "o"} if self.attention_bias else set()
        biases |= {"mlp"} if self.mlp_bias else set()
        up = 2 if family.gated else 1
        widths = {
            "qkv": self.query_width + 2 * self.key_width,
            "o": self.hidden,
            "mlp": self.experts * (up * self.intermediate + self.hidden),
        }
        of_layer = family.norms * family.norm_values * self.hidden + 2 * self.head_dim * family.head_norms
        of_layer += sum(width for name, width in widths.items() if name in biases)
        head_bias = self.rows if "head" in biases else 0
        return self.layers * of_layer + family.norm_values * self.hidden + head_bias + self.positions * self.hidden


def read_architecture(config: Mapping[str, Any], where: str) -> Architecture:
    """The shape that a `config.json` describes, its text part where it has several.

    Raises:
        UserError: it says nothing of a language model's shape; `where` is what it was read from.
    """
    config = config.get("text_config") or config
    kind = str(config.get("model_type", ""))
    family = _FAMILIES.get(kind, _Family())

    def value(name: str, otherwise: int | None = None) -> int:
        found = config.get(name, config.get(_OLD_NAMES.get(name, name)))
        found = otherwise if found is None else found
        if not isinstance(found, int):
            raise UserError(f"{where}: says no {name}: nothing can be planned for a model without one")
        return found

    hidden, heads = value("hidden_size"), value("num_attention_heads")
    kv_heads = value("num_key_value_heads", heads)
    experts = value("num_local_experts", value("num_experts", 1))  # the newer name first
    return Architecture(
        model_type=kind,
        hidden=hidden,
        intermediate=value("moe_intermediate_size" if kind == "qwen3_moe" else "intermediate_size", 4 * hidden),
        layers=value("num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=value("head_dim", family.head_dim or hidden // heads),
        rows=value("vocab_size"),
        tied=bool(config.get("tie_word_embeddings", family.tied)),
        context=config.get("max_position_embeddings", config.get("n_positions")),
        positions=value("max_position_embeddings") if kind == "gpt2" else 0,
        experts=experts,
        active_experts=value("num_experts_per_tok", 1) if experts > 1 else 1,
        attention_bias=bool(config.get("attention_bias", False)),
        mlp_bias=bool(config.get("mlp_bias", False)),
        is_known=kind in _FAMILIES,
    )


def architecture_of(name: str, key: str = "model.name") -> Architecture:
    """The shape of a folder's model, of one that the hub's cache on this machine holds, or of a shipped one.

    Raises:
        UserError: none of these; nothing is fetched.
    """
    folder = folder_at_hand(name)
    if folder is not None:
        return read_architecture(read_json(folder / CONFIG), f"{key}={name}: its {CONFIG}")
    if name in SHIPPED:
        return read_architecture(SHIPPED[name], name)
    raise UserError(
        f"{key}={name}: its shape is not at hand, and a plan fetches nothing: give a folder with its {CONFIG}, or one "
        f"of {', '.join(SHIPPED)}"
    )


def folder_at_hand(name: str) -> Path | None:
    """Where this machine has a model's configuration: a folder, or the newest snapshot in the hub's cache."""
    folder = Path(name).expanduser()
    if (folder / CONFIG).is_file():
        return folder
    home = Path(os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "huggingface"))
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    found = (hub / f"models--{name.replace('/', '--')}" / "snapshots").glob(f"*/{CONFIG}")
    newest = max(found, key=lambda file: file.stat().st_mtime, default=None)
    return None if newest is None else newest.parent
