"""How a GRPO trainer of TRL comes to score under the region policy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trl.trainer.grpo_trainer as trl_grpo
from transformers import PreTrainedModel

from rlvr_vocab.vocab.head import attach_region_head
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.reasoning_rows import hold_differences


@contextmanager
def region_head_in_trl(
    policy: RegionPolicy, initial_model: Path, *, adapter: bool, placebo: bool = False
) -> Iterator[None]:
    """While a `GRPOTrainer` is constructed it gives policy and reference a fused head: ours, in its place.

    It is the moment, too, at which their copies are taken into the form of the initial model.
    """
    original = trl_grpo.add_fused_lm_head

    def add_region_head(model: PreTrainedModel, **settings: Any) -> None:
        hold_differences(model, initial_model, adapter=adapter)
        attach_region_head(model, policy=policy, placebo=placebo, **settings)

    trl_grpo.add_fused_lm_head = add_region_head
    try:
        yield
    finally:
        trl_grpo.add_fused_lm_head = original
