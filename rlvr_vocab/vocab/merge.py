"""Merges an adapter, and the rows trained with it, into a model folder that stock tools load."""

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
from transformers import AutoConfig, PreTrainedModel

from rlvr_vocab.errors import UserError
from rlvr_vocab.files import atomic_dir
from rlvr_vocab.vocab.adapter import TrainedRows, load_model
from rlvr_vocab.vocab.copied_rows import DIFFERENCES
from rlvr_vocab.vocab.layout import LAYOUT_FILE, NO_TAG, VocabLayout
from rlvr_vocab.vocab.policy import open_copies
from rlvr_vocab.vocab.regions import THINKING, RegionTracker
from rlvr_vocab.vocab.tokenizer import chat_ids, load_tokenizer
from rlvr_vocab.vocab.weights import NO_CODE, find_base, stored_dtype

logger = logging.getLogger(__name__)

# Copied from the base unchanged: loading and saving a tokenizer may drop its decoder.
_TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json"),
    *("merges.txt", "vocab.txt", "tokenizer.model", "chat_template.jinja", "chat_template.json"),
)
# Rounding takes back part of the training if its KL is this share of that from training.
_BLURRED_SHARE = 0.1
# The error of float32 arithmetic: on SmolLM2, whose largest logit is 40, merged and unmerged logits differ by 9e-5 to
# 1.8e-4 in float32, which is 2e-6 to 5e-6 of that logit, and by 3e-5 in float64.
_TOLERANCE, _TOLERATED_SHARE = 1e-4, 2e-5


@dataclass(frozen=True)
class MergeReport:
    """The proof of a merge of an adapter into its `base` folder, written as `float32`, `bfloat16` or `float16`.

    `difference` is the largest difference of logits, on a chat of `probe_tokens` tokens, between the adapter on its
    base and the merged folder, loaded anew in float32.
    """

    base: Path
    dtype: str
    probe_tokens: int
    difference: float


def merge_adapter(
    adapter: str | Path,
    out: str | Path,
    base: str | Path | None = None,
    dtype: torch.dtype | str = torch.float32,
    finish: Callable[[Path, MergeReport], None] = lambda folder, report: None,
) -> MergeReport:
    """Write the merged model to `out` atomically; UserError, before that, where its logits are not the adapter's.

    `base` is given where the adapter's base is not at its recorded path. `dtype` is that of the written weights, or its
    name; "auto" for that of the base; a warning is logged where it blurs. `finish` adds further files to the folder
    before it appears.
    """
    adapter, out = Path(adapter).expanduser(), Path(out).expanduser()
    source = find_base(adapter, base and Path(base).expanduser())
    if isinstance(dtype, str):
        dtype = stored_dtype(source) if dtype == "auto" else getattr(torch, dtype, dtype)
    if dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise UserError(f"dtype={dtype}: must be float32, bfloat16, float16, or auto for that of the base")
    with atomic_dir(out) as folder:
        report = _merge_into(folder, adapter, source, dtype)
        finish(folder, report)
    return report


def _merge_into(folder: Path, adapter: Path, source: Path, dtype: torch.dtype) -> MergeReport:
    with warnings.catch_warnings():  # `require_same` refuses an adapter that moves one side of a tied table alone
        warnings.filterwarnings("ignore", message="Model has `tie_word_embeddings=True` and a tied layer")
        model: Any = load_model(adapter, source, dtype=torch.float32)
    ids = probe_ids(source)
    with model.disable_adapter():
        untrained = _logits(model, ids)
    unmerged = _logits(model, ids)
    own_rows = isinstance(model.get_input_embeddings(), TrainedRows)
    write_stock_folder(model.merge_and_unload(), source, folder)
    del model  # the next may need the room
    model = load_model(folder, dtype=torch.float32)
    merged, name = _logits(model, ids), str(dtype).removeprefix("torch.")
    difference = require_same(unmerged, merged)
    if dtype != torch.float32:
        for parameter in model.parameters():  # not the buffers: stock classes compute those in float32 again
            parameter.data = parameter.data.to(dtype)
        model.save_pretrained(folder)
        by_training, by_rounding = _mean_kl(untrained, merged), _mean_kl(merged, _logits(model, ids))
        if not math.isfinite(by_rounding):
            raise UserError(f"dtype={name} cannot hold the merged weights: take float32 or bfloat16")
        if by_rounding > _BLURRED_SHARE * by_training:
            logger.warning(
                f"{name} rounds away part of the training: training moved the model by {by_training:.1e} nats a token, "
                f"rounding by {by_rounding:.1e}; merge with float32 to keep it"
            )
    # A run that starts from the folder parametrises its copies as the base does, unless whole rows were trained.
    if own_rows:
        replace(VocabLayout.load(source), reasoning_rank=None).save(folder)
    elif (source / DIFFERENCES).is_file() and not (folder / DIFFERENCES).is_file():
        (folder / DIFFERENCES).parent.mkdir()
        shutil.copyfile(source / DIFFERENCES, folder / DIFFERENCES)
    return MergeReport(source, name, len(ids), difference)


def write_stock_folder(model: PreTrainedModel, base: Path, folder: Path) -> None:
    """Write the model's weights, configuration and generation configuration, with the base's tokenizer and layout."""
    model.save_pretrained(folder)
    for name in (*_TOKENIZER_FILES, LAYOUT_FILE):
        if (base / name).is_file():
            shutil.copyfile(base / name, folder / name)


@torch.no_grad()
def _logits(model: Any, ids: list[int]) -> torch.Tensor:
    """`(T, V)` in float64, computed in float32 with the weights as they are; the model is float32 then."""
    logits: torch.Tensor = model.eval().float()(input_ids=torch.tensor([ids]), use_cache=False).logits
    return logits[0].double()


def require_same(expected: torch.Tensor, merged: torch.Tensor) -> float:
    """The largest difference between logits; UserError where it exceeds the rounding error."""
    largest = (expected - merged).abs().max().item()
    allowed = max(_TOLERANCE, _TOLERATED_SHARE * expected.abs().max().item())
    if not largest <= allowed:
        raise UserError(
            f"merging changes the model: logits differ by {largest:.1e} from the adapter on its base, where "
            f"{allowed:.0e} is allowed; nothing was written"
        )
    return largest


def _mean_kl(one: torch.Tensor, other: torch.Tensor) -> float:
    """The KL divergence of two models, in nats a token."""
    log_p, log_q = one.log_softmax(-1), other.log_softmax(-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1).mean().item()


_QUESTION = "Natalia sold 48 clips in April, and half as many in May. How many clips did she sell altogether?"
_THOUGHTS = "In May she sold 48 / 2 = 24 clips, so altogether 48 + 24 = 72."
_ANSWER = "She sold 72 clips: \\boxed{72}."
# Reasoning tokens of the chat, from the whole vocabulary.
_SPREAD = 32


def probe_ids(folder: Path) -> list[int]:
    """Ids of a chat with a thinking block, whose second half is reasoning tokens where there are any."""
    layout, tokenizer = VocabLayout.load(folder), load_tokenizer(folder)
    template = tokenizer.chat_template is not None
    messages = [{"role": "user", "content": _QUESTION}]
    ids = chat_ids(tokenizer, [messages])[0] if template else list(tokenizer.encode(_QUESTION))
    thoughts, answer = (tokenizer.encode(text, add_special_tokens=False) for text in (_THOUGHTS, _ANSWER))
    copies, _ = open_copies(layout)
    spread = torch.linspace(0, max(len(copies) - 1, 0), min(_SPREAD, len(copies))).long()
    opening = [] if RegionTracker(layout, ids).region == THINKING else [layout.think_open_id]
    ids = [*ids, *opening, *thoughts, *copies[spread].tolist(), layout.think_close_id, *answer]
    ids = [id_ for id_ in ids if id_ != NO_TAG]
    config = AutoConfig.from_pretrained(str(folder), **NO_CODE)
    context = getattr(config.get_text_config(), "max_position_embeddings", None)
    return ids[-context:] if context else ids
