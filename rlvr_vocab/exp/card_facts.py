"""What a model card says of a run: its main keys, without a word that is not for others, and what was measured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from rlvr_vocab.evaluation.accuracy import read_results
from rlvr_vocab.exp.from_config import as_typed
from rlvr_vocab.exp.recorded_config import read_recorded
from rlvr_vocab.exp.recorded_run import run_folder_of
from rlvr_vocab.exp.run_folder import read_summary

FINAL_ADAPTER = "final_adapter"

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
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+")
_FILES = (".csv", ".tsv", ".json", ".jsonl", ".parquet")


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
        before, after: accuracy on held-out problems; None where it was not measured on these weights.
    """

    config: Mapping[str, Any] | None
    adapter: bool
    steps: str | None = None
    before: Accuracy | None = None
    after: Accuracy | None = None

    @property
    def name(self) -> str:
        return "A merged model" if self.config is None else str(self.config["exp_name"])

    @property
    def base(self) -> str | None:
        """Hub name of the model that was trained; None for a folder, or one that was made on the spot."""
        return None if self.config is None else hub_name(self.config["model"]["name"])

    @property
    def dataset(self) -> str | None:
        return None if self.config is None else hub_name(self.config["dataset"]["name"])

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
        rows = [(key, _value(self.config, key)) for key in keys]
        functions = self.config["rewards"]["functions"]
        rewards = [f"{without_folder(each['name'])} × {each.get('weight', 1.0):g}" for each in functions]
        return [
            *((key, value) for key, value in rows if value not in ("null", "false")),
            ("rewards", ", ".join(rewards)),
        ]


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
    )


def measured(run_folder: Path, when: str) -> Accuracy | None:
    """Accuracy on the held-out problems of a run, `before` or `after`; None where it was not measured."""
    path = run_folder / "evaluation" / f"{when}.jsonl"
    if not path.is_file():
        return None
    scores = [result.score for result in read_results(path) if result.score is not None]
    return Accuracy(sum(score == 1.0 for score in scores), len(scores)) if scores else None


def hub_name(name: str) -> str | None:
    """A name on the hub, as far as a name can tell."""
    is_file = PurePath(name).suffix in _FILES or Path(name).exists()
    return name if _HUB_NAME.fullmatch(name) and not is_file else None


def without_folder(name: str) -> str:
    """A path by its last part: where it lies on somebody's machine is nobody else's business."""
    return name if hub_name(name) else re.split(r"[/\\]", name.rstrip("/\\"))[-1]


def _steps_of_run(folder: Path) -> str | None:
    summary = read_summary(folder)
    return None if summary is None else f"{summary['steps']:,}"


def _steps_of(checkpoint: Path) -> str | None:
    """The step that a checkpoint is named after, and the stage that counts it."""
    match = re.fullmatch(r"checkpoint-(\d+)", checkpoint.name)
    if match is None:
        return None
    stage = checkpoint.absolute().parent
    return f"{int(match[1]):,}" + (f" of stage {stage.name}" if stage.parent.name == "stages" else "")


def _value(config: Mapping[str, Any], key: str) -> str:
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return without_folder(value) if isinstance(value, str) else as_typed(value)
