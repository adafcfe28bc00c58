"""The region policy in vLLM, which finds it through two entry points of the installed package.

`vllm.logits_processors`: vLLM loads `VLLMRegionProcessor` for every model; without reasoning tokens it does nothing.
vLLM refuses a class without the interface of the runner in use, so one class implements both. Called with a device it
serves the V1 runner, called with the runner's request state it serves Model Runner V2.
`vllm.general_plugins`: vLLM calls `prepare_engines` in every process before it makes an engine's configuration, because
it silently skips processors under speculative decoding, and gives them tokens too late under asynchronous scheduling.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch
from vllm.transformers_utils.repo_utils import get_hf_file_to_dict, try_get_local_file
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.truncation import Truncation
from rlvr_vocab.vocab.vllm_batch import LogitsBias, RequestRegion, SlotRegions, rows_by_truncation

try:
    from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as LogitsProcessorV2

    _INTERFACES: tuple[type, ...] = (LogitsProcessor, LogitsProcessorV2)
except ModuleNotFoundError:  # vLLM before Model Runner V2 took processors: with one installed it uses V1
    _INTERFACES = (LogitsProcessor,)


class VLLMRegionProcessor(*_INTERFACES):  # type: ignore[misc]  # mypy needs base classes by name
    """Adds `temperature × bias[region]` to each request's logits; see `rlvr_vocab.vocab.policy`.

    A request's `extra_args` (`vllm_xargs` of a server) text_top_k, text_top_p and text_min_p truncate over texts.
    """

    is_named = False

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        Truncation.of_request(sampling_params.extra_args)

    def __init__(self, vllm_config: Any, device_or_state: Any, is_pin_memory: bool = False) -> None:
        self._bias: LogitsBias | None = None
        self._requests: dict[int, RequestRegion] = {}  # V1
        self._slots: SlotRegions | None = None  # V2
        if not self.is_named and NAME_OF_NAMED in named_processors(vllm_config):
            return
        layout = reasoning_layout(vllm_config.model_config)
        if layout is None:
            return
        if not self.is_named and vllm_config.scheduler_config.async_scheduling:
            raise UserError(
                "under asynchronous scheduling the region policy needs rlvr_vocab's plugin rlvr_vocab_engine, which "
                "VLLM_PLUGINS keeps out: name it there too, or start vLLM with --no-async-scheduling"
            )
        self._layout, is_v1 = layout, isinstance(device_or_state, torch.device)
        policy = RegionPolicy(layout, rows=int(vllm_config.model_config.get_vocab_size()))
        self._bias = LogitsBias(policy, device_or_state if is_v1 else device_or_state.device)
        self._slots = None if is_v1 else SlotRegions(layout, device_or_state)

    def is_argmax_invariant(self) -> bool:
        """V1: False makes vLLM apply the processor before the temperature and before greedy sampling."""
        return self._bias is None

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """V1, before each forward pass."""
        if self._bias is not None:
            process_dict_updates(
                self._requests,
                batch_update,
                lambda params, prompt, output: RequestRegion(
                    self._layout, prompt, output, params.temperature, Truncation.of_request(params.extra_args)
                ),
            )

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """V2, when a request enters a slot; returns whether its logits are changed."""
        if self._slots is None:
            return False
        truncation = Truncation.of_request(sampling_params.extra_args)
        self._slots.add(req_idx, sampling_params.temperature, truncation)
        return True

    def apply_staged_writes(self) -> None:
        """V2, before each forward pass."""
        if self._slots is not None:
            self._slots.refresh()

    def apply(self, logits: torch.Tensor, ctx: Any = None) -> torch.Tensor:
        """`(rows, vocabulary)` float32 logits, changed in place; `ctx` is the batch layout of V2."""
        if self._bias is None:
            return logits
        if self._slots is None:
            found = list(map(self._requests.get, range(len(logits))))
            there = [(-1, 0.0) if each is None else (each.region(), each.temperature) for each in found]
            regions_B, temperatures_B = torch.tensor(there, dtype=torch.float32).to(logits.device).unbind(1)
            truncated_B = rows_by_truncation([getattr(each, "truncation", None) for each in found], logits.device)
        else:
            slots_B = ctx.expanded_idx_mapping.long().clamp(min=0)  # a negative slot pads the batch
            regions_B, temperatures_B = self._slots.thinking_S[slots_B], self._slots.temperatures_S[slots_B]
            truncated_B = {each: acts_S[slots_B] for each, acts_S in self._slots.truncated_S.items()}
        self._bias.add(logits, regions_B.long(), temperatures_B)
        self._bias.truncate(logits, temperatures_B, truncated_B)
        return logits


class NamedVLLMRegionProcessor(VLLMRegionProcessor):
    """The one that `add_region_processor` names; vLLM passes every token in time to a named processor."""

    is_named = True


NAME_OF_INSTALLED = f"{__name__}:{VLLMRegionProcessor.__qualname__}"
NAME_OF_NAMED = f"{__name__}:{NamedVLLMRegionProcessor.__qualname__}"


def prepare_engines() -> None:
    """Make `EngineArgs.create_engine_config` call `add_region_processor` on each configuration; safe to call again."""
    from vllm.engine.arg_utils import EngineArgs

    original = EngineArgs.create_engine_config
    if hasattr(original, "prepares_reasoning_vocabulary"):
        return

    @functools.wraps(original)
    def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        config = original(self, *args, **kwargs)
        add_region_processor(config)
        return config

    create_engine_config.prepares_reasoning_vocabulary = True  # type: ignore[attr-defined]
    EngineArgs.create_engine_config = create_engine_config


def add_region_processor(vllm_config: Any) -> None:
    """Name the processor for an engine with a reasoning vocabulary; UserError where it would bypass the policy."""
    model_config = vllm_config.model_config
    if vllm_config.parallel_config.distributed_executor_backend == "external_launcher":
        model_config.max_logprobs = -1  # a training in this process asks for those of all kept texts
    layout = reasoning_layout(model_config) if model_config.runner_type == "generate" else None
    if layout is None:
        return
    if vllm_config.speculative_config is not None:
        raise UserError(
            f"{model_config.model} has a reasoning vocabulary: vLLM applies no logits processor under speculative "
            "decoding, so the region policy would have no effect; start vLLM without --speculative-config"
        )
    if model_config.enable_prompt_embeds:
        raise UserError(
            f"{model_config.model} has a reasoning vocabulary: the region of a prompt is read from its ids; "
            "start vLLM without --enable-prompt-embeds"
        )
    named = named_processors(vllm_config)
    if NAME_OF_NAMED not in named:
        model_config.logits_processors = [*named, NAME_OF_NAMED]


def named_processors(vllm_config: Any) -> list[Any]:
    """The processors named in the engine's configuration; UserError for the installed one, which would run twice."""
    named = list(vllm_config.model_config.logits_processors or [])
    if VLLMRegionProcessor in named or NAME_OF_INSTALLED in named:
        raise UserError(
            f"{NAME_OF_INSTALLED} is installed as a plugin and loaded by vLLM itself: leave it out of logits_processors"
        )
    return named


def reasoning_layout(model_config: Any) -> VocabLayout | None:
    """The layout of the model that vLLM serves, from its folder or the hub; None where it has no reasoning tokens."""
    place = {"file_name": LAYOUT_FILE, "model": model_config.model, "revision": model_config.revision or "main"}
    if get_hf_file_to_dict(**place) is None:
        return None
    layout = VocabLayout.load(Path(try_get_local_file(**place)).parent)
    return layout if layout.size else None
