"""Writes the expanded checkpoint: an ordinary model folder in which every reasoning token copies a standard one."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, get_args

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils.hub import cached_file

from rlvr_vocab.errors import UserError
from rlvr_vocab.files import atomic_dir, json_text, read_json_if_there
from rlvr_vocab.rewards.reward import THINK_TAGS
from rlvr_vocab.text import pluralize
from rlvr_vocab.vocab.copied_rows import ROWS_AT_ONCE, RowDelta, save_differences
from rlvr_vocab.vocab.layout import NO_TAG, Mode, VocabLayout, refuse_expanded, refuse_quantized
from rlvr_vocab.vocab.refuse_off_policy import NEUTRAL
from rlvr_vocab.vocab.tokenizer import (
    OpenThinking,
    add_think_tags,
    find_turn_ids,
    open_thinking_in_template,
    write_tokenizer,
)
from rlvr_vocab.vocab.weights import (
    NO_CODE,
    READ_AS_DATA,
    reading_model,
    refuse_invalid_generation_config,
    refuse_not_finite,
    weights_fingerprint,
)

EXPANSION_RECORD = "expansion.json"


@dataclass(frozen=True)
class Expansion:
    """What to add to a base model.

    `size` is the number of reasoning tokens, at most `multiplicity` times the vocabulary; None copies every standard
    token `multiplicity` times. `source_ids` are their sources, instead of `k mod V`, and set the size. `init_noise` is
    the standard deviation of the noise on copied rows, relative to the row's own; 0 copies exactly. `VocabLayout`
    explains `reasoning_rank`, and `rlvr_vocab.vocab.tokenizer` explains `open_thinking`. `chat_template` is the text of
    a template for a base model without one.
    """

    size: int | None = 0
    multiplicity: int = 1
    source_ids: tuple[int, ...] | None = None
    mode: Mode = "expand"
    preserve_odds: bool = True
    think_tags: tuple[str, str] = THINK_TAGS
    init_noise: float = 0.0
    reasoning_rank: int | None = 16
    open_thinking: OpenThinking = "auto"
    chat_template: str | None = None
    seed: int = 42

    def __post_init__(self) -> None:
        if self.size is not None and self.size < 0:
            raise UserError(f"size={self.size}: must be 0 (the baseline), above, or None")
        if self.open_thinking not in (choices := get_args(OpenThinking)):
            raise UserError(f"open_thinking={self.open_thinking!r}: must be one of {', '.join(choices)}")
        if self.init_noise and self.reasoning_rank == 0:
            raise UserError(f"init_noise={self.init_noise}: reasoning_rank=0 keeps copies equal to their sources")


@dataclass(frozen=True)
class ExpansionPlan:
    """Everything about an expanded checkpoint but its weights.

    `expansion` None leaves tables and tokenizer as they are. The tokenizer is the base's, with think tags and a
    template that opens the thinking where needed. `tag_pieces` has, for each think tag that the base lacked, the ids
    whose mean row it starts as.
    """

    base: str
    source_kwargs: Mapping[str, Any]
    expansion: Expansion | None
    tokenizer: PreTrainedTokenizerBase
    layout: VocabLayout
    tag_pieces: Mapping[int, list[int]]
    context_length: int | None


def expand(base: str, out: str | Path, expansion: Expansion | None = None) -> VocabLayout:
    """Write the expanded checkpoint of a base model, by default a baseline without reasoning tokens."""
    plan = plan_expansion(base, expansion or Expansion())
    write_expansion(plan, Path(out))
    return plan.layout


def plan_expansion(
    base: str,
    expansion: Expansion | None,
    source_kwargs: Mapping[str, Any] | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> ExpansionPlan:
    """Read configuration and tokenizer of `base` and lay out its reasoning vocabulary; no weights are read.

    `base` is the hub name or folder of a causal language model, found with `source_kwargs` (`revision`, `token`,
    `trust_remote_code`, …). Without an `expansion` it gets no new tokens or rows. `tokenizer` replaces its own.
    """
    source_kwargs = {**NO_CODE, **(source_kwargs or {})}
    config, own_tokenizer = read_base(base, source_kwargs)
    refuse_expanded(base)
    refuse_invalid_generation_config(base)
    try:
        generation = GenerationConfig.from_pretrained(base, **source_kwargs)
    except OSError:  # a folder without generation_config.json, which is legitimate
        generation = GenerationConfig.from_model_config(config)
    tokenizer = own_tokenizer if tokenizer is None else copy.deepcopy(tokenizer)
    return lay_out(base, config, generation, tokenizer, expansion, source_kwargs)


def lay_out(
    base: str,
    config: Any,
    generation: Any,
    tokenizer: PreTrainedTokenizerBase,
    expansion: Expansion | None,
    source_kwargs: Mapping[str, Any] = NO_CODE,
) -> ExpansionPlan:
    """The plan for a model with these configurations; adds the think tags to `tokenizer`."""
    wanted, text_config = expansion or Expansion(open_thinking="model"), config.get_text_config()
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if wanted.chat_template is not None:
        tokenizer.chat_template = wanted.chat_template
    tag_pieces = {} if expansion is None else add_think_tags(tokenizer, wanted.think_tags)
    ids = tokenizer.get_vocab()
    knows_tags = ids.keys() >= {*wanted.think_tags}
    open_id, close_id = (ids[tag] if knows_tags else NO_TAG for tag in wanted.think_tags)
    standard_size = text_config.vocab_size if expansion is None else max(text_config.vocab_size, len(tokenizer))
    source_ids = _source_ids(wanted, standard_size)
    layout = VocabLayout(
        standard_size=standard_size,
        source_ids=source_ids,
        think_open_id=open_id,
        think_close_id=close_id,
        turn_ids=find_turn_ids(tokenizer, wanted.think_tags),
        control_ids=_control_ids(generation, tokenizer, (open_id, close_id)),
        mode=wanted.mode,
        preserve_odds=wanted.preserve_odds,
        reasoning_rank=wanted.reasoning_rank if source_ids else None,
    )
    open_thinking_in_template(tokenizer, layout, wanted.open_thinking, base_knows_tag=open_id not in tag_pieces)
    context_length = getattr(text_config, "max_position_embeddings", None)
    return ExpansionPlan(base, source_kwargs, expansion, tokenizer, layout, tag_pieces, context_length)


def _source_ids(expansion: Expansion, standard_size: int) -> tuple[int, ...]:
    most = expansion.multiplicity * standard_size
    size = most if expansion.size is None else expansion.size
    if expansion.source_ids is None and size > most:
        raise UserError(
            f"{size} reasoning tokens are more than multiplicity {expansion.multiplicity} × {standard_size} standard "
            f"tokens: at most {most} (full), or a higher multiplicity",
        )
    return expansion.source_ids or tuple(k % standard_size for k in range(size))


def require_expanded_so(layout: VocabLayout, expansion: Expansion, name: str | Path) -> None:
    """UserError where a model has another reasoning vocabulary than is asked for; fields at their default fit any."""
    usual = Expansion()
    other = [] if layout.source_ids == _source_ids(expansion, layout.standard_size) else ["size or source_ids"]
    for field in ("mode", "preserve_odds", "reasoning_rank"):
        asked = getattr(expansion, field)
        other += [] if asked in (getattr(usual, field), getattr(layout, field)) else [field]
    if other:
        raise UserError(
            f"{name} is an expanded model already, with {pluralize(layout.size, 'reasoning token')} ({other[0]}): "
            "leave out reasoning_vocab_size and expansion, or take the model that it was made from"
        )


def write_expansion(plan: ExpansionPlan, out: Path) -> None:
    """Read the base's weights, expand them, and write the folder `out` atomically."""
    with atomic_dir(out) as folder:
        model = _read_weights(plan.base, plan.source_kwargs, dtype="auto")
        if plan.expansion is not None and plan.expansion.init_noise:
            model.float()  # bf16 would round small noise away
        differences = expand_in_memory(model, plan)
        model.save_pretrained(folder)
        write_beside_weights(plan.layout, plan.tokenizer, differences, folder)
        (folder / EXPANSION_RECORD).write_text(json_text(_expansion_record(plan)), encoding="utf-8")


def expand_in_memory(model: PreTrainedModel, plan: ExpansionPlan) -> dict[str, torch.Tensor]:
    """Add the rows of a plan to a loaded model; returns the deltas in the format of `save_differences`."""
    differences = dict[str, torch.Tensor]()
    if plan.expansion is not None:
        if not isinstance(model.get_input_embeddings(), torch.nn.Embedding):
            raise UserError(f"{plan.base} cannot be expanded: an adapter lies on its embedding")
        _refuse_other_vocabularies(model, plan.base)
        differences = _expand_weights(model, plan.layout, plan.expansion, plan.tag_pieces)
    _clean_generation_config(model, plan.tokenizer)
    return differences


def write_beside_weights(
    layout: VocabLayout, tokenizer: PreTrainedTokenizerBase, differences: Mapping[str, torch.Tensor], folder: Path
) -> None:
    if differences:
        save_differences(folder, differences)
    write_tokenizer(tokenizer, layout, folder)
    layout.save(folder)


def require_same_expansion(plan: ExpansionPlan, folder: Path) -> None:
    """UserError for an expanded folder whose content differs from what `write_expansion` would now write."""
    recorded, wanted = read_json_if_there(folder / EXPANSION_RECORD) or {}, _expansion_record(plan)
    if wanted["weights"] is None:  # not on this machine yet
        _read_weights(plan.base, plan.source_kwargs, dtype="auto")
        wanted = _expansion_record(plan)
    different = [name for name, value in wanted.items() if value is None or recorded.get(name) != value]
    if VocabLayout.load(folder) != plan.layout:
        different.append("layout")
    if different:
        raise UserError(
            f"{folder} was expanded otherwise than {plan.base} would be now ({', '.join(different)}): choose another "
            "output_dir, or delete that folder"
        )


def _expansion_record(plan: ExpansionPlan) -> dict[str, Any]:
    """The inputs that decide the content of an expanded folder, beside its layout."""
    where = {name: value for name, value in plan.source_kwargs.items() if name != "trust_remote_code"}
    config = cached_file(plan.base, "config.json", **where)
    tokenizer: Any = plan.tokenizer
    tokenizer.backend_tokenizer.no_padding()  # left by a call, and set anew by the next
    tokenizer.backend_tokenizer.no_truncation()
    texts = {"tokenizer": tokenizer.backend_tokenizer.to_str(), "chat_template": str(tokenizer.chat_template)}
    of_copies = ("init_noise", "seed") if plan.layout.size else ()
    return {
        "weights": weights_fingerprint(Path(str(config)).parent),
        **{name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()},
        **{name: getattr(plan.expansion, name) for name in of_copies},
    }


def read_with_think_tags(
    base: str,
    think_tags: tuple[str, str],
    chat_template: str | None = None,
    source_kwargs: Mapping[str, Any] | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A base model in float32, for training before expansion, and its tokenizer; each think tag is one token."""
    source_kwargs = {**NO_CODE, **(source_kwargs or {})}
    _, tokenizer = read_base(base, source_kwargs)
    tokenizer.padding_side = "left"
    if chat_template is not None:
        tokenizer.chat_template = chat_template
    model = _read_weights(base, source_kwargs, dtype="float32")
    pieces = add_think_tags(tokenizer, think_tags)
    _add_rows(model, max(len(tokenizer), model.get_input_embeddings().weight.size(0)), pieces)
    return model, tokenizer


def _read_weights(base: str, source_kwargs: Mapping[str, Any], dtype: str) -> PreTrainedModel:
    with reading_model(base):
        model = AutoModelForCausalLM.from_pretrained(base, dtype=dtype, **{**READ_AS_DATA, **source_kwargs})
    refuse_not_finite(model, base)
    return model


def read_base(base: str, source_kwargs: dict[str, Any]) -> tuple[Any, PreTrainedTokenizerBase]:
    """Configuration and tokenizer of a model that can be expanded; UserError where there is none."""
    with reading_model(base):
        config = AutoConfig.from_pretrained(base, **source_kwargs)
        tokenizer = AutoTokenizer.from_pretrained(base, **source_kwargs)
    refuse_quantized(base, getattr(config, "quantization_config", None))
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return config, tokenizer


def _control_ids(generation: Any, tokenizer: PreTrainedTokenizerBase, tags: tuple[int, int]) -> tuple[int, ...]:
    ends = generation.eos_token_id if isinstance(generation.eos_token_id, list) else [generation.eos_token_id]
    special = [token_id for token_id, token in tokenizer.added_tokens_decoder.items() if token.special]
    named = (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id)
    return tuple(sorted({*tags, *special, *ends, *named} - {None, NO_TAG}))


def _refuse_other_vocabularies(model: PreTrainedModel, base: str) -> None:
    """Refuse per-layer embeddings (Gemma-3n) and similar tables: they would lack rows for the reasoning tokens."""
    text = model.config.get_text_config()
    embedding = model.get_input_embeddings()
    rows = embedding.weight.size(0)
    for name, module in model.named_modules():
        is_table = isinstance(module, torch.nn.Embedding) and module is not embedding
        per_token = is_table and module.num_embeddings in (rows, getattr(text, "vocab_size_per_layer_input", None))
        if per_token and module.num_embeddings != getattr(text, "max_position_embeddings", None):
            raise UserError(f"{base} cannot be expanded: {name} is another table with a row per token")


@torch.no_grad()
def _add_rows(model: PreTrainedModel, rows: int, tag_pieces: Mapping[int, list[int]]) -> list[torch.Tensor]:
    """Resize the tables, and start new tags as the mean of their pieces.

    Returns input embedding, output embedding (the same tensor when tied), and the head's bias where there is one.
    """
    if model.get_input_embeddings().weight.size(0) != rows:
        model.resize_token_embeddings(rows, mean_resizing=False)
    head = model.get_output_embeddings()
    bias = getattr(head, "bias", None)
    found = [model.get_input_embeddings().weight, head.weight, *([] if bias is None else [bias])]
    tensors = list({id(tensor): tensor for tensor in found}.values())
    for tensor, (tag_id, piece_ids) in product(tensors, tag_pieces.items()):
        tensor[tag_id] = tensor[piece_ids].float().mean(0).to(tensor.dtype)
    return tensors


@torch.no_grad()
def _expand_weights(
    model: PreTrainedModel, layout: VocabLayout, expansion: Expansion, tag_pieces: Mapping[int, list[int]]
) -> dict[str, torch.Tensor]:
    """Add rows for the copies to the tables; returns their deltas in the format of `save_differences`."""
    tensors = _add_rows(model, layout.rows, tag_pieces)
    generator = torch.Generator().manual_seed(expansion.seed)
    sources, differences = torch.tensor(layout.source_ids, dtype=torch.long), dict[str, torch.Tensor]()
    tables = iter(("input", "output"))
    for tensor in tensors:
        copies = tensor[layout.standard_size :]
        for ks in torch.arange(layout.size).split(ROWS_AT_ONCE):
            copies[ks] = tensor[sources[ks]]
        if tensor.dim() == 1:
            continue
        noise_K1 = None
        if expansion.init_noise:
            noise_K1 = expansion.init_noise * tensor.std(dim=1, keepdim=True)[sources]
        if layout.reasoning_rank:
            delta = RowDelta.new((layout.size, tensor.size(1)), layout.reasoning_rank, noise_K1, generator)
            table = next(tables)
            differences.update({f"{table}.{name}": part.data for name, part in delta.named_parameters()})
            for ks in torch.arange(layout.size).split(ROWS_AT_ONCE):
                copies[ks] += delta(ks).to(copies.dtype)
        elif noise_K1 is not None:
            copies += torch.randn(copies.shape, generator=generator) * noise_K1
    return differences


def _clean_generation_config(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    for name in NEUTRAL.keys() & vars(model.generation_config).keys() - {"do_sample"}:
        setattr(model.generation_config, name, None)
    if not model.generation_config.do_sample:  # with which Transformers refuses to save a temperature
        model.generation_config.temperature = None
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.config.get_text_config().pad_token_id = tokenizer.pad_token_id
