"""The reward functions that a run can name: each that a file of this folder declares is in `LIBRARY`."""

from importlib import import_module
from pkgutil import iter_modules

from rlvr_vocab.rewards.reward import LIBRARY

for _file in iter_modules(__path__):
    import_module(f"{__name__}.{_file.name}")

__all__ = ["LIBRARY"]
