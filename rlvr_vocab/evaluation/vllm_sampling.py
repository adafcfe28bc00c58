"""Samples with an offline vLLM engine on a model folder, under the region policy of our plugin."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from transformers import AutoConfig, PreTrainedTokenizerBase

from rlvr_vocab.data.rows import Messages
from rlvr_vocab.errors import UserError
from rlvr_vocab.evaluation.evaluate import Sampler, seed_at
from rlvr_vocab.evaluation.sampling import Completion, SamplingSettings
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

    `folder` has a whole model, as vLLM refuses adapters that train rows of the vocabulary; `prompts` are all that come.
    Raises UserError where the engine would sample without the region policy.
    """
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    from vllm import LLM, SamplingParams
    from vllm.platforms import current_platform

    from rlvr_vocab.vocab.vllm_plugin import NAME_OF_NAMED, named_processors

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
        answers = engine.generate([{"prompt_token_ids": ids} for ids in asked], params, use_tqdm=False)
        completions = []
        for prompt_ids, answer in zip(asked, answers, strict=True):
            [output] = answer.outputs
            completion_ids = list(output.token_ids)
            turn = assistant_turn(tokenizer, layout, prompt_ids, completion_ids)
            completions.append(Completion(prompt_ids, completion_ids, turn, output.finish_reason == "stop"))
        return completions

    dtype = AutoConfig.from_pretrained(folder, **NO_CODE).dtype
    engine = LLM(
        str(folder),
        # "auto" would load weights in float32 as float16, another model than Transformers samples.
        dtype="auto" if dtype is None else str(dtype).removeprefix("torch."),
        max_model_len=max(map(len, chat_ids(tokenizer, prompts))) + settings.max_new_tokens,
        seed=settings.seed,
        # vLLM 0.31 on a CPU fails on a seeded request whose prompt is prefilled in chunks.
        **({"enable_chunked_prefill": False} if current_platform.is_cpu() else {}),
    )
    try:
        if layout.size and NAME_OF_NAMED not in named_processors(engine.llm_engine.vllm_config):
            raise UserError(
                f"backend=vllm: vLLM would sample {folder} without its region policy, because the plugin "
                "rlvr_vocab_engine is not loaded: install rlvr-vocab in this environment, and let VLLM_PLUGINS name "
                "rlvr_vocab_engine or leave it unset"
            )
        yield sample
    finally:
        engine.llm_engine.engine_core.shutdown()
