"""Loads a model folder, or an adapter, with the rows that trained beside it, on the model it belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from peft import PeftConfig, PeftModel, get_peft_model
from safetensors import SafetensorError, safe_open
from transformers import AutoModelForCausalLM, PreTrainedModel

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.copied_rows import attach_low_rank_rows, copied_rows_of
from rlvr_vocab.vocab.peft.adapter_base import (
    ADAPTER_WEIGHTS,
    DIFFERENCE_KEY,
    ROWS_KEY,
    find_base,
    is_adapter,
    read_adapter_config,
)
from rlvr_vocab.vocab.peft.trained_rows import ADAPTER, add_trained_rows, train_differences
from rlvr_vocab.vocab.weights import (
    READ_AS_DATA,
    reading_weights,
    refuse_invalid_generation_config,
    refuse_not_finite,
    refuse_pickled,
)

# PEFT's errors for a configuration or weights that it cannot use.
_PEFT_ERRORS = (KeyError, TypeError, ValueError, AttributeError, RuntimeError)


def load_model(folder: str | Path, base: str | Path | None = None, **model_kwargs: Any) -> PreTrainedModel | PeftModel:
    """The model of a folder, ready to sample; an adapter lies unmerged on its base.

    Args:
        base: the model under an adapter, where it is not at its recorded place.
        model_kwargs: passed on to `from_pretrained`; the dtype is the folder's own by default.

    Raises:
        UserError: weights that cannot be read, an adapter without its base, or one that does not fit it.
    """
    source = find_base(folder, base) if is_adapter(folder) else folder
    refuse_pickled(folder, str(folder))
    refuse_pickled(source, str(source))
    refuse_invalid_generation_config(source)
    with reading_weights(source):
        model = AutoModelForCausalLM.from_pretrained(str(source), **{"dtype": "auto", **READ_AS_DATA, **model_kwargs})
    whole = put_adapter_on(model, folder).eval() if is_adapter(folder) else model.eval()
    refuse_not_finite(whole, folder)
    return whole


def put_adapter_on(model: PreTrainedModel, folder: str | Path) -> PeftModel:
    """An adapter folder on its base, with the rows that trained beside it.

    Raises:
        UserError: the adapter is broken, or does not fit.
    """
    config = open_adapter(folder)
    config.base_model_name_or_path = model.name_or_path  # its place now; PEFT warns of another one
    rows, differences = _trained_beside(Path(folder))
    with _fitting(folder):
        adapted: Any = get_peft_model(model, config, adapter_name=ADAPTER)
        if rows:
            add_trained_rows(adapted, model.get_input_embeddings().weight.size(0) - rows)
        if differences:
            attach_low_rank_rows(model, model.name_or_path)
            copied = copied_rows_of(model)
            if copied is None:
                raise ValueError(f"{model.name_or_path} has no differences of low rank")
            train_differences(copied)
        result = adapted.load_adapter(str(folder), ADAPTER, torch_device=str(model.device))
        if strange := [*result.missing_keys, *result.unexpected_keys]:
            raise ValueError(f"{len(strange)} tensors are missing, or have no place in it ({strange[0]} …)")
    return adapted


def open_adapter(folder: str | Path) -> PeftConfig:
    """The configuration of an adapter folder; UserError where PEFT cannot use it."""
    read_adapter_config(Path(folder))
    with _fitting(folder):
        return PeftConfig.from_pretrained(str(folder))


@contextmanager
def _fitting(folder: str | Path) -> Iterator[None]:
    try:
        yield
    except _PEFT_ERRORS as error:
        if isinstance(error, UserError):
            raise
        reason = " ".join(str(error).split())
        raise UserError(f"{folder} is no adapter that fits its base: {type(error).__name__}: {reason}") from error


def _trained_beside(folder: Path) -> tuple[int, bool]:
    """How many rows of embedding and head an adapter's file holds, and whether it holds deltas of copied rows."""
    weights = folder / ADAPTER_WEIGHTS
    try:
        with safe_open(weights, framework="pt") as file:
            every = list(file.keys())
            names = [name for name in every if name.endswith(f".{ROWS_KEY}")]
            rows = file.get_slice(names[0]).get_shape()[0] if names else 0
            return rows, any(f".{DIFFERENCE_KEY}." in name for name in every)
    except (SafetensorError, OSError) as error:
        raise UserError(f"{weights} cannot be read as the weights of an adapter: {error}") from error
