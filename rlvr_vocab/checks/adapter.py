"""model.lora.target_modules against the architecture, from its configuration alone: before any weight is read."""

from __future__ import annotations

from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.errors import UserError
from rlvr_vocab.nearest import nearest_and_all
from rlvr_vocab.runs.model import source_kwargs, untrained_base
from rlvr_vocab.runs.model_folder import naming_model_keys
from rlvr_vocab.training.models.quantization import linear_layers, skeleton, vocabulary_modules
from rlvr_vocab.vocab.expand import read_base

KEY = "model.lora.target_modules"


def check_target_modules(settings: RunSettings) -> None:
    """Every name is that of a layer which an adapter can be put on.

    PEFT accepts a list of which only one name is right, and trains without the others.
    """
    model = settings.model
    if not model.trains_adapter or isinstance(model.lora.target_modules, str):
        return
    base = untrained_base(settings)
    with naming_model_keys():
        read_base(base, source_kwargs(model))  # refuses what is no language model
    bare = skeleton(base, **source_kwargs(model))
    layers, tables = linear_layers(bare), vocabulary_modules(bare)
    for name in model.lora.target_modules:
        if any(_names(name, table) for table in tables):
            raise UserError(
                f"{KEY}: {name} takes no adapter, it has a row for every token: set model.lora.train_rows=reasoning, "
                "or all, to train those"
            )
        if not any(_names(name, layer) for layer in layers):
            known = sorted({layer.rpartition(".")[2] for layer in layers})
            raise UserError(f"{KEY}: {model.name} has no linear layer {name}{nearest_and_all(name, known)}")


def _names(given: str, module: str) -> bool:
    """As PEFT matches a list: a whole name, or its end from a dot on."""
    return module == given or module.endswith(f".{given}")
