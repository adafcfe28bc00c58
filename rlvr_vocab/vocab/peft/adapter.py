"""Loads a model folder, or an adapter with the rows that trained beside it on the model it belongs to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peft import PeftConfig, PeftModel, get_peft_model
from safetensors import SafetensorError, safe_open
from transformers import AutoModelForCausalLM, PreTrainedModel

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.peft.adapter_base import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    DIFFERENCE_KEY,
    ROWS_KEY,
    find_base,
    is_adapter,
    read_adapter_config,
)
from rlvr_vocab.vocab.peft.trained_difference import train_differences
from rlvr_vocab.vocab.peft.trained_rows import ADAPTER, add_trained_rows
from rlvr_vocab.vocab.read_as_data import READ_AS_DATA, reading, refuse_pickled
from rlvr_vocab.vocab.reasoning_rows import attach_low_rank_rows, held_rows
from rlvr_vocab.vocab.weights import refuse_invalid_generation_config, refuse_not_finite

# What PEFT ends in over a configuration with a wrong name or a value of a wrong type, here or when it makes layers.
_PEFT_ERRORS = (KeyError, TypeError, ValueError, AttributeError)


def load_model(folder: str | Path, base: str | Path | None = None, **model_kwargs: Any) -> PreTrainedModel | PeftModel:
    """The model of a folder, ready to sample; an adapter lies unmerged on its base.

    Args:
        base: the model under an adapter, where it is not where it was.
        model_kwargs: passed on to `from_pretrained`; the type of the weights is the folder's own by default.

    Raises:
        UserError: weights that cannot be read, an adapter without its base, or one that does not fit it.
    """
    source = find_base(folder, base) if is_adapter(folder) else folder
    refuse_pickled(folder, str(folder))
    refuse_pickled(source, str(source))
    refuse_invalid_generation_config(source)
    try:
        with reading(str(source)):
            model = AutoModelForCausalLM.from_pretrained(
                str(source), **{"dtype": "auto", **READ_AS_DATA, **model_kwargs}
            )
    except (SafetensorError, OSError) as error:
        raise UserError(f"the weights of {source} cannot be read: {_in_one_line(error)}") from error
    whole = put_adapter_on(model, folder).eval() if is_adapter(folder) else model.eval()
    refuse_not_finite(whole, folder)
    return whole


def put_adapter_on(model: PreTrainedModel, folder: str | Path) -> PeftModel:
    """An adapter folder on its base, with the rows that trained beside it.

    Raises:
        UserError: the adapter is broken, or does not fit.
    """
    adapted, (rows, differences) = _bare_adapter_on(model, Path(folder)), _trained_beside(Path(folder))
    if rows:
        add_trained_rows(adapted, model.get_input_embeddings().weight.size(0) - rows)
    if differences:
        attach_low_rank_rows(model, model.name_or_path)
        held = held_rows(model)
        if held is None:
            raise UserError(f"{folder} does not fit its base: {model.name_or_path} has no differences of low rank")
        train_differences(held)
    try:
        result = adapted.load_adapter(str(folder), ADAPTER, torch_device=str(model.device))
    except RuntimeError as error:  # torch's word for tensors of another shape
        raise UserError(f"{folder} does not fit its base: {_in_one_line(error)}") from error
    missing, unexpected = result.missing_keys, result.unexpected_keys
    if missing or unexpected:
        lacks = [f"{len(keys)} {what} ({keys[0]} …)" for keys, what in _named(missing, unexpected) if keys]
        raise UserError(f"{folder} does not fit its base: {', '.join(lacks)}")
    return adapted


def open_adapter(folder: Path) -> PeftConfig:
    """The configuration of an adapter folder.

    Raises:
        UserError: it is broken, or of a kind that PEFT does not know.
    """
    read_adapter_config(folder)
    try:
        return PeftConfig.from_pretrained(str(folder))
    except _PEFT_ERRORS as error:
        raise _broken(folder, error) from error


def _bare_adapter_on(model: PreTrainedModel, folder: Path) -> Any:
    config = open_adapter(folder)
    config.base_model_name_or_path = model.name_or_path  # where it is now, which PEFT would warn of
    try:
        return get_peft_model(model, config, adapter_name=ADAPTER)
    except _PEFT_ERRORS as error:
        raise _broken(folder, error) from error


def _broken(folder: Path, error: Exception) -> UserError:
    reason = f"{type(error).__name__}: {_in_one_line(error)}"
    return UserError(f"{folder / ADAPTER_CONFIG} cannot be used as the configuration of an adapter: {reason}")


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _named(missing: list[str], unexpected: list[str]) -> list[tuple[list[str], str]]:
    return [(missing, "tensors are missing"), (unexpected, "tensors have no place in it")]


def _trained_beside(folder: Path) -> tuple[int, bool]:
    """How many rows of embedding and head an adapter's file holds, and whether it holds differences of such rows."""
    weights = folder / ADAPTER_WEIGHTS
    try:
        with safe_open(weights, framework="pt") as file:
            every = list(file.keys())
            names = [name for name in every if name.endswith(f".{ROWS_KEY}")]
            rows = file.get_slice(names[0]).get_shape()[0] if names else 0
            return rows, any(f".{DIFFERENCE_KEY}." in name for name in every)
    except (SafetensorError, OSError) as error:
        raise UserError(f"{weights} cannot be read as the weights of an adapter: {error}") from error
