"""The command rlvr-vocab: checks the configuration, then imports and runs one command."""

from __future__ import annotations

import io
import os
import select
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from importlib import import_module

from rlvr_vocab.checks.seeds import check_seeds
from rlvr_vocab.config.compose import parse_command_line
from rlvr_vocab.config.help import COMMANDS, command_help, overview, shown_key
from rlvr_vocab.config.load import Settings, load_settings
from rlvr_vocab.config.overrides import known_keys
from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.errors import Interrupted, OutOfRoom, UserError, is_out_of_memory
from rlvr_vocab.exit_codes import (
    BAD_INPUT,
    INTERRUPTED,
    OUT_OF_ROOM,
    READER_GONE,
    RESUME_ME,
    forget_exit_code,
    one_voice,
    write_exit_code,
)
from rlvr_vocab.nearest import nearest_and_all
from rlvr_vocab.secret_words import without_secrets
from rlvr_vocab.stop_signals import stop_signals
from rlvr_vocab.terminal import quiet_imports
from rlvr_vocab.visible_text import visible_text

TRAINS = ("train", "quickstart")
# Outside of a trainer, whose phases are known: sampling, and the warm-up.
TAKE_LESS_MEMORY = ("batch_size", "max_new_tokens", "warmup.batch_size")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `rlvr-vocab <command> key=value …` and returns the exit code.

    It is 2 for bad input, 74 where the disk or the memory is full, 75 for a run that was told to stop and can be
    resumed, 130 for Ctrl-C, and 141 where whatever reads the output, `head` for instance, has left.
    """
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # What the encoding of a log file has no bytes for.
        sys.stdout.reconfigure(errors="backslashreplace")
    forget_exit_code()
    code = ended_well_or_told(list(sys.argv[1:] if argv is None else argv))
    write_exit_code(code)
    return code


def ended_well_or_told(argv: list[str]) -> int:
    try:
        with one_voice():
            code = dispatch(argv)
        sys.stdout.flush()
        return code
    except UserError as error:
        tell("error:", error)
        return BAD_INPUT
    except OutOfRoom as error:
        tell("error:", error)
        return OUT_OF_ROOM
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        tell("error:", out_of_memory_line(argv[0], error))
        return OUT_OF_ROOM
    except Interrupted as error:
        if str(error):  # else the main process says it
            tell("interrupted:", error)
        return RESUME_ME
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        if not output_is_unread():
            raise
        # What is still buffered is written when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE


def tell(kind: str, error: BaseException | str) -> None:
    """One line, whatever the message looks like, with no secret in it and nothing that a terminal obeys."""
    print(kind, visible_text(" ".join(without_secrets(str(error)).split())), file=sys.stderr)


def out_of_memory_line(command: str, error: RuntimeError) -> str:
    """What torch says of a full GPU, without its advice on the allocator, and the keys that take less."""
    smaller = [key for key in TAKE_LESS_MEMORY if key in known_keys(command).leaves]
    return str(error).partition("If reserved")[0].strip() + f" Smaller: {', '.join(smaller)}" * bool(smaller)


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
    line = parse_command_line(command, rest)
    if line.help:
        print(command_help(command, rest))
        return 0
    if line.show is not None:
        print(shown_key(command, rest, line.show))
        return 0
    with stop_signals.listening() if command in TRAINS else nullcontext():
        settings = load_settings(command, rest)
        check_seeds(settings)
        quiet_imports()
        import_backend(settings)
        return int(import_module(COMMANDS[command].module).run(settings))


if __name__ == "__main__":
    raise SystemExit(main())


def import_backend(settings: Settings) -> None:
    if isinstance(settings, RunSettings) and settings.model.backend == "unsloth":
        from rlvr_vocab.training.models.unsloth_model import import_unsloth

        import_unsloth()
