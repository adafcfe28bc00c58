"""What a checkpoint inside a run's folder was trained with; defaults for one that stands alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rlvr_vocab.exp.from_config import read
from rlvr_vocab.exp.recorded_config import read_recorded
from rlvr_vocab.exp.typed_sections import DatasetSettings, RewardSettings
from rlvr_vocab.vocab.run_places import parents_of, runs_around

DEFAULT_MAX_NEW_TOKENS, DEFAULT_TEMPERATURE = 1024, 1.0

# What decides, with the seed, which problems are held out; max_eval_samples only cuts the list of them.
DIVIDING_KEYS = ("name", "subset", "split", "eval_split", "eval_fraction", "answer_format", "generator")
DIVIDING_COLUMNS = ("problem", "answer")


@dataclass(frozen=True)
class RecordedRun:
    """`seed` and `dataset` decide which problems were held out; all that is None is so without a run."""

    folder: Path | None = None
    seed: int | None = None
    dataset: Mapping[str, Any] | None = None
    stage_datasets: tuple[str, ...] = ()
    rewards: RewardSettings | None = None
    system_prompt: str | None = None
    max_new_tokens: int = DEFAULT_MAX_NEW_TOKENS
    temperature: float = DEFAULT_TEMPERATURE


def run_folder_of(checkpoint: Path) -> Path | None:
    """The folder of the run that wrote the checkpoint: the one around it, or around its stage, with a `config.yaml`."""
    return next((each for each in runs_around(checkpoint) if (each / "config.yaml").is_file()), None)


def recorded_run(checkpoint: Path) -> RecordedRun:
    """Read `config.yaml` beside the checkpoint's folder.

    Raises:
        UserError: If it is not the configuration of a run.
    """
    folder = run_folder_of(checkpoint)
    if folder is None:
        return RecordedRun()
    config = read_recorded(folder, resolve=True)
    stage = stage_of(checkpoint, config.get("stages") or [])
    generation = {**config["model"]["generation_kwargs"], **stage.get("generation", {})}
    return RecordedRun(
        folder=folder,
        seed=config["seed"],
        dataset=config["dataset"],
        stage_datasets=tuple(
            each["dataset"]["name"] for each in config.get("stages") or [] if "name" in each.get("dataset", {})
        ),
        rewards=read(RewardSettings, stage.get("rewards") or config.get("rewards") or {"functions": []}, "rewards"),
        system_prompt=config["dataset"]["system_prompt"],
        max_new_tokens=generation["max_new_tokens"],
        temperature=generation["temperature"],
    )


def stage_of(checkpoint: Path, stages: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """What the stage of a checkpoint sets over the run: its own stage's folder tells, else it is past the last one."""
    for folder in map(Path.absolute, parents_of(checkpoint)):
        if folder.parent.name == "stages":
            name = folder.name.partition("_")[2]
            return next((stage for stage in stages if stage["name"] == name), {})
    return stages[-1] if stages else {}


def problems_line(dataset: DatasetSettings, split: str, run: RecordedRun, seed: int | None = None) -> str:
    """Which problems an evaluation measures on, seen from the run; a warning where it may have trained on them.

    Args:
        seed: what divides the problems; None for the seed of the run.
    """
    if run.dataset is None:
        return f"problems of {dataset.name}; the checkpoint is in no run's folder"
    if dataset.name in run.stage_datasets:
        return f"warning: a stage of the run in {run.folder} trained on problems of {dataset.name}"
    if dataset.name != run.dataset["name"]:
        return f"problems of {dataset.name}; the run in {run.folder} had {run.dataset['name']}"
    if split == "train":
        return f"warning: split=train: the run in {run.folder} trained on problems of {dataset.name}"
    other_seed = seed not in (None, run.seed) and dataset.eval_split is None
    if other_seed or dividing_values(asdict(dataset)) != dividing_values(run.dataset):
        return (
            f"warning: {dataset.name} is divided otherwise than by the run in {run.folder}: "
            "it may have trained on these problems"
        )
    return f"problems held out by the run in {run.folder}"


def dividing_values(dataset: Mapping[str, Any]) -> list[Any]:
    return [*(dataset[key] for key in DIVIDING_KEYS), *(dataset["columns"][column] for column in DIVIDING_COLUMNS)]
