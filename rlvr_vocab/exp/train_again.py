"""The command that trains a run again."""

from __future__ import annotations

import shlex
from pathlib import Path


def again(folder: Path, exp_name: str) -> str:
    """The command that trains the run again, beside itself."""
    name = f"{exp_name}_again"
    words = [
        f"config={folder}/config.yaml",
        f"exp_name={name}",
        f"output_dir={folder.with_name(f'{folder.name}_again')}",
    ]
    return shlex.join(["rlvr-vocab", "train", *words])
