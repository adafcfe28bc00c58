"""What a model card says of a run: its main keys, without a word that is not for others, and what was measured."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rlvr_vocab.evaluation.accuracy import read_results
from rlvr_vocab.exp.from_config import as_typed
from rlvr_vocab.exp.hub_names import names_on_hub, without_folder
from rlvr_vocab.exp.recorded_config import read_recorded
from rlvr_vocab.exp.recorded_run import run_folder_of
from rlvr_vocab.exp.run_folder import recorded_names_on_hub, results_file
from rlvr_vocab.exp.run_json import read_record
from rlvr_vocab.vocab.run_places import FINAL_ADAPTER, SUMMARY

# The keys of a card, in its order. Only these are shown: model_kwargs may hold a login token.
SHOWN_KEYS = (
    "model.name",
    "model.reasoning_vocab_size",
    "model.reasoning_multiplicity",
    "model.reasoning_mode",
    "model.preserve_odds",
    "model.init_noise",
    "model.model_kwargs.load_in_8bit",
    "model.model_kwargs.load_in_4bit",
    "model.generation_kwargs.max_new_tokens",
    "model.generation_kwargs.temperature",
    "model.lora.r",
    "model.lora.lora_alpha",
    "model.lora.lora_dropout",
    "model.lora.target_modules",
    "model.lora.train_rows",
    "dataset.name",
    "dataset.subset",
    "dataset.split",
    "training.learning_rate",
    "training.lr_scheduler_type",
    "training.max_steps",
    "training.num_train_epochs",
    "training.per_device_train_batch_size",
    "training.gradient_accumulation_steps",
    "training.num_generations",
    "training.beta",
    "training.loss_type",
    "seed",
)
# Where the keys of a stage stand in the configuration of a run, if not under the same name.
_OF_A_STAGE = {"generation": "model.generation_kwargs"}


@dataclass(frozen=True)
class Accuracy:
    """Of one sample for each held-out problem that can be graded."""

    right: int
    of: int

    def __str__(self) -> str:
        return f"{self.right / self.of:.1%} ({self.right} of {self.of})"


@dataclass(frozen=True)
class CardFacts:
    """What is known of the model of a card.

    Attributes:
        config: the resolved configuration of the run; None for an adapter that lies in no run's folder.
        adapter: whether the run trained an adapter.
        steps: of GRPO that the weights have seen; None where that is not known.
        before, after: accuracy on held-out problems at the start and at the end of training; None where it was not
            measured, or the weights are not those of the end.
        recorded_on_hub: the names that the run found on the hub; None for a run that is going on, in its folder.
    """

    config: Mapping[str, Any] | None
    adapter: bool
    steps: str | None = None
    before: Accuracy | None = None
    after: Accuracy | None = None
    recorded_on_hub: tuple[str, ...] | None = None

    @cached_property
    def on_hub(self) -> Collection[str]:
        if self.recorded_on_hub is not None or self.config is None:
            return self.recorded_on_hub or ()
        return names_on_hub(self.config)

    @property
    def name(self) -> str:
        return "A merged model" if self.config is None else str(self.config["exp_name"])

    @property
    def base(self) -> str | None:
        """Hub name of the model that was trained; None for a folder, or one that was made on the spot."""
        return self._if_on_hub("model")

    @property
    def dataset(self) -> str | None:
        return self._if_on_hub("dataset")

    @property
    def quantized_bits(self) -> int | None:
        kwargs = {} if self.config is None else self.config["model"]["model_kwargs"]
        return next((bits for bits in (8, 4) if kwargs.get(f"load_in_{bits}bit")), None)

    @property
    def think_tags(self) -> tuple[str, str] | None:
        return None if self.config is None else tuple(self.config["model"]["think_tags"])

    @property
    def system_prompt(self) -> str | None:
        return None if self.config is None else self.config["dataset"]["system_prompt"]

    def rows(self) -> list[tuple[str, str]]:
        """(key, value) of the configuration, as a user would type them."""
        if self.config is None:
            return []
        keys = SHOWN_KEYS if self.adapter else [key for key in SHOWN_KEYS if not key.startswith("model.lora.")]
        rows = [(key, self._shown(_found(self.config, key))) for key in keys]
        return [
            *((key, value) for key, value in rows if value not in ("null", "false")),
            ("rewards", self._rewards(self.config["rewards"])),
        ]

    def stages(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """(name, rows) of each stage: those of the keys of `rows` in which it differs from the run, and its `until`."""
        recorded = [] if self.config is None else self.config.get("stages") or []
        return [(stage["name"], self._rows_of(stage)) for stage in recorded]

    def _rows_of(self, stage: Mapping[str, Any]) -> list[tuple[str, str]]:
        keys = [(f"{_OF_A_STAGE.get(section, section)}.{key}", value) for section, key, value in _own_keys(stage)]
        rows = [(key, self._shown(value)) for key, value in keys if key in SHOWN_KEYS]
        rewards = [("rewards", self._rewards(stage["rewards"]))] if "rewards" in stage else []
        until = ((f"until.{key}", value) for key, value in stage.get("until", {}).items())
        return [*rows, *rewards, *((key, as_typed(value)) for key, value in until if value is not None)]

    def _if_on_hub(self, section: str) -> str | None:
        name = None if self.config is None else self.config[section]["name"]
        return name if name in self.on_hub else None

    def _shown(self, value: Any) -> str:
        return without_folder(value, self.on_hub) if isinstance(value, str) else as_typed(value)

    def _rewards(self, section: Mapping[str, Any]) -> str:
        named = ((without_folder(each["name"], self.on_hub), each.get("weight", 1.0)) for each in section["functions"])
        return ", ".join(f"{name} × {weight:g}" for name, weight in named)


def facts_of_adapter(checkpoint: Path) -> CardFacts:
    """What the run around an adapter says of it; only the final one is what `evaluation/after.jsonl` measured."""
    folder = run_folder_of(checkpoint)
    if folder is None:
        return CardFacts(None, adapter=True)
    final = checkpoint.name == FINAL_ADAPTER
    return CardFacts(
        read_recorded(folder, resolve=True),
        adapter=True,
        steps=_steps_of_run(folder) if final else _steps_of(checkpoint),
        before=measured(folder, "before"),
        after=measured(folder, "after") if final else None,
        recorded_on_hub=recorded_names_on_hub(folder),
    )


def measured(run_folder: Path, when: str) -> Accuracy | None:
    """Accuracy on the held-out problems of a run, `before` or `after`; None where it was not measured."""
    path = results_file(run_folder, when)
    if not path.is_file():
        return None
    scores = [result.score for result in read_results(path) if result.score is not None]
    return Accuracy(sum(score == 1.0 for score in scores), len(scores)) if scores else None


def _steps_of_run(folder: Path) -> str | None:
    steps = (read_record(folder, SUMMARY) or {}).get("steps")
    return None if steps is None else f"{steps:,}"


def _steps_of(checkpoint: Path) -> str | None:
    """The step that a checkpoint is named after, and the stage that counts it."""
    match = re.fullmatch(r"checkpoint-(\d+)", checkpoint.name)
    if match is None:
        return None
    stage = checkpoint.absolute().parent
    return f"{int(match[1]):,}" + (f" of stage {stage.name}" if stage.parent.name == "stages" else "")


def _found(config: Mapping[str, Any], key: str) -> Any:
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _own_keys(stage: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
    """(section, key, value) of what a stage sets."""
    sections = (section for section in ("generation", "dataset", "training") if section in stage)
    return [(section, key, value) for section in sections for key, value in stage[section].items()]
