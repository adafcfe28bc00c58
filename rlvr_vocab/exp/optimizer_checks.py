"""training.optim: the package that an optimizer comes from, asked for before anything loads."""

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
