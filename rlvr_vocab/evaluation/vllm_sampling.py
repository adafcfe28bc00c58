"""Samples with an offline vLLM engine on a model folder, under the region policy of our plugin."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import AutoConfig, PreTrainedTokenizerBase

from rlvr_vocab.errors import UserError
from rlvr_vocab.evaluation.evaluate import Sampler, seed_at
from rlvr_vocab.evaluation.sampling import Completion, Messages, SamplingSettings
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.tokenizer import assistant_turn, chat_ids
from rlvr_vocab.vocab.weights import NO_CODE


@contextmanager
def vllm_sampler(
    folder: Path,
    tokenizer: PreTrainedTokenizerBase,
    layout: VocabLayout,
    prompts: Sequence[Messages],
    settings: SamplingSettings,
) -> Iterator[Sampler]:
    """A sampler while the block runs; each question has its own seed, by `settings.seed` and its place.

    Args:
        folder: a whole model; vLLM refuses adapters that train rows of the vocabulary.
        prompts: all prompts to come.
    """
    needed = max(map(len, chat_ids(tokenizer, prompts))) + settings.max_new_tokens
    with _engine(folder, layout, needed, settings.seed) as engine:
        from vllm import SamplingParams

        def sample(prompts: Sequence[Messages], first: int) -> list[Completion]:
            asked = chat_ids(tokenizer, prompts)
            params = [
                SamplingParams(
                    max_tokens=settings.max_new_tokens,
                    seed=seed_at(settings.seed, first + place),
                    detokenize=False,
                    temperature=settings.temperature,
                    top_p=settings.top_p,
                )
                for place in range(len(prompts))
            ]
            answers = engine.generate([{"prompt_token_ids": list(ids)} for ids in asked], params, use_tqdm=False)
            completions = []
            for prompt_ids, answer in zip(asked, answers, strict=True):
                output = answer.outputs[0]
                completion_ids = list(output.token_ids)
                turn = assistant_turn(tokenizer, layout, prompt_ids, completion_ids)
                finished = output.finish_reason == "stop"
                completions.append(Completion(prompt_ids, completion_ids, turn, finished))
            return completions

        yield sample


@contextmanager
def _engine(folder: Path, layout: VocabLayout, needed: int, seed: int) -> Iterator[Any]:
    """An engine for sequences of `needed` tokens; UserError where it would sample past the region policy."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    from vllm import LLM
    from vllm.platforms import current_platform

    from rlvr_vocab.vocab.vllm_plugin import NAME_OF_NAMED, named_processors

    config = AutoConfig.from_pretrained(folder, **NO_CODE)
    # "auto" would load weights in float32 as float16, another model than Transformers samples.
    dtype = str(config.dtype).removeprefix("torch.") if config.dtype is not None else "auto"
    # On a CPU vLLM 0.31 fails on a seeded request whose prompt is prefilled in chunks.
    more = {"enable_chunked_prefill": False} if current_platform.is_cpu() else {}
    engine = LLM(str(folder), dtype=dtype, max_model_len=needed, seed=seed, **more)
    try:
        if layout.size and NAME_OF_NAMED not in named_processors(engine.llm_engine.vllm_config):
            raise UserError(
                f"backend=vllm: vLLM would sample {folder} past its region policy: rlvr-vocab's plugin "
                "rlvr_vocab_engine is not loaded; install rlvr-vocab in this environment and let VLLM_PLUGINS name it, "
                "or leave it unset"
            )
        yield engine
    finally:
        engine.llm_engine.engine_core.shutdown()
