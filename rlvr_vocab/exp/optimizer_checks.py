"""training.optim and what else is built beside it, asked for before anything loads."""

from collections.abc import Mapping
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.exp import environment_checks

# Beginnings of names and the modules that Transformers imports for them; the others are torch's own.
PACKAGES = {
    "galore_": ("galore_torch",),
    "apollo_": ("apollo_torch",),
    "lomo": ("lomo_optim",),
    "adalomo": ("lomo_optim",),
    "grokadamw": ("grokadamw",),
    "schedule_free_": ("schedulefree",),
    "stable_adamw": ("optimi",),
    "adamw_torch_4bit": ("torchao",),
    "adamw_torch_8bit": ("torchao",),
    "adamw_torch_xla": ("torch_xla",),
    "adamw_torch_npu_fused": ("torch_npu",),
    "adamw_anyprecision": ("torchdistx",),
    **dict.fromkeys(("adamw_8bit", "adamw_bnb_8bit", "paged_", "ademamix", "lion_", "rmsprop_bnb"), ("bitsandbytes",)),
}
# What these schedules cannot do without; one of several is enough.
_SCHEDULES = {
    **dict.fromkeys(("cosine_with_min_lr", "cosine_warmup_with_min_lr"), ("min_lr", "min_lr_rate")),
    "warmup_stable_decay": ("num_decay_steps",),
}
QUANTIZATION = "pip install -e '.[quantization]'"
INSTALLED_BY = {
    "galore_torch": "pip install galore-torch",
    "lomo_optim": "pip install lomo-optim",
    "optimi": "pip install torch-optimi",
    "bitsandbytes": QUANTIZATION,
}


def packages_of(optim: str) -> tuple[str, ...]:
    """Modules behind an optimizer; none for torch's own."""
    return next((modules for beginning, modules in PACKAGES.items() if optim.startswith(beginning)), ())


def check_optimizer(optim: str | None) -> None:
    for module in packages_of(optim or ""):
        if not environment_checks.installed(module):
            command = INSTALLED_BY.get(module, f"pip install {module}")
            raise UserError(
                f"training.optim={optim}: {module} is not installed; install it with {command}, or set "
                "training.optim=adamw_torch_fused"
            )


def check_schedule(grpo: Mapping[str, Any]) -> None:
    kind, options = grpo.get("lr_scheduler_type"), grpo.get("lr_scheduler_kwargs") or {}
    if kind in ("reduce_lr_on_plateau", "greedy"):
        raise UserError(f"training.lr_scheduler_type={kind}: it follows a held-out loss, and GRPO has none; set cosine")
    needed = _SCHEDULES.get(str(kind), ())
    if needed and not set(needed) & set(options):
        names = " or ".join(f"training.lr_scheduler_kwargs.{name}" for name in needed)
        raise UserError(f"training.lr_scheduler_type={kind}: needs {names}")


def check_loader(grpo: Mapping[str, Any]) -> None:
    for name in ("dataloader_persistent_workers", "dataloader_prefetch_factor"):
        if grpo.get(name) and not grpo.get("dataloader_num_workers"):
            raise UserError(f"training.{name}: needs training.dataloader_num_workers above 0")
