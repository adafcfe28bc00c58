"""What this machine has: a W&B login, which a run may need before it starts, and optional packages."""

import netrc
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlparse

from rlvr_vocab.errors import UserError
from rlvr_vocab.exp.typed_sections import LoggingSettings

WANDB_URL = "https://api.wandb.ai"
OFFLINE_MODES = ("offline", "disabled", "dryrun")


def check_wandb_login(logging: LoggingSettings) -> None:
    """Off a terminal nobody can answer W&B's question for a key: the run would die with the model loaded."""
    offline = {logging.mode, os.environ.get("WANDB_MODE")} & set(OFFLINE_MODES)
    if logging.report_to == "none" or offline or has_wandb_key():
        return
    if sys.stdin.isatty() and sys.stdout.isatty():
        return
    raise UserError(
        "not logged in to Weights & Biases: set WANDB_API_KEY, or run `wandb login`, "
        "or add logging=offline or logging=disabled"
    )


def has_wandb_key() -> bool:
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlparse(os.environ.get("WANDB_BASE_URL") or WANDB_URL).hostname or ""
    files = [os.environ.get("NETRC"), *(str(Path.home() / name) for name in (".netrc", "_netrc"))]
    return any(netrc_has(Path(file), host) for file in files if file)


def netrc_has(path: Path, host: str) -> bool:
    if not path.is_file():
        return False
    try:
        return host in netrc.netrc(str(path)).hosts
    except (netrc.NetrcParseError, OSError):
        return False  # a file that W&B could not read either


def installed(package: str) -> bool:
    return find_spec(package) is not None
