"""What an optimizer is set to, apart from what it has learned: a checkpoint brings both, and only one may be wanted."""

from __future__ import annotations

from typing import Any

from torch.optim.lr_scheduler import LambdaLR

# Of a group: what is trained, what the schedule makes of the rate, and what the rate was at first.
_NO_SETTINGS = ("params", "lr", "initial_lr")


def settings_of(optimizer: Any, scheduler: Any) -> tuple[list[dict[str, Any]], list[Any] | None]:
    """Each group's settings, such as weight decay, and the learning rates that the schedule starts from."""
    groups = [
        {name: value for name, value in group.items() if name not in _NO_SETTINGS} for group in optimizer.param_groups
    ]
    return groups, list(scheduler.base_lrs) if isinstance(scheduler, LambdaLR) else None


def put_settings_back(settings: tuple[list[dict[str, Any]], list[Any] | None], optimizer: Any, scheduler: Any) -> None:
    """Let optimizer and schedule go on as they were configured; where nothing differs, nothing is touched."""
    groups, rates = settings
    for group, configured in zip(optimizer.param_groups, groups, strict=True):
        group.update(configured)
    if rates is None or rates == scheduler.base_lrs:
        return
    scheduler.base_lrs = rates
    now = [rate * factor(scheduler.last_epoch) for rate, factor in zip(rates, scheduler.lr_lambdas, strict=True)]
    scheduler._last_lr = now
    for group, rate, initial in zip(optimizer.param_groups, now, rates, strict=True):
        group["lr"], group["initial_lr"] = rate, initial
