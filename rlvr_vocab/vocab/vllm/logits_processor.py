"""The region policy as a vLLM logits processor, found by vLLM itself through the entry point that installing makes.

vLLM loads every processor of the group `vllm.logits_processors` for every model. This one does nothing for a model
without reasoning tokens. vLLM refuses a class that lacks the interface of the runner in use, hence one class for both:
called with a device it serves the V1 runner, called with the runner's request state it serves Model Runner V2.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
from vllm.transformers_utils.repo_utils import get_hf_file_to_dict, try_get_local_file
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.vllm.batch_policy import BatchRegions, LogitsBias, SlotRegions

try:
    from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as LogitsProcessorV2

    _INTERFACES: tuple[type, ...] = (LogitsProcessor, LogitsProcessorV2)
except ModuleNotFoundError:  # vLLM before Model Runner V2 took processors: with one installed it uses V1
    _INTERFACES = (LogitsProcessor,)


def reasoning_layout(model_config: Any) -> VocabLayout | None:
    """The layout of the model that vLLM serves, from its folder or the hub; None where it has no reasoning tokens."""
    place = {"file_name": LAYOUT_FILE, "model": model_config.model, "revision": model_config.revision or "main"}
    if get_hf_file_to_dict(**place) is None:
        return None
    layout = VocabLayout.load(Path(try_get_local_file(**place)).parent)
    return layout if layout.size else None


class RegionLogitsProcessor(*_INTERFACES):  # type: ignore[misc]  # mypy wants to see base classes by name
    """Adds `temperature × bias[region]` to each request's logits; see `rlvr_vocab.vocab.policy`."""

    def __init__(self, vllm_config: Any, device_or_state: Any, is_pin_memory: bool = False) -> None:
        layout = None if self._stands_aside(vllm_config) else reasoning_layout(vllm_config.model_config)
        self._runner: _RequestsOfV1 | _SlotsOfV2 | None = None
        if layout is None:
            return
        self._refuse_late_tokens(vllm_config)
        policy = RegionPolicy(layout, rows=served_rows(vllm_config, layout))
        if isinstance(device_or_state, torch.device):
            self._runner = _RequestsOfV1(policy, device_or_state)
        else:
            self._runner = _SlotsOfV2(policy, device_or_state)

    @staticmethod
    def _stands_aside(vllm_config: Any) -> bool:
        """Whether the engine builds `NamedRegionLogitsProcessor`, which then does the work."""
        return NAME_OF_NAMED in named_processors(vllm_config)

    @classmethod
    def _refuse_late_tokens(cls, vllm_config: Any) -> None:
        if vllm_config.scheduler_config.async_scheduling:
            raise UserError(
                "under asynchronous scheduling the region policy needs rlvr_vocab's plugin rlvr_vocab_engine, which "
                "VLLM_PLUGINS keeps out: name it there too, or start vLLM with --no-async-scheduling"
            )

    def is_argmax_invariant(self) -> bool:
        """V1: False puts the processor before the temperature and before greedy rows are decided."""
        return self._runner is None

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """V1, before each forward pass."""
        if self._runner is not None:
            cast(_RequestsOfV1, self._runner).update(batch_update)

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """V2, when a request enters a slot; returns whether its logits are changed."""
        if self._runner is None:
            return False
        cast(_SlotsOfV2, self._runner).regions.add(req_idx, sampling_params.temperature)
        return True

    def apply_staged_writes(self) -> None:
        """V2, before each forward pass."""
        if self._runner is not None:
            cast(_SlotsOfV2, self._runner).regions.refresh()

    def apply(self, logits: torch.Tensor, ctx: Any = None) -> torch.Tensor:
        """`(rows, vocabulary)` float32 logits, changed in place; `ctx` is the batch layout of V2."""
        if self._runner is not None:
            self._runner.apply(logits, ctx)
        return logits


class NamedRegionLogitsProcessor(RegionLogitsProcessor):
    """The same, as `rlvr_vocab.vocab.vllm.general_plugin` names it to an engine that serves a reasoning vocabulary."""

    @staticmethod
    def _stands_aside(vllm_config: Any) -> bool:
        return False

    @classmethod
    def _refuse_late_tokens(cls, vllm_config: Any) -> None:
        pass  # vLLM gives a named processor every token in time


NAME_OF_INSTALLED = f"{__name__}:{RegionLogitsProcessor.__qualname__}"
NAME_OF_NAMED = f"{__name__}:{NamedRegionLogitsProcessor.__qualname__}"


def named_processors(vllm_config: Any) -> list[Any]:
    """The processors that the engine's configuration names; UserError for the installed one, which would act twice."""
    named = list(vllm_config.model_config.logits_processors or [])
    if RegionLogitsProcessor in named or NAME_OF_INSTALLED in named:
        raise UserError(
            f"{NAME_OF_INSTALLED} is installed as a plugin and loaded by vLLM itself: leave it out of logits_processors"
        )
    return named


def served_rows(vllm_config: Any, layout: VocabLayout) -> int:
    rows = int(vllm_config.model_config.get_vocab_size())
    if rows < layout.rows:
        raise UserError(
            f"{vllm_config.model_config.model}: {LAYOUT_FILE} describes {layout.rows} tokens, the model has {rows}"
        )
    return rows


class _RequestsOfV1:
    """Regions by batch row, from the lists of ids that V1 shares with its processors."""

    def __init__(self, policy: RegionPolicy, device: torch.device) -> None:
        self._bias, self._device = LogitsBias(policy, device), device
        self._batch = BatchRegions(policy.layout)

    def update(self, change: BatchUpdate | None) -> None:
        if change is not None:
            self._batch.update(
                change.removed,
                [(row, params.temperature, prompt, output) for row, params, prompt, output in change.added],
                [(source, target, way is MoveDirectionality.SWAP) for source, target, way in change.moved],
            )
        self._batch.advance()

    def apply(self, logits: torch.Tensor, ctx: None) -> None:
        rows = self._batch.rows()
        found = torch.tensor([rows.get(row, (-1, 0.0)) for row in range(len(logits))], dtype=torch.float32)
        regions_B, temperatures_B = found.to(self._device).unbind(1)
        self._bias.add(logits, regions_B, temperatures_B)


class _SlotsOfV2:
    """Regions by request slot, from the ids that V2 keeps on the device."""

    def __init__(self, policy: RegionPolicy, state: Any) -> None:
        self._bias = LogitsBias(policy, state.device)
        self.regions = SlotRegions(policy.layout, state)

    def apply(self, logits: torch.Tensor, ctx: Any) -> None:
        slots_B = ctx.expanded_idx_mapping.long().clamp(min=0)  # a negative slot pads the batch
        self._bias.add(logits, self.regions.thinking_S[slots_B].long(), self.regions.temperatures_S[slots_B])
