"""TRL's `GRPOConfig` with the fields that guides and older versions have, and in one arithmetic on every machine."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import trl
from transformers import PreTrainedTokenizerBase

from rlvr_vocab.device import device_type, has_bf16, require_one_gpu
from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.refuse_off_policy import refuse_off_policy
from rlvr_vocab.vocab.weights import stored_dtype, weights_dtype

logger = logging.getLogger(__name__)


@dataclass
class GRPOConfig(trl.GRPOConfig):
    """TRL's arguments, with these in addition or with another default.

    In full precision, with a word, where the hardware has no bfloat16 of its own. A CPU that has it trains in it too,
    and needs no `use_cpu` for that. `max_steps=None` is no limit.

    Attributes:
        max_prompt_length: problems whose prompt has more tokens are left out of training; none is ever cut.
        warmup_ratio: the share of the steps over which the learning rate rises; not beside `warmup_steps`.
        disable_dropout: True: a token would be sampled from one thinned network and scored by another.
    """

    max_prompt_length: int | None = None
    warmup_ratio: float | None = None
    disable_dropout: bool = True

    def __post_init__(self) -> None:
        fields: dict[str, Any] = self.__dict__
        if self.warmup_ratio is not None:
            if fields["warmup_steps"]:
                raise ValueError(f"warmup_ratio={self.warmup_ratio} and warmup_steps={fields['warmup_steps']}: set one")
            fields["warmup_steps"] = self.warmup_ratio  # transformers 5: below 1 it is a share of the steps
        if fields["max_steps"] is None:
            fields["max_steps"] = -1
        fields["bf16"] = asks_for_bf16(fields)
        if fields["bf16"] and not has_bf16(fields["use_cpu"]):
            logger.warning(
                "bf16: this machine computes bfloat16 slowly or not at all: training, and all weights, in float32"
            )
            fields["bf16"] = False
        if fields["bf16"] and device_type(fields["use_cpu"]) == "cpu":
            fields["use_cpu"] = True  # or Transformers asks for a GPU
        super().__post_init__()


def checked_arguments(args: GRPOConfig | None, *, copies: bool, **of_trainer: Any) -> GRPOConfig:
    """The arguments, or the defaults.

    Raises:
        UserError: a sampler off the policy, by them or by other arguments of the trainer; several GPUs in one process.
    """
    args = GRPOConfig("grpo") if args is None else args
    refuse_off_policy({**vars(args), **of_trainer}, reasoning=copies)
    require_one_gpu(args.n_gpu, (args.model_init_kwargs or {}).get("device_map"), copies=copies)
    return args


def asks_for_bf16(fields: Mapping[str, Any]) -> bool:
    """Whether a run's fields of TRL ask for bfloat16; unless they say otherwise they do."""
    return bool(not fields.get("fp16") if fields.get("bf16") is None else fields["bf16"])


def as_the_machine_computes(args: trl.GRPOConfig, folder: Path) -> dict[str, Any]:
    """How the weights of a folder are loaded: where bfloat16 is slow, in float32, those under an adapter too."""
    loading: dict[str, Any] = dict(args.model_init_kwargs or {})
    asked = loading.get("dtype", "float32")
    dtype = stored_dtype(folder) if asked == "auto" else asked
    named: Any = getattr(torch, dtype, dtype) if isinstance(dtype, str) else dtype
    return {**loading, "dtype": weights_dtype(named, bool(args.use_cpu))}


def drop_long_prompts(dataset: Any, tokenizer: PreTrainedTokenizerBase, limit: int | None) -> Any:
    """The rows whose prompt has at most so many tokens, the others counted in a warning; all where there is no limit.

    Raises:
        UserError: none is left.
    """
    if limit is None or dataset is None:
        return dataset

    kept = dataset.filter(lambda row: prompt_tokens(row, tokenizer) <= limit)
    if hasattr(kept, "__len__") and len(kept) < len(dataset):
        if not len(kept):
            raise UserError(f"max_prompt_length={limit}: every prompt is longer")
        left_out = len(dataset) - len(kept)
        logger.warning("left out %d of %d prompts longer than max_prompt_length=%d", left_out, len(dataset), limit)
    return kept


def prompt_tokens(row: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase, **of_template: Any) -> int:
    prompt = row["prompt"]
    if isinstance(prompt, str):
        return len(tokenizer(prompt)["input_ids"])
    return len(tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False, **of_template))


def grpo_config(arguments: Mapping[str, Any]) -> GRPOConfig:
    """The arguments of a run, which has a display of its own.

    Raises:
        UserError: TRL or Transformers refuse the arguments; what they say, on one line.
    """
    try:
        return GRPOConfig(**{"disable_tqdm": True, "log_level": "error", **arguments})
    except (ValueError, ImportError) as error:  # two fields that do not go together, a package that is missing
        raise UserError(" ".join(str(error).split())) from error
