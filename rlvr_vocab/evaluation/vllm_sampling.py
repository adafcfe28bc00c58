"""Samples with an offline vLLM engine on a model folder, under the region policy of our plugin."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from transformers import AutoConfig

from rlvr_vocab.data.rows import Messages
from rlvr_vocab.errors import UserError
from rlvr_vocab.evaluation.evaluate import Row, Sampler, seed_at
from rlvr_vocab.evaluation.sampling import Chat, Completion, SamplingSettings, context_of
from rlvr_vocab.tools.transcripts import Request, SampledTurn
from rlvr_vocab.vocab.truncation import Truncation
from rlvr_vocab.vocab.weights import NO_CODE


@contextmanager
def vllm_sampler(
    folder: Path, chat: Chat, prompts: Sequence[Messages], settings: SamplingSettings
) -> Iterator[Sampler]:
    """A sampler while the block runs; each turn has its own seed, by `settings.seed`, its question's place and number.

    `folder` has a whole model, as vLLM refuses adapters that train rows of the vocabulary; `prompts` are all that come.
    Raises UserError where the engine would sample without the region policy.
    """
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    from vllm import LLM, SamplingParams
    from vllm.platforms import current_platform

    from rlvr_vocab.vocab.vllm_plugin import NAME_OF_NAMED, named_processors

    def seed_of(place: int, turn: int) -> int:
        seed = seed_at(settings.seed, place)
        return seed_at(seed, turn) if turn else seed

    def generate(first: int, requests: Sequence[Request]) -> list[SampledTurn]:
        params = [
            SamplingParams(
                max_tokens=request.room,
                seed=seed_of(first + request.row, request.turn),
                detokenize=False,
                temperature=settings.temperature,
                **truncation,
            )
            for request in requests
        ]
        asked = [{"prompt_token_ids": request.context_ids} for request in requests]
        outputs = [answer.outputs[0] for answer in engine.generate(asked, params, use_tqdm=False)]
        return [SampledTurn(list(output.token_ids), output.finish_reason == "stop") for output in outputs]

    def sample(rows: Sequence[Row], first: int) -> list[Completion]:
        return chat.completions(rows, partial(generate, first), settings.max_new_tokens, context_of(config))

    over_texts = {"extra_args": Truncation(**settings.truncation).request_args()}
    truncation = over_texts if chat.layout.size else settings.truncation
    config = AutoConfig.from_pretrained(folder, **NO_CODE)
    dtype, length = config.dtype, max(map(len, chat.prompt_ids(prompts))) + settings.max_new_tokens
    grows = chat.tools is not None and chat.tools.environment_factories  # by what they add to a prompt
    engine = LLM(
        str(folder),
        # "auto" would load weights in float32 as float16, another model than Transformers samples.
        dtype="auto" if dtype is None else str(dtype).removeprefix("torch."),
        max_model_len=context_of(config) if grows else length,
        seed=settings.seed,
        # vLLM 0.31 on a CPU fails on a seeded request whose prompt is prefilled in chunks.
        **({"enable_chunked_prefill": False} if current_platform.is_cpu() else {}),
    )
    try:
        if chat.layout.size and NAME_OF_NAMED not in named_processors(engine.llm_engine.vllm_config):
            raise UserError(
                f"backend=vllm: vLLM would sample {folder} without its region policy, because the plugin "
                "rlvr_vocab_engine is not loaded: install rlvr-vocab in this environment, and let VLLM_PLUGINS name "
                "rlvr_vocab_engine or leave it unset"
            )
        yield sample
    finally:
        engine.llm_engine.engine_core.shutdown()
