"""What `rlvr-vocab plan` refuses: values that `train` would refuse on any machine, and what cannot be planned."""

from __future__ import annotations

from rlvr_vocab.checks.model import check_adapter, check_model
from rlvr_vocab.checks.run import check_exp_name, check_loss, check_precision
from rlvr_vocab.config.batches import check_batches, value_of
from rlvr_vocab.config.sections import PlanSettings
from rlvr_vocab.errors import UserError
from rlvr_vocab.plan.devices import CARDS, CPU, device_named
from rlvr_vocab.plan.workload import architecture_of_run
from rlvr_vocab.runs.folder import check_new_file
from rlvr_vocab.runs.rewards import grader_of_run


def check_plan(settings: PlanSettings) -> None:
    """Raises UserError for the first thing that is wrong; what this machine lacks for the run is no fault of a plan."""
    check_exp_name(settings.exp_name)
    check_model(settings.model)
    check_adapter(settings.model)
    for each in (settings, *(stage.run for stage in settings.stages)):
        check_batches(each.training.grpo, settings.gpus)
        check_loss(each.training.grpo)
        check_precision(each.training.grpo)
        longest = value_of(each.training.grpo, "max_completion_length")
        if settings.completion_tokens is not None and settings.completion_tokens > longest:
            raise UserError(
                f"completion_tokens={settings.completion_tokens:g}: completions end at "
                f"training.max_completion_length={longest}"
            )
    architecture_of_run(settings)
    if settings.gpu is not None:
        device_named(settings.gpu)
    if settings.fit_gib is not None and settings.gpu == CPU:
        raise UserError(f"fit={settings.fit} with gpu=cpu: it is for a card; name one of {', '.join(CARDS)}, or none")
    if settings.sharding != "none" and settings.gpus == 1:
        raise UserError(f"sharding={settings.sharding}: over one card there is nothing to share; set gpus")
    if settings.calibrate and (settings.gpus > 1 or settings.gpu not in (None, CPU)):
        raise UserError("calibrate=true: steps are run in this machine, by one process; leave gpu and gpus out")
    if settings.calibrate and settings.stages:
        raise UserError("calibrate=true: not for a run in stages, which it would have to run whole; set stages=null")
    if settings.calibrate and settings.fit is not None:
        raise UserError("calibrate=true with fit: settings are first found, then measured; give one of them")
    if settings.calibrate:
        grader_of_run(settings)  # whose code the steps will import
    if settings.out is not None:
        check_new_file(settings.out, "out", ())
