"""Settings that fit into a card: as few changes as will do, those first that leave the algorithm as it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.config.values import as_typed
from rlvr_vocab.errors import UserError
from rlvr_vocab.plan.devices import GIB
from rlvr_vocab.plan.forecast import Circumstances, Forecast, forecast_of
from rlvr_vocab.plan.workload import Sharding, drawn_together

HEADROOM = 0.08  # share of the card's memory that stays free
_WORTH = 0.995  # of the peak, at most, is left after a change that is worth making
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
        values = {key: value for change in self.changes for key, value in change.values.items()}
        return Change(values).words


def fit_into(run: RunSettings, where: Circumstances, gib: float) -> Fit:
    """The run, changed one step at a time until its peak fits; a step is taken only where it lowers the peak.

    Raises:
        UserError: nothing that can be changed makes it fit.
    """
    memory = gib * GIB * (1 - HEADROOM)
    found = Fit(run, (), forecast_of(run, where))
    while (left := found.forecast).peak > memory:
        smaller = (_after(found, change, where) for change in possible_changes(found.run, where.sharding))
        fit = next(filter(None, smaller), None)
        if fit is None:
            tried = " ".join(found.words) or "nothing that can be changed"
            parts = left.memory[left.peak_phase]
            advice = "take a smaller model" + (", or change what a stage sets itself" if run.stages else "")
            raise UserError(
                f"fit={gib:g}GiB: not even {tried} makes it fit: {left.peak / GIB:.1f} GiB in {left.peak_phase}, "
                f"most of it {max(parts, key=parts.__getitem__)}; {advice}"
            )
        found = fit
    return _without_needless(found, run, where, memory)


def _without_needless(found: Fit, run: RunSettings, where: Circumstances, memory: float) -> Fit:
    """Take back the changes that later, larger ones have made needless, first those that change the training."""
    for change in sorted(found.changes, key=lambda each: (not each.effect, -found.changes.index(each))):
        later = found.changes[found.changes.index(change) + 1 :]
        if any(change.values.keys() & each.values.keys() for each in later):
            continue  # they begin where it ends
        rest, without = tuple(each for each in found.changes if each is not change), run
        for each in rest:
            without = with_values(without, each.values)
        forecast = forecast_of(without, where)
        if forecast.peak <= memory:
            found = Fit(without, rest, forecast)
    return found


def _after(found: Fit, change: Change, where: Circumstances) -> Fit | None:
    """The run after a change; None where a stage sets one of its keys itself, or the peak is hardly lower."""
    if any(key in stage.keys for stage in found.run.stages for key in change.values):
        return None
    run = with_values(found.run, change.values)
    forecast = forecast_of(run, where)
    return Fit(run, (*found.changes, change), forecast) if forecast.peak < found.forecast.peak * _WORTH else None


def with_values(run: RunSettings, values: Mapping[str, Any]) -> RunSettings:
    """The run, and each of its stages, with other values of keys that a change names."""
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


def possible_changes(run: RunSettings, sharding: Sharding = "none") -> Iterator[Change]:
    """The changes that a run can take next, in the order in which they are tried."""
    grpo, model = run.training.grpo, run.model
    at_once, batches = grpo["per_device_train_batch_size"], grpo["gradient_accumulation_steps"]
    group, share, length = (
        grpo[name] for name in ("num_generations", "vllm_gpu_memory_utilization", "max_completion_length")
    )
    sampled_in, drawn = grpo["steps_per_generation"], drawn_together(grpo, at_once)
    if not grpo["gradient_checkpointing"]:
        yield Change({"training.gradient_checkpointing": True})
    if at_once % 2 == 0:  # half as many completions in twice as many batches: the same step, and the same draws
        values = {
            "training.per_device_train_batch_size": at_once // 2,
            "training.gradient_accumulation_steps": 2 * batches,
        }
        yield Change(values if sampled_in is None else {**values, "training.steps_per_generation": 2 * sampled_in})
    halves_into_groups = drawn % 2 == 0 and at_once * drawn // 2 % group == 0
    if grpo["generation_batch_size"] is None and halves_into_groups and drawn <= batches:
        # Half as many drawn together, within one step, whose weights draw them all.
        yield Change({"training.steps_per_generation": drawn // 2})
    if grpo.get("use_vllm") and grpo["vllm_mode"] == "colocate" and share > 0.15:
        yield Change({"training.vllm_gpu_memory_utilization": round(share - 0.05, 2)})
    if str(grpo["optim"]).startswith("adamw_torch"):
        yield Change({"training.optim": "adamw_8bit"}, "AdamW keeps its moments in 8 bits")
    with_vllm = any(each.training.grpo.get("use_vllm") for each in (run, *(stage.run for stage in run.stages)))
    if not model.trains_adapter:
        yield Change({"model.lora.enabled": True}, "an adapter trains, and copies' rows, not all weights")
    elif model.bits is None and not with_vllm and sharding == "none":  # `train` refuses either with 4 bits
        yield Change({"model.model_kwargs.load_in_4bit": True}, "frozen weights are in 4 bits")
    if group >= 4 and group % 2 == 0 and batches % 2 == 0 and sampled_in is None:
        values = {"training.num_generations": group // 2, "training.gradient_accumulation_steps": batches // 2}
        yield Change(values, "groups, and steps, of half as many completions")
    if length // 2 >= _SHORTEST:
        yield Change({"training.max_completion_length": length // 2}, "completions are cut off earlier")
