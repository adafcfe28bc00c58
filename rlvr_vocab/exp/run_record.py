"""From the folder of a run to what the analysis room takes; imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlvr_vocab.analysis.record import RewardFact, RunFacts, RunRecord, divided, read_rows
from rlvr_vocab.exp.from_config import read
from rlvr_vocab.exp.grpo_fields import GRPO_FIELDS
from rlvr_vocab.exp.json_file import read_json
from rlvr_vocab.exp.recorded_config import read_recorded
from rlvr_vocab.exp.reward_wiring import reward_specs
from rlvr_vocab.exp.typed_sections import RewardSettings
from rlvr_vocab.rewards.build import logged_names
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout
from rlvr_vocab.vocab.run_places import INITIAL_MODEL, METRICS, SUMMARY


def run_record(folder: Path) -> RunRecord:
    """What the run in a folder has logged so far.

    Raises:
        UserError: it is no run, or a file of it cannot be read.
    """
    rows, evaluations = divided(read_rows(folder / METRICS))
    summary = read_json(folder / SUMMARY) if (folder / SUMMARY).is_file() else None
    return RunRecord(folder, run_facts(read_recorded(folder, resolve=True), folder), rows, evaluations, summary)


def run_facts(config: Mapping[str, Any], folder: Path) -> RunFacts:
    """Of a run's resolved configuration, what its figures are read by."""
    model, training = config["model"], config["training"]
    rewards = read(RewardSettings, config.get("rewards") or {"functions": []}, "rewards")
    opened, closed = model["think_tags"]
    return RunFacts(
        exp_name=config["exp_name"],
        seed=config["seed"],
        model=model["name"],
        dataset=config["dataset"]["name"],
        reasoning_vocab_size=_reasoning_tokens(model["reasoning_vocab_size"], folder),
        reasoning_mode=model["reasoning_mode"],
        reasoning_copies=_copies_of_a_token(model, folder),
        think_tags=(opened, closed),
        rewards=tuple(
            RewardFact(name, each.weight, each.adaptive is not None, each.name)
            for name, each in zip(logged_names(reward_specs(rewards)), rewards.functions, strict=True)
        ),
        max_steps=training.get("max_steps"),
        **{name: _set_or_default(training.get(name), name) for name in _TRAINING},
    )


_TRAINING = (
    "num_generations",
    "max_completion_length",
    "temperature",
    "learning_rate",
    "lr_scheduler_type",
    "beta",
    "max_grad_norm",
    "num_iterations",
    "use_vllm",
)


def _set_or_default(value: Any, name: str) -> Any:
    return GRPO_FIELDS[name].default if value is None else value


def _reasoning_tokens(asked: int | str, folder: Path) -> int:
    """What the run really has, where it has begun; `full` is told by nothing else."""
    path = folder / INITIAL_MODEL
    if (path / LAYOUT_FILE).is_file():
        return VocabLayout.load(path).size
    return asked if isinstance(asked, int) else 0


def _copies_of_a_token(model: Mapping[str, Any], folder: Path) -> float:
    """How many reasoning tokens there are for each standard one; before the run has begun, of those that have any."""
    path = folder / INITIAL_MODEL
    if (path / LAYOUT_FILE).is_file():
        layout = VocabLayout.load(path)
        return layout.size / layout.standard_size
    asked = model["reasoning_vocab_size"] != 0 or model["source_ids"] is not None
    return float(model["reasoning_multiplicity"]) if asked else 0.0
