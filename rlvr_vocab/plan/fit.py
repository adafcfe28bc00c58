"""Settings that fit into a card: as few changes as will do, those first that leave the algorithm as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import yaml

from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.errors import UserError
from rlvr_vocab.plan.devices import GIB
from rlvr_vocab.plan.forecast import Circumstances, Forecast, forecast_of
from rlvr_vocab.plan.workload import checkpoints_activations, drawn_together

HEADROOM = 0.08  # share of the card's memory that stays free
_WORTH = 0.995  # of the peak, at most, is left after a change that is worth making
_SHORTEST = 64  # tokens of a completion, which are halved no further


@dataclass(frozen=True)
class Change:
    """Keys with their new values, and the effect on the training; empty where the training stays the same."""

    words: tuple[str, ...]
    effect: str = ""


@dataclass(frozen=True)
class Fit:
    """A run that fits, what was changed for it, and its forecast."""

    run: RunSettings
    changes: tuple[Change, ...]
    forecast: Forecast

    @property
    def words(self) -> list[str]:
        """Of all changes, the last value of each key."""
        found: dict[str, str] = {}
        for change in self.changes:
            for word in change.words:
                found[word.partition("=")[0]] = word
        return list(found.values())


def fit_into(run: RunSettings, where: Circumstances, gib: float) -> Fit:
    """The run, changed one step at a time until its peak fits; a step is taken only where it lowers the peak.

    Raises:
        UserError: nothing that can be changed makes it fit; the line says how far one comes.
    """
    memory = gib * GIB * (1 - HEADROOM)
    found = Fit(run, (), forecast_of(run, where))
    while (left := found.forecast).peak > memory:
        smaller = next((fit for step in _STEPS if (fit := _after(found, step, where)) is not None), None)
        if smaller is None:
            tried = " ".join(found.words) or "nothing that can be changed"
            parts = left.memory[left.peak_phase]
            advice = "take a smaller model" + (", or change what a stage sets itself" if run.stages else "")
            raise UserError(
                f"fit={gib:g}GiB: not even {tried} makes it fit: {left.peak / GIB:.1f} GiB in {left.peak_phase}, "
                f"most of it {max(parts, key=parts.__getitem__)}; {advice}"
            )
        found = smaller
    return _without_needless(found, run, where, memory)


def _without_needless(found: Fit, run: RunSettings, where: Circumstances, memory: float) -> Fit:
    """Steps that later, larger ones have made needless are taken back, the gravest first."""
    for change in sorted(found.changes, key=lambda each: (not each.effect, -found.changes.index(each))):
        later = found.changes[found.changes.index(change) + 1 :]
        if any(set(_keys(change)) & set(_keys(each)) for each in later):
            continue  # they begin where it ends
        rest = tuple(each for each in found.changes if each is not change)
        without = _applied(run, rest)
        forecast = forecast_of(without, where)
        if forecast.peak <= memory:
            found = Fit(without, rest, forecast)
    return found


def _keys(change: Change) -> list[str]:
    return [word.partition("=")[0] for word in change.words]


def _applied(run: RunSettings, changes: tuple[Change, ...]) -> RunSettings:
    for change in changes:
        for word in change.words:
            key, _, value = word.partition("=")
            run = with_value(run, key, value)
    return run


def _after(found: Fit, step: Callable[[RunSettings], Change | None], where: Circumstances) -> Fit | None:
    """The run after a step; None where the step cannot be taken or does not lower the peak."""
    change = None if step is _quantized and where.sharding != "none" else step(found.run)  # `train` refuses both
    # A typed key does not reach a stage that sets it itself, and half of a change is another training.
    if change is None or any(key in stage.keys for stage in found.run.stages for key in _keys(change)):
        return None
    run = _applied(found.run, (change,))
    forecast = forecast_of(run, where)
    return Fit(run, (*found.changes, change), forecast) if forecast.peak < found.forecast.peak * _WORTH else None


def with_value(run: RunSettings, key: str, value: str) -> RunSettings:
    """The run, and each of its stages, with another value of a key that a step changes."""
    section, _, name = key.partition(".")
    parsed: Any = yaml.safe_load(value)
    if section == "training":
        training = replace(run.training, grpo={**run.training.grpo, name: parsed})
        run = replace(run, training=training)
    elif key == "model.lora.enabled":
        run = replace(run, model=replace(run.model, lora=replace(run.model.lora, enabled=parsed)))
    else:  # model.model_kwargs.…
        kwargs = {**run.model.model_kwargs, name.removeprefix("model_kwargs."): parsed}
        run = replace(run, model=replace(run.model, model_kwargs=kwargs))
    return replace(run, stages=tuple(replace(each, run=with_value(each.run, key, value)) for each in run.stages))


def _checkpointing(run: RunSettings) -> Change | None:
    return None if checkpoints_activations(run) else Change(("training.gradient_checkpointing=true",))


def _smaller_batches(run: RunSettings) -> Change | None:
    """Half as many completions at once, and twice as many batches: the same step, and the same draws."""
    grpo = run.training.grpo
    at_once, batches = grpo["per_device_train_batch_size"], grpo["gradient_accumulation_steps"]
    if at_once % 2:
        return None
    words = [
        f"training.per_device_train_batch_size={at_once // 2}",
        f"training.gradient_accumulation_steps={2 * batches}",
    ]
    steps = grpo["steps_per_generation"]
    if steps is not None:
        words.append(f"training.steps_per_generation={2 * steps}")
    return Change(tuple(words))


def _fewer_drawn(run: RunSettings) -> Change | None:
    """Half as many completions drawn together, within one optimisation step, whose weights draw them all."""
    grpo = run.training.grpo
    at_once, group = grpo["per_device_train_batch_size"], grpo["num_generations"]
    steps, batches = drawn_together(grpo, at_once), grpo["gradient_accumulation_steps"]
    if grpo["generation_batch_size"] is not None or steps % 2 or at_once * steps // 2 % group:
        return None
    if steps > batches:
        return None
    return Change((f"training.steps_per_generation={steps // 2}",))


def _smaller_engine(run: RunSettings) -> Change | None:
    grpo = run.training.grpo
    share = grpo["vllm_gpu_memory_utilization"]
    if not grpo.get("use_vllm") or grpo["vllm_mode"] != "colocate" or share <= 0.15:
        return None
    return Change((f"training.vllm_gpu_memory_utilization={share - 0.05:.2f}",))


def _optimizer_in_8_bit(run: RunSettings) -> Change | None:
    if not str(run.training.grpo["optim"]).startswith("adamw_torch"):
        return None
    return Change(("training.optim=adamw_8bit",), "AdamW keeps its moments in 8 bits")


def _adapter(run: RunSettings) -> Change | None:
    if run.model.trains_adapter:
        return None
    return Change(("model.lora.enabled=true",), "an adapter trains, and copies' rows, not all weights")


def _quantized(run: RunSettings) -> Change | None:
    with_vllm = any(each.training.grpo.get("use_vllm") for each in (run, *(stage.run for stage in run.stages)))
    if not run.model.trains_adapter or run.model.bits is not None or with_vllm:
        return None
    return Change(("model.model_kwargs.load_in_4bit=true",), "frozen weights are in 4 bits")


def _shorter(run: RunSettings) -> Change | None:
    length = run.training.grpo["max_completion_length"]
    if length // 2 < _SHORTEST:
        return None
    return Change((f"training.max_completion_length={length // 2}",), "completions are cut off earlier")


def _fewer_copies_of_a_problem(run: RunSettings) -> Change | None:
    grpo = run.training.grpo
    group, batches = grpo["num_generations"], grpo["gradient_accumulation_steps"]
    if group < 4 or group % 2 or batches % 2 or grpo["steps_per_generation"] is not None:
        return None
    words = (f"training.num_generations={group // 2}", f"training.gradient_accumulation_steps={batches // 2}")
    return Change(words, "groups, and steps, of half as many completions")


_STEPS: tuple[Callable[[RunSettings], Change | None], ...] = (
    *(_checkpointing, _smaller_batches, _fewer_drawn, _smaller_engine),
    *(_optimizer_in_8_bit, _adapter, _quantized, _fewer_copies_of_a_problem, _shorter),
)


def summary_of(changes: tuple[Change, ...]) -> Iterator[tuple[str, str]]:
    """Each change as it is typed, and what it does."""
    for change in changes:
        yield " ".join(change.words), change.effect or "the same training, more slowly"
