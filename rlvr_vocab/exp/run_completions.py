"""Completions that a run left: which files they are in, and what the run knows that reward functions ask for."""

from __future__ import annotations

from pathlib import Path

from rlvr_vocab.exp.from_config import read
from rlvr_vocab.exp.recorded_config import needed, read_recorded
from rlvr_vocab.exp.recorded_run import run_folder_of
from rlvr_vocab.rewards.build import RewardContext
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout

# What a step's file holds for whoever studies the run; training hands none of it to reward functions.
NOT_HANDED_ON = ("prompt_ids", "sampling_logps", "advantage", "reward")


def context_of(path: Path) -> RewardContext | None:
    """What the run knew whose completions, or evaluation results, lie at the path; None where it is no run's."""
    run, model = _run_and_model(path.absolute())
    if run is None or model is None:
        return None
    config = read_recorded(run, resolve=True)
    layout = VocabLayout.load(model) if (model / LAYOUT_FILE).is_file() else None
    return RewardContext(
        think_tags=read(tuple[str, str], needed(config, "model.think_tags", run), "model.think_tags"),
        standard_size=None if layout is None else layout.standard_size,
        think_open_id=None if layout is None else layout.think_open_id,
        think_close_id=None if layout is None else layout.think_close_id,
        max_completion_length=config["training"].get("max_completion_length"),
    )


def _run_and_model(path: Path) -> tuple[Path | None, Path | None]:
    """The folder of the run, and of the model that sampled."""
    for folder in (path, *path.parents):
        if folder.name in ("completions", "evaluation") and (folder.parent / "config.yaml").is_file():
            return folder.parent, folder.parent / "initial_model"
        if folder.name == "evaluation":
            return run_folder_of(folder.parent), folder.parent
    return None, None
