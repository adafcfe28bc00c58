"""The Weights & Biases run: named after the experiment, with the resolved configuration."""

from __future__ import annotations

from accelerate import PartialState

from rlvr_vocab.exp.typed_sections import RunSettings
from rlvr_vocab.stop_signals import kept_from_children
from rlvr_vocab.training.wandb_steps import record_wandb, recorded_wandb


def start_wandb(settings: RunSettings) -> None:
    """Start the run that the trainer logs to, or go on with it; nothing where W&B is off, or by another process."""
    if settings.logging.report_to != "wandb" or not PartialState().is_main_process:
        return
    import wandb

    known = recorded_wandb(settings.output_dir)
    with kept_from_children():
        run = wandb.init(
            project=settings.logging.project,
            name=settings.exp_name,
            mode=settings.logging.mode,
            config=settings.resolved,
            dir=str(settings.output_dir),
            id=known.get("id"),
            resume="allow",
        )
    if not known:
        record_wandb(settings.output_dir, run.id, 0)
