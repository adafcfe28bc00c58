"""Differences of reasoning rows that train beside a LoRA adapter, over tables that are frozen.

A PEFT layer like the rows of `trained_rows`: saved and loaded with the adapter, switched off for the reference, merged
for vLLM and taken out again.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn

from rlvr_vocab.vocab.peft.adapter_base import DIFFERENCE_KEY
from rlvr_vocab.vocab.peft.trained_rows import ADAPTER
from rlvr_vocab.vocab.reasoning_rows import CopiedRows, Difference


class TrainedDifference(nn.Module, BaseTunerLayer):
    """Stands where a `Difference` stood, which it keeps as it was; the one in force answers.

    Attributes:
        base_layer: the differences before training.
    """

    adapter_layer_names = (DIFFERENCE_KEY,)
    base_layer: Any

    def __init__(self, base_layer: Difference) -> None:
        super().__init__()
        trained = copy.deepcopy(base_layer).requires_grad_(True)
        self.base_layer = base_layer.requires_grad_(False)
        self.lora_difference = nn.ModuleDict({ADAPTER: trained})
        self.merged_adapters: list[str] = []
        self._initial: dict[str, torch.Tensor] | None = None

    @property
    def in_force(self) -> Difference:
        if self.disable_adapters and self.merged:
            self.unmerge()
        found = self.base_layer if self.disable_adapters or self.merged else self.lora_difference[ADAPTER]
        assert isinstance(found, Difference)
        return found

    @property
    def A(self) -> torch.Tensor | None:
        return self.in_force.A

    @property
    def B(self) -> torch.Tensor | None:
        return self.in_force.B

    def forward(self, ks: torch.Tensor, sparse: bool = False) -> torch.Tensor | None:
        rows: torch.Tensor | None = self.in_force(ks, sparse)
        return rows

    def projected(self, hidden: torch.Tensor) -> torch.Tensor | None:
        return self.in_force.projected(hidden)

    def merge(self, safe_merge: bool = False, adapter_names: list[str] | None = None) -> None:
        if not self.merged:
            self._initial = {name: each.clone() for name, each in self.base_layer.state_dict().items()}
            self.base_layer.load_state_dict(self.lora_difference[ADAPTER].state_dict())
        self.merged_adapters = [ADAPTER]

    def unmerge(self) -> None:
        if self._initial is not None:
            self.base_layer.load_state_dict(self._initial)
            self._initial = None
        self.merged_adapters = []


def train_differences(held: CopiedRows) -> None:
    """Let the differences of a model's reasoning rows train with its adapter; frozen rows have none."""
    for _, module in held.own_tables():
        if module.difference.B is not None:
            module.difference = TrainedDifference(module.difference)
