"""The command rlvr-vocab: checks the configuration, then imports and runs one command."""

import os
import select
import sys
from collections.abc import Sequence
from importlib import import_module

from rlvr_vocab.errors import UserError
from rlvr_vocab.exp.backend import import_backend
from rlvr_vocab.exp.command_help import COMMANDS, command_help, overview
from rlvr_vocab.exp.command_line import parse_command_line
from rlvr_vocab.exp.quiet import quiet_imports
from rlvr_vocab.exp.seed_checks import check_seeds
from rlvr_vocab.exp.settings import load_settings
from rlvr_vocab.nearest import nearest_and_all

BAD_INPUT = 2
INTERRUPTED = 130
READER_GONE = 141  # as a shell counts a process that SIGPIPE ended: 128 + 13


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `rlvr-vocab <command> key=value …` and returns the exit code.

    It is 2 for bad input, 130 for Ctrl-C, and 141 where whatever reads the output, `head` for instance, has left.
    """
    try:
        code = dispatch(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return code
    except UserError as error:
        print("error:", " ".join(str(error).split()), file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        if not output_is_unread():
            raise
        # What is still buffered is written when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE


def output_is_unread() -> bool:
    """Whether it is our own output that nobody reads; other pipes, to a worker for instance, break too."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)  # what has gone wrong is reported unasked
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


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
    check_seeds(settings)
    quiet_imports()
    import_backend(settings)
    return int(import_module(COMMANDS[command].module).run(settings))


if __name__ == "__main__":
    raise SystemExit(main())
