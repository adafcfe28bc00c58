"""What can be refused of the measurements on held-out problems while a run trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.exp.held_out_figures import FIGURES
from rlvr_vocab.exp.typed_sections import DatasetSettings, RunSettings
from rlvr_vocab.nearest import did_you_mean


def check_evaluations(settings: RunSettings) -> None:
    """Refuse measurements without problems, at no interval, or judged by a figure that there is none of.

    Raises:
        UserError: naming the key.
    """
    for run in [stage.run for stage in settings.stages] or [settings]:
        grpo = run.training.grpo
        interval = grpo.get("eval_steps")
        if interval is not None and not interval > 0:
            raise UserError(f"training.eval_steps={interval}: must be above 0; null measures at the end alone")
        if grpo.get("eval_strategy", "no") != "no" and not _holds_out(settings.dataset):
            raise UserError(
                "training.eval_steps: nothing is held out to measure on: set dataset.eval_split or "
                "dataset.eval_fraction, and dataset.max_eval_samples above 0, or training.eval_steps=null"
            )
        _check_best(grpo)


def _holds_out(dataset: DatasetSettings) -> bool:
    return bool(dataset.eval_split or dataset.eval_fraction) and dataset.max_eval_samples != 0


def _check_best(grpo: Mapping[str, Any]) -> None:
    metric = grpo.get("metric_for_best_model")
    if metric is not None and metric.removeprefix("eval_") not in FIGURES:
        near = did_you_mean(metric, FIGURES) or f"; there are {', '.join(FIGURES)}"
        raise UserError(f"training.metric_for_best_model={metric}: nothing measures that on held-out problems{near}")
