"""The words after `rlvr-vocab <command>`: Hydra's options, config=FILE, and overrides."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from rlvr_vocab.errors import UserError
from rlvr_vocab.nearest import did_you_mean

OPTIONS = ("--config-dir", "--config-name", "--config-path", "--show", "--help")
CAN_START_FROM_FILE = ("train", "quickstart")


@dataclass(frozen=True)
class CommandLine:
    overrides: tuple[str, ...] = ()
    config_dir: Path | None = None
    config_path: Path | None = None
    config_name: str | None = None
    config_file: Path | None = None
    show: str | None = None
    help: bool = False


class OneLineParser(argparse.ArgumentParser):
    """argparse that raises UserError instead of printing its usage."""

    def error(self, message: str) -> NoReturn:
        raise UserError(message)


def parse_command_line(command: str, argv: Sequence[str]) -> CommandLine:
    """Splits the words of one command.

    Raises:
        UserError: for an option that does not exist, or one without its value.
    """
    parser = OneLineParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--config-dir", "-cd", type=Path)
    parser.add_argument("--config-path", "-cp", type=Path)
    parser.add_argument("--config-name", "-cn")
    parser.add_argument("--show")
    known, rest = parser.parse_known_args(list(argv))
    for word in rest:
        if word.startswith("-"):
            raise UserError(unknown_option(word))
    config_file = None
    if command in CAN_START_FROM_FILE:
        files = [word for word in rest if word.startswith("config=")]
        rest = [word for word in rest if not word.startswith("config=")]
        config_file = Path(files[-1].removeprefix("config=")).expanduser() if files else None
    return CommandLine(
        tuple(rest), known.config_dir, known.config_path, known.config_name, config_file, known.show, known.help
    )


def unknown_option(word: str) -> str:
    bare = word.lstrip("-")
    if "=" in bare:
        return f"unknown option {word}: keys have no dashes, write {bare}"
    return f"unknown option {word}{did_you_mean(word, OPTIONS)}"
