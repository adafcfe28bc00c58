"""A general plugin of vLLM: names the region processor in the configuration of engines that need it.

An installed logits processor is not enough: vLLM silently skips it under speculative decoding, and gives it sampled
tokens too late under asynchronous scheduling. So this plugin names it in the engine's configuration, as
`--logits-processors` would, and refuses options under which no processor acts. vLLM loads general plugins in every
process before it makes an engine's configuration.
"""

from __future__ import annotations

import functools
from typing import Any

from rlvr_vocab.errors import UserError


def prepare_engines() -> None:
    """From now on `EngineArgs.create_engine_config` prepares the configurations it makes; safe to call again."""
    from vllm.engine.arg_utils import EngineArgs

    original = EngineArgs.create_engine_config
    if hasattr(original, "prepares_reasoning_vocabulary"):
        return

    @functools.wraps(original)
    def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        config = original(self, *args, **kwargs)
        prepare(config)
        return config

    create_engine_config.prepares_reasoning_vocabulary = True  # type: ignore[attr-defined]
    EngineArgs.create_engine_config = create_engine_config


def prepare(vllm_config: Any) -> None:
    """Name the processor in the configuration of an engine that generates from a reasoning vocabulary.

    Raises:
        UserError: the engine would sample past the region policy.
    """
    from rlvr_vocab.vocab.vllm.logits_processor import NAME_OF_NAMED, named_processors, reasoning_layout, served_rows

    model_config = vllm_config.model_config
    if model_config.runner_type != "generate":
        return
    layout = reasoning_layout(model_config)
    if layout is None:
        return
    served_rows(vllm_config, layout)
    if vllm_config.speculative_config is not None:
        raise UserError(
            f"{model_config.model} has a reasoning vocabulary: vLLM applies no logits processor under speculative "
            "decoding, so the region policy would not be in force; start vLLM without --speculative-config"
        )
    if model_config.enable_prompt_embeds:
        raise UserError(
            f"{model_config.model} has a reasoning vocabulary: the region of a prompt is read from its ids; "
            "start vLLM without --enable-prompt-embeds"
        )
    named = named_processors(vllm_config)
    if NAME_OF_NAMED not in named:
        model_config.logits_processors = [*named, NAME_OF_NAMED]
