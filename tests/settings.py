"""Settings of a command, composed and checked as by the command line."""

from collections.abc import Sequence
from typing import Any

from rlvr_vocab.cli import checked_settings
from rlvr_vocab.config.load import parse_command_line


def load_settings(command: str, argv: Sequence[str]) -> Any:
    return checked_settings(parse_command_line(command, argv))
