"""Refuses options that would make the sampler draw from another distribution than training scores; needs no torch."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.text import did_you_mean

# Options that keep a part of the distribution, and their values that keep all of it.
TRUNCATIONS: dict[str, tuple[Any, ...]] = {
    "top_k": (0,),  # None is Transformers' default of 50
    "top_p": (1,),
    "min_p": (None, 0),
}
# Options of Transformers' GenerationConfig, vLLM's SamplingParams and GRPOConfig, and the values that change nothing.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "do_sample": (True,),
    **TRUNCATIONS,
    "repetition_penalty": (1,),
    "neftune_noise_alpha": (None, 0),  # other noise while sampling than while scoring
    **dict.fromkeys(
        (
            *("encoder_repetition_penalty", "guidance_scale", "num_beam_groups", "num_beams"),
            *("num_return_sequences", "typical_p"),
        ),
        (None, 1),
    ),
    **dict.fromkeys(
        (
            *("allowed_token_ids", "assistant_early_exit", "bad_words", "bad_words_ids", "begin_suppress_tokens"),
            *("constraints", "dola_layers", "encoder_no_repeat_ngram_size", "epsilon_cutoff", "eta_cutoff"),
            *("exponential_decay_length_penalty", "force_words_ids", "forced_bos_token_id", "forced_eos_token_id"),
            *("frequency_penalty", "logit_bias", "logits_processors", "min_length", "min_new_tokens", "min_tokens"),
            *("no_repeat_ngram_size", "penalty_alpha", "presence_penalty", "prompt_lookup_num_tokens"),
            *("remove_invalid_values", "sequence_bias", "structured_outputs", "suppress_tokens", "top_h", "use_mtp"),
            *("vllm_structured_outputs_regex", "watermarking_config"),
        ),
        (None, 0, False),
    ),
}
# The options that `generation_kwargs` may hold.
_SAME_THING = {"max_new_tokens": "max_completion_length", **{name: name for name in ("temperature", *TRUNCATIONS)}}
OF_TRANSFORMERS = (*_SAME_THING, "cache_implementation", "use_cache", *NEUTRAL)
OF_VLLM = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty")


def refuse_off_policy(grpo: Mapping[str, Any], *, reasoning: bool | None, key: str = "") -> None:
    """Refuse a sampler that would draw from another distribution than training scores.

    `grpo` has fields of `GRPOConfig`, which may truncate, and arguments of the trainer; one that is missing has TRL's
    default. `reasoning` says whether there are reasoning tokens, None where that is unknown. `key` goes before a
    field's name in messages.
    """
    temperature = grpo.get("temperature", 1.0)
    if not 0 < temperature < math.inf:
        raise UserError(f"{key}temperature={temperature}: must be above 0, training samples")
    refuse_altered(grpo, key, except_for=TRUNCATIONS)
    truncates = list(truncation_of(grpo))
    if truncates and grpo.get("use_vllm") and not grpo.get("top_k"):
        raise UserError(f"{key}{truncates[-1]}: with vLLM, which reports about top_k kept texts, set {key}top_k=50 too")
    if {"top_p", "min_p"} <= {*truncates} and grpo.get("use_vllm") and reasoning is False:
        raise UserError(f"{key}min_p: beside {key}top_p vLLM keeps other texts than in a run with copies: set one")
    if grpo.get("rollout_func") is not None:
        raise UserError(f"{key}rollout_func: completions from elsewhere are not supported; leave it out")
    known = OF_VLLM if grpo.get("use_vllm") else OF_TRANSFORMERS
    options, where = grpo.get("generation_kwargs") or {}, f"{key}generation_kwargs."
    refuse_altered(options, where, except_for=TRUNCATIONS)
    for name, value in options.items():
        if name not in known:
            raise UserError(f"{where}{name}={value}: not used here; leave it out{did_you_mean(name, known)}")
        field = _SAME_THING.get(name)
        if field is not None and value != (own := grpo.get(field, TRUNCATIONS.get(field, (None,))[0])):
            raise UserError(f"{where}{name}={value} and {key}{field}={own} are the same thing: give {key}{field} alone")
    bypassed = [*(["reasoning tokens"] if reasoning else []), *truncates]
    if bypassed and grpo.get("use_transformers_continuous_batching"):
        raise UserError(
            f"{key}use_transformers_continuous_batching=true: it bypasses the region policy; set it to false, or "
            f"train without {' and '.join(bypassed)}"
        )


def truncation_of(grpo: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `GRPOConfig` that truncate the distribution, with their values."""
    return {name: grpo[name] for name, neutral in TRUNCATIONS.items() if grpo.get(name, neutral[0]) not in neutral}


def refuse_altered_config(generation_config: Any, folder: object) -> None:
    """Refuse a model's generation configuration that changes the distribution."""
    given = {name: value for name, value in vars(generation_config).items() if value is not None}
    refuse_altered(given | {"do_sample": True}, f"{folder}/generation_config.json: ")


def refuse_altered(options: Mapping[str, Any], where: str, except_for: Collection[str] = ()) -> None:
    """Refuse the first option with a value that changes the distribution; `where` stands before its name."""
    for name in NEUTRAL:
        if name in options and name not in except_for and options[name] not in NEUTRAL[name]:
            value = options[name]
            shown = str(value).lower() if isinstance(value, bool) else value
            raise UserError(f"{where}{name}={shown}: the trained and the sampled policy would differ; leave it out")
