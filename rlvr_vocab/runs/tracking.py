"""The Weights & Biases run: named after the experiment, with the resolved configuration."""

from __future__ import annotations

from accelerate import PartialState

from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.stop_signals import kept_from_children
from rlvr_vocab.training.metrics.wandb_steps import record_wandb, recorded_wandb

_LONGEST_TITLE = 63  # W&B takes fewer than 64 characters
_SECONDS_BETWEEN_ALERTS = 600.0  # of one title: a run that is killed and resumed may find the same thing again
_LEVELS = {"warning": "WARN", "error": "ERROR"}


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


def alert(settings: RunSettings, finding: Finding) -> None:
    """Send a finding as an alert of the run; nothing where W&B is off, or by another process."""
    if settings.logging.report_to != "wandb" or not PartialState().is_main_process:
        return
    import wandb

    if wandb.run is None:
        return
    wandb.run.alert(
        title=finding.title[:_LONGEST_TITLE],
        text="\n".join([f"{settings.exp_name}: {finding.evidence}", finding.cause, *finding.remedy]),
        level=_LEVELS[finding.severity],
        wait_duration=_SECONDS_BETWEEN_ALERTS,
    )
