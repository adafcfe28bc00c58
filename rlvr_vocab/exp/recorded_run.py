"""What a checkpoint inside a run's folder was trained with; defaults for one that stands alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rlvr_vocab.exp.recorded_config import read_recorded

DEFAULT_MAX_NEW_TOKENS, DEFAULT_TEMPERATURE = 1024, 1.0


@dataclass(frozen=True)
class RecordedRun:
    """`seed` decides which problems were held out; None where no run is known."""

    seed: int | None = None
    system_prompt: str | None = None
    max_new_tokens: int = DEFAULT_MAX_NEW_TOKENS
    temperature: float = DEFAULT_TEMPERATURE


def recorded_run(checkpoint: Path) -> RecordedRun:
    """Read `config.yaml` beside the checkpoint's folder."""
    if not (checkpoint.parent / "config.yaml").is_file():
        return RecordedRun()
    config = read_recorded(checkpoint.parent, resolve=True)
    generation = config["model"]["generation_kwargs"]
    return RecordedRun(
        seed=config["seed"],
        system_prompt=config["dataset"]["system_prompt"],
        max_new_tokens=generation["max_new_tokens"],
        temperature=generation["temperature"],
    )
