"""Folds an adapter, and the rows that trained beside it, into a model folder that stock tools load."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from peft import PeftType
from transformers import PreTrainedModel

from rlvr_vocab.atomic_file import folder_appearing_whole
from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout
from rlvr_vocab.vocab.peft.adapter import load_model, open_adapter
from rlvr_vocab.vocab.peft.adapter_base import find_base
from rlvr_vocab.vocab.peft.merge_check import MergeCheck, Shift, shift
from rlvr_vocab.vocab.peft.stock_reload import digests_of
from rlvr_vocab.vocab.peft.trained_rows import TrainedRows
from rlvr_vocab.vocab.reasoning_rows import DIFFERENCES, held_rows, save_differences

# Copied from the base as they are: a tokenizer that is loaded and saved again may lose its decoder.
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
)
_BLURRED_SHARE = 0.1


@dataclass(frozen=True)
class MergeReport:
    """What a merge came to; differences are the largest between two logits of one chat.

    Attributes:
        base: the folder under the adapter.
        dtype: of the written weights, `float32`, `bfloat16` or `float16`.
        probe_tokens: length of the chat.
        arithmetic: in which the logits were computed, `float64`, or `float32` where memory is short.
        merging: between the adapter on its base and the merged weights in float32.
        reloading: between the written weights and what a fresh process with stock classes loads.
        training: how far the adapter took its base, to compare the next with.
        rounding: what writing the weights in less than float32 costs; None in float32.
    """

    base: Path
    dtype: str
    probe_tokens: int
    arithmetic: str
    merging: float
    reloading: float
    training: Shift
    rounding: Shift | None

    @property
    def blurs(self) -> bool:
        """Whether rounding moves the model by a noticeable part of what training did.

        Weights of a 16-bit base fall back to what they were wherever training moved them by less than half of a step
        between two 16-bit numbers.
        """
        return self.rounding is not None and self.rounding.mean_kl > _BLURRED_SHARE * self.training.mean_kl


def merge_adapter(
    adapter: Path,
    out: Path,
    base: Path | None = None,
    dtype: torch.dtype | None = None,
    finish: Callable[[Path, MergeReport], None] = lambda folder, report: None,
) -> MergeReport:
    """Write the merged model to `out`, which appears whole once it is proven, or not at all.

    Args:
        base: the model under the adapter, where it is not where it was.
        dtype: of the written weights; None for that of the base. The merging itself is done in float32.
        finish: adds to the proven folder what else belongs in it, before it appears.

    Raises:
        UserError: the adapter or its base cannot be used, `out` is not empty or cannot be made, or the result is not
            the model that was merged.
    """
    source = find_base(adapter, base)
    with folder_appearing_whole(out) as folder:
        report = _merge_into(folder, adapter, source, dtype)
        finish(folder, report)
    return report


def _merge_into(folder: Path, adapter: Path, source: Path, dtype: torch.dtype | None) -> MergeReport:
    model = _in_float32(adapter, source)
    check = MergeCheck(source, model)
    with model.disable_adapter():
        untrained = check.logits(model)
    unmerged = check.logits(model)
    own_rows = isinstance(model.get_input_embeddings(), TrainedRows)
    model = model.merge_and_unload()
    differences = _into_the_tables(model)
    exact = check.logits(model)
    merging, training = check.require_same(unmerged, exact), shift(untrained, exact)
    dtype = dtype or stored_dtype(source)
    for parameter in model.parameters():  # not the buffers: stock classes compute those in float32 again
        parameter.data = parameter.data.to(dtype)
    write_stock_folder(model, source, folder)
    _write_form(folder, source, differences, own_rows)
    written, digests = check.logits(model), digests_of(model)
    del model  # the fresh process may need the room
    return MergeReport(
        base=source,
        dtype=str(dtype).removeprefix("torch."),
        probe_tokens=len(check.ids),
        arithmetic=check.arithmetic_name,
        merging=merging,
        reloading=check.require_reload(folder, written, digests),
        training=training,
        rounding=None if dtype == torch.float32 else shift(exact, written),
    )


def _into_the_tables(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    held = held_rows(model)
    return {} if held is None else held.make_stock()


def _write_form(folder: Path, base: Path, differences: dict[str, torch.Tensor], own_rows: bool) -> None:
    """Leave beside the merged tables what a training that starts from them holds its reasoning rows by.

    Args:
        own_rows: rows of their own trained beside the adapter, and differ from their sources by nothing that is known.
    """
    if differences:
        save_differences(folder, differences)
    elif (base / DIFFERENCES).is_file() and not own_rows:
        (folder / DIFFERENCES).parent.mkdir()
        shutil.copyfile(base / DIFFERENCES, folder / DIFFERENCES)
    elif own_rows and (base / LAYOUT_FILE).is_file():
        replace(VocabLayout.load(base), reasoning_rows="independent").save(folder)


def _in_float32(adapter: Path, base: Path) -> Any:
    """The adapter on its base, on the CPU.

    An adapter on one side alone of a table that embedding and head share would move the other side too, which
    `MergeCheck` refuses.
    """
    config = open_adapter(adapter)
    if config.is_prompt_learning:
        raise UserError(
            f"{adapter} is an adapter of the kind {PeftType(config.peft_type).value}, which no weights can hold"
        )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Model has `tie_word_embeddings=True` and a tied layer")
        return load_model(adapter, base, dtype=torch.float32)


def write_stock_folder(model: PreTrainedModel, base: Path, folder: Path) -> None:
    """Weights, configuration and generation configuration of the model; tokenizer and layout as the base has them."""
    model.save_pretrained(folder)
    for name in (*_TOKENIZER_FILES, LAYOUT_FILE):
        if (base / name).is_file():
            shutil.copyfile(base / name, folder / name)
