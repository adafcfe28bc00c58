"""How a GRPO trainer of TRL comes to score under the region policy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trl.trainer.grpo_trainer as trl_grpo
from transformers import PreTrainedModel

from rlvr_vocab.vocab.head import attach_region_head
from rlvr_vocab.vocab.logprobs import choose_block_form
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.reasoning_rows import attach_low_rank_rows


@contextmanager
def region_head_in_trl(policy: RegionPolicy, initial_model: Path) -> Iterator[None]:
    """While a `GRPOTrainer` is constructed it gives policy and reference a fused head: ours, in its place.

    It is the moment, too, at which their copies are taken into the form of the initial model. And both are read onto
    one device: TRL's default, `device_map="auto"`, cuts a model over all GPUs that a process sees.
    """
    original, create = trl_grpo.add_fused_lm_head, trl_grpo.create_model_from_path

    def create_on_one_device(name: str, **settings: Any) -> PreTrainedModel:
        return create(name, **{"device_map": None, **settings})

    def add_region_head(model: PreTrainedModel, **settings: Any) -> None:
        attach_low_rank_rows(model, initial_model)
        attach_region_head(model, policy=policy, **settings)
        choose_block_form(model.device)  # for its warning to come before the first generation

    trl_grpo.add_fused_lm_head, trl_grpo.create_model_from_path = add_region_head, create_on_one_device
    try:
        yield
    finally:
        trl_grpo.add_fused_lm_head, trl_grpo.create_model_from_path = original, create
