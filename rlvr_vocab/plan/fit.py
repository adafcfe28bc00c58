"""Settings that fit into a card, by changes in a fixed order: first those that leave the training unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlvr_vocab.config.sections import RunSettings, stages_of
from rlvr_vocab.config.values import as_typed
from rlvr_vocab.errors import UserError
from rlvr_vocab.plan.devices import GIB
from rlvr_vocab.plan.forecast import Forecast, forecast_of
from rlvr_vocab.plan.workload import Workload

HEADROOM = 0.08  # share of the card's memory that stays free
_WORTH = 0.995  # a change is taken if at most this share of the peak is left
_SHORTEST = 64  # tokens of a completion, which are halved no further


@dataclass(frozen=True)
class Change:
    """Keys with their new values, and the effect on the training; empty where the training stays the same."""

    values: Mapping[str, Any]
    effect: str = ""

    @property
    def words(self) -> list[str]:
        return [f"{key}={as_typed(value)}" for key, value in self.values.items()]


@dataclass(frozen=True)
class Fit:
    """A run that fits, the changes that were made for it, and its forecast."""

    run: RunSettings
    changes: tuple[Change, ...]
    forecast: Forecast

    @property
    def words(self) -> list[str]:
        """Of all changes, the last value of each key."""
        return Change({key: value for change in self.changes for key, value in change.values.items()}).words


def fit_into_device(work: Workload) -> Fit:
    """The run with changes until its peak fits, each of which lowers it; UserError where none makes it fit."""
    memory = work.device.memory * (1 - HEADROOM)
    found = Fit(work.run, (), forecast_of(work))
    while (left := found.forecast).peak > memory:
        for change in possible_changes(replace(work, run=found.run)):
            if any(change.values.keys() & stage.keys for stage in found.run.stages):
                continue  # a stage sets one of them itself
            run = with_values(found.run, change.values)
            forecast = forecast_of(replace(work, run=run))
            if forecast.peak < left.peak * _WORTH:
                found = Fit(run, (*found.changes, change), forecast)
                break
        else:
            tried = " ".join(found.words) or "nothing that can be changed"
            parts = left.memory[left.peak_phase]
            advice = "take a smaller model" + ", or change keys that a stage sets itself" * bool(work.run.stages)
            raise UserError(
                f"fit={work.device.memory / GIB:g}GiB: not even {tried} makes it fit: {left.peak / GIB:.1f} GiB in "
                f"{left.peak_phase}, most of it {max(parts, key=parts.__getitem__)}; {advice}"
            )
    return found


def with_values(run: RunSettings, values: Mapping[str, Any]) -> RunSettings:
    """The run and its stages with other values of these keys."""
    for key, value in values.items():
        section, _, name = key.partition(".")
        model = run.model
        if section == "training":
            run = replace(run, training=replace(run.training, grpo={**run.training.grpo, name: value}))
        elif key == "model.lora.enabled":
            run = replace(run, model=replace(model, lora=replace(model.lora, enabled=value)))
        else:  # model.model_kwargs.…
            kwargs = {**model.model_kwargs, name.removeprefix("model_kwargs."): value}
            run = replace(run, model=replace(model, model_kwargs=kwargs))
    return replace(run, stages=tuple(replace(each, run=with_values(each.run, values)) for each in run.stages))


def possible_changes(work: Workload) -> Iterator[Change]:
    """The changes that are possible next, in the order in which they are tried."""
    run, grpo, model = work.run, work.grpo, work.run.model
    at_once, batches, group, length = work.at_once, work.batches, grpo["num_generations"], work.completion
    sampled_in, drawn = grpo["steps_per_generation"], work.drawn_batches
    if not work.grpo["gradient_checkpointing"]:
        yield Change({"training.gradient_checkpointing": True})
    if at_once % 2 == 0:  # half as many completions in twice as many batches: the same step and samples
        values = {
            "training.per_device_train_batch_size": at_once // 2,
            "training.gradient_accumulation_steps": 2 * batches,
        }
        yield Change(values if sampled_in is None else {**values, "training.steps_per_generation": 2 * sampled_in})
    halves_into_groups = drawn % 2 == 0 and at_once * drawn // 2 % group == 0
    if grpo["generation_batch_size"] is None and halves_into_groups and drawn <= batches:
        # Half as many sampled together, within one step, so by the same weights.
        yield Change({"training.steps_per_generation": drawn // 2})
    if work.vllm_memory and (share := grpo["vllm_gpu_memory_utilization"]) > 0.15:
        yield Change({"training.vllm_gpu_memory_utilization": round(share - 0.05, 2)})
    if str(grpo["optim"]).startswith("adamw_torch"):
        yield Change({"training.optim": "adamw_8bit"}, "AdamW keeps its moments in 8 bits")
    with_vllm = any(stage.run.training.grpo.get("use_vllm") for stage in stages_of(run))
    if not model.trains_adapter:
        yield Change({"model.lora.enabled": True}, "an adapter trains, and copies' rows, not all weights")
    elif model.bits is None and not with_vllm and work.sharding == "none":  # `train` refuses either with 4 bits
        yield Change({"model.model_kwargs.load_in_4bit": True}, "frozen weights are in 4 bits")
    if group >= 4 and group % 2 == 0 and batches % 2 == 0 and sampled_in is None:
        values = {"training.num_generations": group // 2, "training.gradient_accumulation_steps": batches // 2}
        yield Change(values, "groups, and steps, of half as many completions")
    if length // 2 >= _SHORTEST:
        yield Change({"training.max_completion_length": length // 2}, "completions are cut off earlier")
