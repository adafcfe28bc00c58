"""The model that a trainer begins with: its expanded folder, the type of its weights, the gradient of a tied table."""

from __future__ import annotations

import copy
import logging
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import DistributedType
from peft import PeftModel
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from rlvr_vocab.device import weights_dtype
from rlvr_vocab.errors import UserError
from rlvr_vocab.files import atomic_dir
from rlvr_vocab.record.files import INITIAL_MODEL
from rlvr_vocab.training.arguments import GRPOConfig
from rlvr_vocab.training.models.lora import quantized_layers, without_dropout
from rlvr_vocab.training.sharding import is_sharded
from rlvr_vocab.vocab.adapter import ADAPTER, TrainedRows, load_model
from rlvr_vocab.vocab.copied_rows import DIFFERENCES
from rlvr_vocab.vocab.expand import (
    Expansion,
    expand_in_memory,
    lay_out,
    plan_expansion,
    require_expanded_so,
    require_same_expansion,
    write_beside_weights,
    write_expansion,
)
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout
from rlvr_vocab.vocab.regions import ANSWERING
from rlvr_vocab.vocab.tokenizer import load_tokenizer
from rlvr_vocab.vocab.weights import (
    NO_CODE,
    is_adapter,
    reading_model,
    refuse_invalid_generation_config,
    stored_dtype,
    weights_fingerprint,
)

logger = logging.getLogger(__name__)

LOADED = (PreTrainedModel, PeftModel)
_BEGUN = "initial_model_of_the_trainer"  # attribute of a model that a trainer has had
# Arguments of `from_pretrained` that decide which files a name means.
_WHERE = ("revision", "token", "cache_dir", "subfolder", "local_files_only", "trust_remote_code")
# Files of an initial model that differ with the model, beside its weights.
_DECIDES = (LAYOUT_FILE, "tokenizer.json", "chat_template.jinja", DIFFERENCES)
# Elements of a table from which a second gradient of its size (64 MiB) is worth sparing.
_SMALLEST_SPARED_TABLE = 2**24


@dataclass(frozen=True)
class InitialModel:
    """The model that a trainer begins with, as a stock folder, and the trainer's tokenizer."""

    folder: Path
    layout: VocabLayout
    tokenizer: PreTrainedTokenizerBase


def initial_model_of(
    model: Any, args: GRPOConfig, expansion: Expansion | None, tokenizer: PreTrainedTokenizerBase | None = None
) -> InitialModel:
    """Write `initial_model` below `args.output_dir`, or find it; a loaded model gets its rows in memory.

    `model` is a folder written by `expand`, which is taken as it is; another folder or a hub name; or a loaded model.
    `expansion` None is the model as it is. `tokenizer` replaces that of its folder.
    """
    if tokenizer is not None and not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise UserError("processing_class must be a tokenizer, such as the processor.tokenizer of a processor")
    if isinstance(model, LOADED):
        return _of_loaded(model, Path(args.output_dir), expansion, tokenizer)
    if not isinstance(model, str | Path):
        raise UserError(f"model={type(model).__name__}: must be a name, a folder, a PreTrainedModel or a PeftModel")
    if (Path(model) / LAYOUT_FILE).is_file():
        layout = VocabLayout.load(model)
        if expansion is not None and layout.size:
            require_expanded_so(layout, expansion, model)
        if expansion is None or layout.size:
            refuse_invalid_generation_config(model)
            return InitialModel(Path(model), layout, load_tokenizer(model))
    loading = {"trust_remote_code": args.trust_remote_code, **(args.model_init_kwargs or {})}
    where = {name: loading[name] for name in _WHERE if name in loading}
    plan = plan_expansion(str(model), expansion, where, tokenizer)
    folder = Path(args.output_dir) / INITIAL_MODEL
    with PartialState().main_process_first():
        if not folder.is_dir():
            write_expansion(plan, folder)
        require_same_expansion(plan, folder)
    as_given = tokenizer if expansion is None else None
    return InitialModel(folder, plan.layout, as_given or load_tokenizer(folder))


def with_its_adapter(model: Any, args: GRPOConfig) -> Any:
    """A model as it is given, and the folder of an adapter as a model with that adapter, which trains further."""
    if not isinstance(model, str | Path) or not is_adapter(model):
        return model
    loaded: Any = load_model(model, **{"dtype": torch.float32, **(args.model_init_kwargs or {})})
    loaded.set_adapter(ADAPTER)  # it was saved as one that does not train
    return loaded


def base_of(model: Any) -> Any:
    """The model under an adapter, or the model itself."""
    return model.get_base_model() if isinstance(model, PeftModel) else model


def _of_loaded(
    model: Any, output_dir: Path, expansion: Expansion | None, tokenizer: PreTrainedTokenizerBase | None
) -> InitialModel:
    base, folder = base_of(model), output_dir / INITIAL_MODEL
    name, begun = base.name_or_path, _begun(base)
    if begun is not None and begun.layout.size:
        if expansion is not None:
            require_expanded_so(begun.layout, expansion, name)
        if _BEGUN not in vars(base):
            return begun
        layout, tokenizer, keeps_name = begun.layout, begun.tokenizer, Path(name).is_dir()
        if begun.folder != folder:
            _publish(model, layout, tokenizer, folder, {})
    else:
        rows = base.get_input_embeddings().weight.size(0)
        tokenizer = tokenizer or (begun.tokenizer if begun is not None else _tokenizer_of(base))
        plan = lay_out(
            name or type(base).__name__, base.config, base.generation_config, copy.deepcopy(tokenizer), expansion
        )
        differences, layout, keeps_name = expand_in_memory(base, plan), plan.layout, not plan.layout.size
        tokenizer = tokenizer if expansion is None else plan.tokenizer
        if begun is None or begun.folder != folder or expansion is not None:
            try:
                _publish(model, layout, tokenizer, folder, differences)
            except UserError:
                base.resize_token_embeddings(rows, mean_resizing=False)  # as it was given, for another try
                raise
    if not (name and keeps_name):
        base.name_or_path = base.config._name_or_path = str(folder)  # from where TRL reads the reference
    return InitialModel(folder, layout, load_tokenizer(folder) if expansion is not None else tokenizer)


def _begun(base: Any) -> InitialModel | None:
    """How an earlier trainer began with a model, or the expanded folder that it was read from."""
    place = Path(base.name_or_path)
    if _BEGUN in vars(base) or not base.name_or_path or not (place / LAYOUT_FILE).is_file():
        return vars(base).get(_BEGUN)
    return InitialModel(place, VocabLayout.load(place), load_tokenizer(place))


def _tokenizer_of(model: PreTrainedModel) -> PreTrainedTokenizerBase:
    if not model.name_or_path:
        raise UserError(f"{type(model).__name__} was loaded from no folder: pass its tokenizer as processing_class=…")
    with reading_model(model.name_or_path):
        return AutoTokenizer.from_pretrained(model.name_or_path, padding_side="left", **NO_CODE)


def _publish(
    model: Any,
    layout: VocabLayout,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    differences: Mapping[str, torch.Tensor],
) -> None:
    """Write a loaded model, without its adapter, as the initial model; UserError where another one is there."""

    def write(place: Path) -> None:
        of_adapter = ("lora_", ".modules_to_save.", getattr(getattr(model, "base_model", None), "prefix", "lora_"))
        weights = {
            name.replace(".base_layer", "").replace(".original_module", ""): each
            for name, each in base_of(model).state_dict().items()
            if not any(part in name for part in of_adapter)
        }
        base_of(model).save_pretrained(place, state_dict=weights)
        write_beside_weights(layout, tokenizer, differences, place)

    with PartialState().main_process_first():
        if not PartialState().is_main_process:
            return
        if not folder.is_dir():
            with atomic_dir(folder) as partial:
                write(partial)
            return
        with tempfile.TemporaryDirectory(dir=folder.parent) as now:
            write(Path(now))
            if differs := differing_parts(Path(now), folder):
                raise UserError(
                    f"{folder} holds another model than the one that is given ({', '.join(differs)}): choose another "
                    "output_dir, or delete that folder"
                )


def differing_parts(model: Path, other: Path) -> list[str]:
    """The files in `_DECIDES`, or the weights, in which two initial models differ."""
    files = [str(name) for name in _DECIDES if _content(model / name) != _content(other / name)]
    return files or ["weights"] * (weights_fingerprint(model) != weights_fingerprint(other))


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def remember(model: Any, initial: InitialModel) -> None:
    """Let a later trainer that is given a model begin with its vocabulary, and its output folder be the same."""
    setattr(base_of(model), _BEGUN, initial)


def check_trained_weights(model: torch.nn.Module) -> None:
    """UserError where no weight of a given model trains; a line where some train in 16 bits, which loses updates."""
    trained = [each for each in model.parameters() if each.requires_grad]
    if not trained:
        raise UserError("model: none of its weights trains; after merge_and_unload() call model.requires_grad_(True)")
    in_16_bits = [each for each in trained if each.dtype.itemsize < 4]
    if in_16_bits:
        logger.warning(
            "%s weights train in %s, as the model was given: it rounds small updates away. Load the model with "
            "dtype=torch.float32; bf16=True computes in bfloat16 all the same",
            f"{sum(each.numel() for each in in_16_bits):,}",
            str(in_16_bits[0].dtype).removeprefix("torch."),
        )


def as_the_machine_computes(args: GRPOConfig, folder: Path) -> dict[str, Any]:
    """`model_init_kwargs` for the weights of a folder: float32 where bfloat16 is slow, all on one device.

    TRL's default, `device_map="auto"`, splits a model over all visible GPUs.
    """
    loading: dict[str, Any] = dict(args.model_init_kwargs or {})
    asked = loading.get("dtype", "float32")
    dtype = stored_dtype(folder) if asked == "auto" else asked
    named: Any = getattr(torch, dtype, dtype) if isinstance(dtype, str) else dtype
    return {"device_map": None, **loading, "dtype": weights_dtype(named, bool(args.use_cpu))}


def disable_functional_dropout(model: torch.nn.Module) -> None:
    """Set the rates that layers pass to dropout functions to 0: TRL's `disable_dropout` reaches `nn.Dropout` alone."""
    for module in model.modules():
        for name, value in vars(module).items():
            if "drop" in name and isinstance(value, float):
                setattr(module, name, 0.0)


# Nats on average between head and logits: roundings of float32, and of the 16 bits of logits beside 30 and beyond.
_MOST_DIFFERENCE, _IN_16_BITS, _SHARE_IN_16_BITS = 1e-3, 0.25, 2**-8


@torch.no_grad()
def refuse_other_logits(trainer: Any) -> None:
    """UserError where the region head's log-probabilities are not those of the model's own logits.

    A family may cap or scale its logits by a setting that `head_settings` has no name of, or be random while it
    trains. Sharded and quantized models are not compared.
    """
    model, policy, device = trainer.model, trainer.policy, trainer.accelerator.device
    if is_sharded(trainer.accelerator.state) or quantized_layers(model):
        return
    layout = policy.layout
    ordinary = [id_ for id_ in range(layout.standard_size) if id_ not in layout.control_ids]
    ids = torch.tensor([ordinary[len(ordinary) // 2 :][:8]], device=device)  # while answering all of them are open
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    was_training = model.training
    model.train(trainer.args.disable_dropout)
    with trainer.accelerator.autocast(), without_dropout(model):
        # `device_map` may have put the head on another device than the embedding.
        scored = model(**given, labels=ids, fused_lm_head=True).log_probs.to(device)
        logits = model(**given, use_cache=False).logits[:, :-1].float().to(device)
    model.train(was_training)
    logits /= trainer.temperature
    log_p = (logits + policy.bias_on(device)[ANSWERING]).log_softmax(-1)
    off = (log_p.gather(2, ids[:, 1:, None]).squeeze(2) - scored).abs().mean().item()
    precise = model.dtype == torch.float32 and not (trainer.args.bf16 or trainer.args.fp16)
    rounding = max(_IN_16_BITS, _SHARE_IN_16_BITS * logits.abs().max().item())
    if not off <= (_MOST_DIFFERENCE if precise else rounding):
        raise UserError(
            f"{type(base_of(model)).__name__}: scores differ from its own logits by {off:.2g} nats on average: it caps "
            "or scales them in a way that is not known here, or has dropout of its own; choose another model"
        )


def accumulate_tied_gradient(model: Any, accelerator: Accelerator) -> None:
    """With tied weights, add the input side's gradient, a sparse one, to the head's in place (docs/LOG.md).

    A dense one would be another tensor of the table's size. In one process only: DDP must know in advance which
    gradients are sparse.
    """
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    tied = embedding.weight is head.weight
    table = embedding.parameter if isinstance(embedding, TrainedRows) else embedding.weight
    large = table.requires_grad and table.numel() >= _SMALLEST_SPARED_TABLE
    if tied and large and accelerator.distributed_type == DistributedType.NO:
        embedding.sparse = True
        if not isinstance(embedding, TrainedRows):
            _add_in_place(model, embedding, head)


def _add_in_place(model: Any, embedding: Any, head: Any) -> None:
    """Autograd sums a sparse and a dense gradient in a third tensor; this sums into the dense one."""
    table = embedding.weight

    def use_apart(*_: Any) -> None:
        if torch.is_grad_enabled():
            embedding._parameters["weight"], head._parameters["weight"] = _TwoUses.apply(table)

    def use_together(*_: Any) -> None:
        embedding._parameters["weight"] = head._parameters["weight"] = table

    model.register_forward_pre_hook(use_apart)
    model.register_forward_hook(use_together, always_call=True)


class _TwoUses(torch.autograd.Function):
    """`(table, table)`: for looking up rows, with a sparse gradient, and for the head, with a dense one."""

    @staticmethod
    def forward(ctx: Any, table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.set_materialize_grads(False)
        return table.view_as(table), table.view_as(table)

    @staticmethod
    def backward(ctx: Any, sparse: torch.Tensor | None, dense: torch.Tensor | None) -> torch.Tensor | None:
        return sparse if dense is None else dense if sparse is None else dense.add_(sparse)
