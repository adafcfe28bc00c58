"""The `training` section: TRL's fields by their types, ours beside them."""

from collections.abc import Mapping
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.exp.from_config import KIND_NAMES, read, read_choice, wrong_type
from rlvr_vocab.exp.grpo_fields import GRPO_FIELDS, GrpoField
from rlvr_vocab.exp.typed_sections import ModelSettings, RewardSettings, TrainingSettings

KINDS = {"int": int, "float": float, "bool": bool, "str": str, "dict": dict, "list": list}
# TRL's annotation allows num_generations=None, and then divides by it.
NEVER_NONE = {name for name, field in GRPO_FIELDS.items() if not field.optional} | {"num_generations"}
OURS = ("max_prompt_length", "warmup_ratio", "kl_log_steps")


def read_grpo_value(name: str, value: Any) -> Any:
    """One field of GRPOConfig, checked against the types and choices that TRL gives it."""
    field, key = GRPO_FIELDS[name], f"training.{name}"
    if value is False and "no" in field.choices:  # YAML reads an unquoted no as false
        value = "no"
    if value is None and field.optional:
        return None
    for kind in field.kinds:
        if kind == "any":
            return value
        if kind == "float" and isinstance(value, int) and not isinstance(value, bool):
            return value  # logging_steps and the like tell a count from a share by its size, TRL keeps ints too
        try:
            converted = read(KINDS[kind], value, key)
        except UserError:
            continue
        return converted if kind != "str" else read_choice_of(field, converted, key)
    raise wrong_type(value, key, " or ".join(KIND_NAMES[KINDS[kind]] for kind in field.kinds))


def read_choice_of(field: GrpoField, value: str, key: str) -> str:
    return read_choice(field.choices, value, key) if field.choices else value


def read_training(
    section: Mapping[str, Any], model: ModelSettings, rewards: RewardSettings, exp_name: str, seed: int
) -> TrainingSettings:
    """The training section as GRPOConfig arguments and our own keys.

    A null for a field that TRL allows no None for means: not set, TRL's default. `seed`, `run_name` and
    `reward_weights` are filled in from the keys that decide them, `eval_strategy` from `eval_steps`.
    """
    annotations = {"max_prompt_length": int | None, "warmup_ratio": float | None, "kl_log_steps": int}
    ours = {name: read(annotations[name], section.get(name), f"training.{name}") for name in OURS}
    grpo = {
        name: read_grpo_value(name, value)
        for name, value in section.items()
        if name not in OURS and not (value is None and name in NEVER_NONE)
    }
    if ours["warmup_ratio"] is not None:
        if grpo.get("warmup_steps"):
            raise UserError(
                f"training.warmup_ratio={ours['warmup_ratio']} and "
                f"training.warmup_steps={section['warmup_steps']} are the same thing: set one"
            )
        grpo["warmup_steps"] = ours["warmup_ratio"]  # transformers 5: below 1 it is a share of the steps
    add_generation_kwargs(grpo, model)
    grpo.setdefault("seed", seed)
    grpo["run_name"] = exp_name
    if grpo.get("eval_steps") is not None:
        grpo.setdefault("eval_strategy", "steps")
    if grpo.get("load_best_model_at_end"):
        grpo["metric_for_best_model"] = grpo.get("metric_for_best_model") or "accuracy"
    grpo["reward_weights"] = [function.weight for function in rewards.functions]
    return TrainingSettings(grpo=grpo, **ours)


def add_generation_kwargs(grpo: dict[str, Any], model: ModelSettings) -> None:
    """model.generation_kwargs holds more than the two keys that training shares: hand them on."""
    extra = model.generation_kwargs
    if extra.get("cache_implementation") is not None:
        grpo["cache_implementation"] = extra["cache_implementation"]
    if extra.get("use_cache") is not None:
        grpo["generation_kwargs"] = {**(grpo.get("generation_kwargs") or {}), "use_cache": extra["use_cache"]}
