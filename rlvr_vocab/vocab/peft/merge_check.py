"""Proves a merge: the adapter on its base, the merged weights, and the folder in a fresh process give one model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout
from rlvr_vocab.vocab.peft import stock_reload
from rlvr_vocab.vocab.policy import open_copies
from rlvr_vocab.vocab.read_as_data import NO_CODE
from rlvr_vocab.vocab.regions import THINKING, RegionTracker
from rlvr_vocab.vocab.tokenizer import load_tokenizer

TOLERANCE = 1e-4
# What float32 arithmetic by itself may be off by, as a share of the largest logit: on SmolLM2, whose largest is 40,
# merged and unmerged logits lie 9e-5 to 1.8e-4 apart in it, shares of 2e-6 to 5e-6, and 3e-5 in float64.
_FLOAT32_SHARE = 2e-5
# Logits of the probe that are held at once, here and in the fresh process.
_LOGITS_HELD = 6


@dataclass(frozen=True)
class Shift:
    """How far one model is from another on the chat: largest difference of logits, mean KL in nats a token."""

    largest: float
    mean_kl: float


class MergeCheck:
    """Compares models by the logits of one chat.

    Attributes:
        ids: the chat.
        arithmetic: float64 where the memory allows it, else float32.
    """

    def __init__(self, base: Path, model: torch.nn.Module) -> None:
        """
        Args:
            base: the folder under the adapter, which has the tokenizer.
            model: the float32 model that is to be compared.
        """
        self.ids = probe_ids(base)
        rows = model.get_input_embeddings().weight.size(0)  # type: ignore[operator]  # a PeftModel has it
        weights = sum(parameter.nbytes for parameter in model.parameters())
        needed = weights + _LOGITS_HELD * len(self.ids) * rows * 8  # as much again as it takes now: twice the bytes
        self.arithmetic = torch.float64 if psutil.virtual_memory().available > 1.2 * needed else torch.float32

    @property
    def arithmetic_name(self) -> str:
        return str(self.arithmetic).removeprefix("torch.")

    def logits(self, model: Any) -> torch.Tensor:
        return stock_reload.logits_of(model, self.ids, self.arithmetic)

    def require_same(self, expected: torch.Tensor, merged: torch.Tensor) -> float:
        """The largest difference between the adapter on its base and the merged weights.

        Raises:
            UserError: it is larger than arithmetic explains.
        """
        largest, allowed = largest_difference(expected, merged), self.allowed(expected)
        if not largest <= allowed:
            raise UserError(
                f"merging changes the model: logits differ by {largest:.1e} from the adapter on its base, where "
                f"{allowed:.0e} is allowed in {self.arithmetic_name}; nothing was written"
            )
        return largest

    def allowed(self, logits: torch.Tensor) -> float:
        """What may lie between the adapter on its base and merged weights: 1e-4, or what float32 itself is off by."""
        if self.arithmetic == torch.float64:
            return TOLERANCE
        return max(TOLERANCE, _FLOAT32_SHARE * logits.abs().max().item())

    def require_reload(self, folder: Path, expected: torch.Tensor, digests: dict[str, str]) -> float:
        """The largest difference between the weights as they were written and as stock classes read them.

        Raises:
            UserError: a fresh process cannot load the folder, or loads another model.
        """
        logits, found = self._in_fresh_process(folder)
        largest = largest_difference(expected, logits)
        other = sorted(name for name in {*digests, *found} if digests.get(name) != found.get(name))
        if other or not largest <= TOLERANCE:
            tensors = f"; tensors that are not what was written: {len(other)} ({other[0]} …)" if other else ""
            raise UserError(
                f"a fresh process loads another model than was written: logits differ by {largest:.1e}, where "
                f"{TOLERANCE:.0e} is allowed{tensors}; nothing was kept"
            )
        return largest

    def _in_fresh_process(self, folder: Path) -> tuple[torch.Tensor, dict[str, str]]:
        with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as place:
            answer = Path(place, "answer.safetensors")
            # -P: the script's folder stays off the import path, where its neighbours would hide packages.
            command = [sys.executable, "-P", stock_reload.__file__, str(folder), str(answer), self.arithmetic_name]
            done = subprocess.run(
                [*command, json.dumps(self.ids)],
                env=_environment(),
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                word = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}, without a word"])[-1]
                raise UserError(f"a fresh process cannot load what was written: {word}; nothing was kept")
            with safe_open(answer, framework="pt") as file:
                return file.get_tensor(stock_reload.LOGITS), dict(file.metadata())


def _environment() -> dict[str, str]:
    """Of a process that looks at one folder: without what a launcher tells the processes of a training."""
    of_a_launcher = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in of_a_launcher and not name.startswith(("ACCELERATE_", "FSDP_", "TORCHELASTIC_"))
    }
    return {**kept, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}


def largest_difference(one: torch.Tensor, other: torch.Tensor) -> float:
    if one.shape != other.shape:
        return float("inf")
    return (one - other).abs().max().item()


def shift(one: torch.Tensor, other: torch.Tensor) -> Shift:
    """From logits to logits; the divergence is that of `other` from `one`."""
    log_p, log_q = one.log_softmax(-1), other.log_softmax(-1)
    kl_T = (log_p.exp() * (log_p - log_q)).sum(-1)
    return Shift(largest_difference(one, other), kl_T.mean().item())


_QUESTION = "Natalia sold 48 clips in April, and half as many in May. How many clips did she sell altogether?"
_THOUGHTS = "In May she sold 48 / 2 = 24 clips, so altogether 48 + 24 = 72."
_ANSWER = "She sold 72 clips: \\boxed{72}."
# Reasoning tokens from all over the vocabulary, beside the copies of the thoughts: the last row may be the lost one.
_SPREAD = 16


def probe_ids(folder: Path) -> list[int]:
    """Ids of a chat with a thinking block in it, its second half in reasoning tokens where there are any.

    Args:
        folder: a model folder; without a `reasoning_vocab.json` the chat has no thinking.
    """
    if (folder / LAYOUT_FILE).is_file():
        layout, tokenizer = VocabLayout.load(folder), load_tokenizer(folder)
        prompt = _prompt_ids(tokenizer)
        opened = RegionTracker(layout, prompt).region == THINKING
        thoughts = tokenizer.encode(_THOUGHTS, add_special_tokens=False)
        thinking = [*thoughts, *_in_reasoning_tokens(thoughts, layout)]
        ids = [*prompt, *([] if opened else [layout.think_open_id]), *thinking, layout.think_close_id]
    else:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), **NO_CODE)
        ids = [*_prompt_ids(tokenizer), *tokenizer.encode(_THOUGHTS, add_special_tokens=False)]
    ids += tokenizer.encode(_ANSWER, add_special_tokens=False)
    config = AutoConfig.from_pretrained(str(folder), **NO_CODE)
    context = getattr(config.get_text_config(), "max_position_embeddings", None)
    return ids[-context:] if context else ids


def _prompt_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    if tokenizer.chat_template is None:
        return list(tokenizer.encode(_QUESTION))
    message = [{"role": "user", "content": _QUESTION}]
    return list(tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=False))


def _in_reasoning_tokens(ids: list[int], layout: VocabLayout) -> list[int]:
    copies, sources = open_copies(layout)
    copy_of = dict(zip(sources.tolist(), copies.tolist(), strict=True))
    spread = torch.linspace(0, max(len(copies) - 1, 0), min(_SPREAD, len(copies))).long()
    return [*(copy_of[token] for token in ids if token in copy_of), *copies[spread].tolist()]
