"""What a checkpoint inside a run's folder was trained with; defaults for one that stands alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rlvr_vocab.config.compose import compose, parse_command_line
from rlvr_vocab.config.help import leaves
from rlvr_vocab.config.recorded import read_recorded, required_value
from rlvr_vocab.config.resolution import resolved_config
from rlvr_vocab.config.sections import RewardSettings
from rlvr_vocab.config.values import read
from rlvr_vocab.record.files import parents_of, run_folder_of

DEFAULT_MAX_NEW_TOKENS, DEFAULT_TEMPERATURE = 1024, 1.0


@dataclass(frozen=True)
class RecordedRun:
    """The run around a checkpoint; without one, None and the defaults.

    Attributes:
        dataset: what decides, with `seed`, which problems were held out.
        training_sets: what each stage trained on, the name of the stage first, and so for a run in one piece.
        warmed_up: whether the run began with supervised steps on problems of `dataset`.
    """

    folder: Path | None = None
    seed: int | None = None
    dataset: Mapping[str, Any] | None = None
    training_sets: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    warmed_up: bool = False
    rewards: RewardSettings | None = None
    system_prompt: str | None = None
    max_new_tokens: int = DEFAULT_MAX_NEW_TOKENS
    temperature: float = DEFAULT_TEMPERATURE


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
    generation = {
        name: stage.get("generation", {}).get(name, required_value(config, f"model.generation_kwargs.{name}", folder))
        for name in ("max_new_tokens", "temperature")
    }
    return RecordedRun(
        folder=folder,
        seed=required_value(config, "seed", folder),
        dataset=config["dataset"],
        training_sets=tuple(
            (each["name"], {**config["dataset"], **each.get("dataset", {})})
            for each in config.get("stages") or [{"name": ""}]
        ),
        warmed_up=(config.get("warmup") or {}).get("max_steps", 0) > 0,
        rewards=read(RewardSettings, stage.get("rewards") or config.get("rewards") or {"functions": []}, "rewards"),
        system_prompt=required_value(config, "dataset.system_prompt", folder),
        **generation,
    )


def stage_of(checkpoint: Path, stages: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """What the stage of a checkpoint sets over the run: its own stage's folder tells, else it is past the last one."""
    for folder in map(Path.absolute, parents_of(checkpoint)):
        if folder.parent.name == "stages":
            name = folder.name.partition("_")[2]
            return next((stage for stage in stages if stage["name"] == name), {})
    return stages[-1] if stages else {}


def configuration_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted key -> value; rewards with what a function leaves to its defaults, however they were recorded."""
    rewards = read(RewardSettings, config.get("rewards") or {"functions": []}, "rewards")
    return dict(leaves({**config, "rewards": asdict(rewards)}))


def default_keys() -> dict[str, Any]:
    """The keys of a run for which nothing was set."""
    return configuration_keys(resolved_config(compose("train", parse_command_line("train", []))))
