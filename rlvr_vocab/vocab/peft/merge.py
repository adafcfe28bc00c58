"""Folds an adapter, and the rows that trained beside it, into a model folder that stock tools load."""

from __future__ import annotations

import logging
import math
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from peft import PeftType
from transformers import PreTrainedModel

from rlvr_vocab.errors import UserError
from rlvr_vocab.files import atomic_dir
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout
from rlvr_vocab.vocab.peft.adapter import load_model, open_adapter
from rlvr_vocab.vocab.peft.adapter_base import find_base
from rlvr_vocab.vocab.peft.merge_check import Shift, logits_of, probe_ids, require_same, shift
from rlvr_vocab.vocab.peft.trained_rows import TrainedRows
from rlvr_vocab.vocab.reasoning_rows import DIFFERENCES
from rlvr_vocab.vocab.weights import stored_dtype

logger = logging.getLogger(__name__)

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
        merging: between the adapter on its base and the merged folder, loaded anew in float32.
        training: how far the adapter took its base, to compare the next with.
        rounding: what writing the weights in less than float32 costs; None in float32.
    """

    base: Path
    dtype: str
    probe_tokens: int
    merging: float
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
    adapter: str | Path,
    out: str | Path,
    base: str | Path | None = None,
    dtype: torch.dtype | str = torch.float32,
    finish: Callable[[Path, MergeReport], None] = lambda folder, report: None,
) -> MergeReport:
    """Write the merged model to `out`, which appears whole once it is proven, or not at all.

    Args:
        base: the model under the adapter, where it is not where it was.
        dtype: of the written weights, or its name; "auto" for that of the base. Less than float32 is logged as a
            warning where it rounds away a noticeable part of the training.
        finish: adds to the proven folder what else belongs in it, before it appears.

    Raises:
        UserError: the adapter or its base cannot be used, `out` is not empty or cannot be made, or the result is not
            the model that was merged.
    """
    adapter, out = Path(adapter).expanduser(), Path(out).expanduser()
    source = find_base(adapter, None if base is None else Path(base).expanduser())
    written = _named_dtype(dtype, source)
    with atomic_dir(out) as folder:
        report = _merge_into(folder, adapter, source, written)
        finish(folder, report)
    if report.blurs and report.rounding is not None:
        moved, rounded = report.training.largest, report.rounding.largest
        logger.warning(
            f"{report.dtype} rounds away part of the training, which moved a logit by at most {moved:.2g}, where "
            f"rounding moves one by {rounded:.2g}: merge with float32 to keep it"
        )
    return report


def _named_dtype(dtype: torch.dtype | str, base: Path) -> torch.dtype:
    found = stored_dtype(base) if dtype == "auto" else getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if found not in (torch.float32, torch.bfloat16, torch.float16):
        raise UserError(f"dtype={dtype}: must be float32, bfloat16, float16, or auto for that of the base")
    return found


def _merge_into(folder: Path, adapter: Path, source: Path, dtype: torch.dtype) -> MergeReport:
    model: Any = _in_float32(adapter, source)
    ids = probe_ids(source)
    with model.disable_adapter():
        untrained = logits_of(model, ids)
    unmerged = logits_of(model, ids)
    own_rows = isinstance(model.get_input_embeddings(), TrainedRows)
    write_stock_folder(model.merge_and_unload(), source, folder)
    del model  # the next may need the room
    model = load_model(folder, dtype=torch.float32)
    merged, rounding = logits_of(model, ids), None
    merging = require_same(unmerged, merged)
    if dtype != torch.float32:
        for parameter in model.parameters():  # not the buffers: stock classes compute those in float32 again
            parameter.data = parameter.data.to(dtype)
        model.save_pretrained(folder)
        rounding = shift(merged, logits_of(model, ids))
        if not math.isfinite(rounding.largest):
            raise UserError(f"dtype={dtype} cannot hold the merged weights: take float32 or bfloat16")
    _write_form(folder, source, own_rows)
    trained = shift(untrained, merged)
    return MergeReport(source, str(dtype).removeprefix("torch."), len(ids), merging, trained, rounding)


def _write_form(folder: Path, base: Path, own_rows: bool) -> None:
    """Leave beside the merged tables what a training that starts from them holds its reasoning rows by.

    Args:
        own_rows: rows of their own trained beside the adapter, and differ from their sources by nothing that is known.
    """
    if not own_rows and (base / DIFFERENCES).is_file() and not (folder / DIFFERENCES).is_file():
        (folder / DIFFERENCES).parent.mkdir()
        shutil.copyfile(base / DIFFERENCES, folder / DIFFERENCES)
    elif own_rows and (base / LAYOUT_FILE).is_file():
        replace(VocabLayout.load(base), reasoning_rank=None).save(folder)


def _in_float32(adapter: Path, base: Path) -> Any:
    """The adapter on its base, on the CPU.

    An adapter on one side alone of a table that embedding and head share would move the other side too, which
    `require_same` refuses.
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
