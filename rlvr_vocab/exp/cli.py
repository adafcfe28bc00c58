"""The command rlvr-vocab: checks the configuration, then imports and runs one command."""

import sys
from collections.abc import Sequence
from importlib import import_module

from rlvr_vocab.errors import UserError
from rlvr_vocab.exp.backend import import_backend
from rlvr_vocab.exp.command_help import COMMANDS, command_help, overview
from rlvr_vocab.exp.command_line import parse_command_line
from rlvr_vocab.exp.quiet import quiet_imports
from rlvr_vocab.exp.settings import load_settings
from rlvr_vocab.nearest import nearest_and_all

BAD_INPUT = 2
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `rlvr-vocab <command> key=value …` and returns the exit code: 2 for bad input, 130 for Ctrl-C."""
    try:
        return dispatch(list(sys.argv[1:] if argv is None else argv))
    except UserError as error:
        print("error:", " ".join(str(error).split()), file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def dispatch(words: list[str]) -> int:
    if not words or words[0] in ("--help", "-h", "help"):
        print(overview())
        return 0
    command, rest = words[0], words[1:]
    if command not in COMMANDS:
        raise UserError(f"unknown command {command}{nearest_and_all(command, COMMANDS)}")
    if parse_command_line(command, rest).help:
        print(command_help(command, rest))
        return 0
    settings = load_settings(command, rest)
    quiet_imports()
    import_backend(settings)
    return int(import_module(COMMANDS[command].module).run(settings))


if __name__ == "__main__":
    raise SystemExit(main())
