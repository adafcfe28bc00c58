"""The Weights & Biases run: named after the experiment, with the resolved configuration."""

from __future__ import annotations

from accelerate import PartialState

from rlvr_vocab.exp.typed_sections import RunSettings


def start_wandb(settings: RunSettings) -> None:
    """Start the run that the trainer then logs to; nothing where W&B is off or another process does it."""
    if settings.logging.report_to != "wandb" or not PartialState().is_main_process:
        return
    import wandb

    wandb.init(
        project=settings.logging.project,
        name=settings.exp_name,
        mode=settings.logging.mode,
        config=settings.resolved,
        dir=str(settings.output_dir),
    )
