"""TRL's `GRPOConfig` with `max_prompt_length`, `warmup_ratio`, and bfloat16 where the machine computes it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import trl
from transformers import PreTrainedTokenizerBase

from rlvr_vocab.device import device_type, has_bf16, require_one_gpu
from rlvr_vocab.errors import UserError
from rlvr_vocab.training.settings import check_batches
from rlvr_vocab.vocab.refuse_off_policy import refuse_off_policy
from rlvr_vocab.vocab.tokenizer import chat_ids

logger = logging.getLogger(__name__)


@dataclass
class GRPOConfig(trl.GRPOConfig):
    """TRL's arguments and these; `max_steps=None` is no limit. A CPU that has bfloat16 needs no `use_cpu`.

    Attributes:
        bf16: hardware without it trains in float32, with a warning.
        max_prompt_length: problems whose prompt has more tokens are left out of training; none is cut.
        warmup_ratio: the share of the steps over which the learning rate rises; not beside `warmup_steps`.
        disable_dropout: True: otherwise one thinned network would sample a token and another would score it.
    """

    max_prompt_length: int | None = None
    warmup_ratio: float | None = None
    disable_dropout: bool = True

    def __new__(cls, *_: Any, **given: Any) -> GRPOConfig:
        if "reasoning_vocab_size" in given:
            raise UserError("GRPOConfig(reasoning_vocab_size=…): give GRPOTrainer(…, reasoning_vocab_size=…)")
        return super().__new__(cls)

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
            logger.warning("bf16: this machine computes bfloat16 slowly or not at all: all weights are in float32")
            fields["bf16"] = False
        if fields["bf16"] and device_type(fields["use_cpu"]) == "cpu":
            fields["use_cpu"] = True  # or Transformers asks for a GPU
        check_batches(fields)
        super().__post_init__()


def checked_arguments(args: GRPOConfig | None, model: Any, *, copies: bool | None, **of_trainer: Any) -> GRPOConfig:
    """The arguments, or the defaults; UserError for a sampler off the policy, or several GPUs in one process."""
    args = GRPOConfig("grpo") if args is None else args
    refuse_off_policy({**vars(args), **of_trainer}, reasoning=copies)
    device_map = getattr(model, "hf_device_map", None) or (args.model_init_kwargs or {}).get("device_map")
    require_one_gpu(args.n_gpu, device_map, copies=bool(copies))
    return args


def asks_for_bf16(fields: Mapping[str, Any]) -> bool:
    """Whether TRL's fields ask for bfloat16; by default they do."""
    return bool(not fields.get("fp16") if fields.get("bf16") is None else fields["bf16"])


def drop_long_prompts(dataset: Any, tokenizer: PreTrainedTokenizerBase, limit: int | None, **of_template: Any) -> Any:
    """The rows whose prompt has at most `limit` tokens; UserError where there are none. None: all."""
    if limit is None or dataset is None:
        return dataset
    kept = dataset.filter(lambda row: prompt_tokens(row, tokenizer, **of_template) <= limit)
    if hasattr(kept, "__len__") and len(kept) < len(dataset):
        if not len(kept):
            raise UserError(f"max_prompt_length={limit}: every prompt is longer")
        left_out = len(dataset) - len(kept)
        logger.warning("left out %d of %d prompts longer than max_prompt_length=%d", left_out, len(dataset), limit)
    return kept


def prompt_of(row: Mapping[str, Any]) -> Any:
    """The prompt of a row; as in TRL an empty question where an environment brings all of it."""
    return row.get("prompt", [{"role": "user", "content": ""}])


def prompt_tokens(row: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase, **of_template: Any) -> int:
    [ids] = chat_ids(tokenizer, [prompt_of(row)], **of_template)
    return len(ids)


def grpo_config(arguments: Mapping[str, Any]) -> GRPOConfig:
    """The arguments of a run, which has its own display; UserError with the line of TRL or Transformers."""
    try:
        return GRPOConfig(**{"disable_tqdm": True, "log_level": "error", **arguments})
    except (ValueError, ImportError) as error:  # two fields that do not go together, a package that is missing
        raise UserError(" ".join(str(error).split())) from error
