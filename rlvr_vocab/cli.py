"""The command rlvr-vocab: checks the configuration, then imports and runs one command."""

from __future__ import annotations

import errno
import io
import os
import re
import select
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from rlvr_vocab.config.command_table import COMMANDS
from rlvr_vocab.config.compose import CommandLine, parse_command_line
from rlvr_vocab.config.help import command_help, composed_yaml, overview, value_of_key
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.values import keys_of
from rlvr_vocab.errors import (
    BAD_INPUT,
    CTRL_C,
    OUT_OF_ROOM,
    READER_GONE,
    RESUME_ME,
    Interrupted,
    OutOfRoom,
    UserError,
    delete_exit_code,
    is_out_of_memory,
    main_process_reports,
    write_exit_code,
)
from rlvr_vocab.plan.fit import words_that_fit
from rlvr_vocab.rewards.user_code import only_allowed_code
from rlvr_vocab.runs.multirun import Job, jobs_of, require_one_process, run_jobs
from rlvr_vocab.secrets import without_secrets
from rlvr_vocab.signals import stop_signals
from rlvr_vocab.terminal import open_closed_streams, quiet_imports, write_on_unread
from rlvr_vocab.text import nearest_and_all, visible_text

TRAINS = ("train", "quickstart")
MAKE_FILES = (*TRAINS, "evaluate", "expand", "merge", "probe")  # and so go on where nobody reads their output
DECIDE_MEMORY = (
    *("batch_size", "max_new_tokens", "warmup.batch_size"),
    *("training.per_device_train_batch_size", "training.max_completion_length", "training.num_generations"),
    "training.gradient_checkpointing",
    *("training.beta", "model.lora.enabled", "model.reasoning_vocab_size"),
)

CARD_MEMORY = re.compile(r"total capacity of ([\d.]+) GiB")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `rlvr-vocab <command> key=value …` and returns the exit code.

    It is 2 for bad input, 74 where the disk or the memory is full, 75 for a run that was told to stop and can be
    resumed, 130 for Ctrl-C, and 141 where nobody reads the output any more, of a command that makes nothing else.
    """
    open_closed_streams()
    write_on_unread("stderr")
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # What the encoding of a log file has no bytes for.
        sys.stdout.reconfigure(errors="backslashreplace")
    delete_exit_code()
    code = run_and_report(list(sys.argv[1:] if argv is None else argv))
    write_exit_code(code)
    return code


def run_and_report(argv: list[str]) -> int:
    try:
        with main_process_reports():
            code = dispatch(argv)
        sys.stdout.flush()
        return code
    except UserError as error:
        print_error("error:", error)
        return BAD_INPUT
    except OutOfRoom as error:
        print_error("error:", error)
        return OUT_OF_ROOM
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        print_error("error:", out_of_memory_line(argv, error))
        return OUT_OF_ROOM
    except Interrupted as error:
        if str(error):  # else the main process says it
            print_error("interrupted:", error)
        return RESUME_ME
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return CTRL_C
    except BrokenPipeError:
        if not output_is_unread():
            raise
        # What is still buffered is written when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        print_error("error:", f"{error.strerror}: {error.filename}")
        return BAD_INPUT


def print_error(kind: str, error: BaseException | str) -> None:
    """One line, whatever the message looks like, with no secret in it and nothing that a terminal obeys."""
    print(kind, visible_text(" ".join(without_secrets(str(error)).split())), file=sys.stderr)


def out_of_memory_line(argv: Sequence[str], error: RuntimeError) -> str:
    """What torch says of a full GPU, without its advice on the allocator, and what would fit or decides what fits."""
    command, said = argv[0], str(error).partition("If reserved")[0].strip()
    card = CARD_MEMORY.search(said)
    fitting = words_that_fit(read_settings(command, argv[1:]), float(card[1])) if card and command in TRAINS else []
    if fitting:
        return f"{said} This should fit, as rlvr-vocab plan reckons: {' '.join(fitting)}"
    keys = [key for key in DECIDE_MEMORY if key in keys_of(COMMANDS[command].settings)]
    return said + f" Keys that decide: {', '.join(keys)}" * bool(keys)


def output_is_unread() -> bool:
    """Whether it is our own output that nobody reads; other pipes, to a worker for instance, break too."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)  # what has gone wrong is reported unasked
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def dispatch(words: list[str]) -> int:
    if not words or words[0] in ("--help", "-h", "help"):
        print(overview())
        return 0
    name, rest = words[0], words[1:]
    if name not in COMMANDS:
        raise UserError(f"unknown command {name}{nearest_and_all(name, COMMANDS)}")
    line = parse_command_line(name, rest)
    with nullcontext() if line.trust_code else only_allowed_code():
        return carry_out(name, rest, line)


def carry_out(name: str, rest: list[str], line: CommandLine) -> int:
    """Print what an option asks for, or check the settings and run the command."""
    jobs = jobs_of(name, rest) if line.multirun else []
    shown = shown_alone(name, line, [list(job.words) for job in jobs] or [rest])
    if shown is not None:
        print(shown)
        return 0
    if line.multirun and line.job is None:
        return run_sweep(name, jobs)
    if name in MAKE_FILES:
        write_on_unread("stdout")
    with stop_signals.listening() if name in TRAINS else nullcontext():
        settings = load_settings(name, list(jobs[0].words) if jobs else rest)
        quiet_imports()
        return COMMANDS[name].run(settings)


def shown_alone(command: str, line: CommandLine, argvs: list[list[str]]) -> str | None:
    """What is printed instead of running, where an option asks for it; of a sweep, for each of its runs."""
    if line.help:
        return command_help(command, argvs[0])
    if line.show is not None:
        return "\n".join(value_of_key(command, argv, line.show) for argv in argvs)
    if line.cfg:
        return "---\n".join(composed_yaml(command, argv, line.resolve) for argv in argvs).rstrip()
    return None


def run_sweep(command: str, jobs: Sequence[Job]) -> int:
    """Check the settings of every run, then start one after another."""
    require_one_process()
    with stop_signals.listening():
        for number, job in enumerate(jobs, start=1):
            try:
                load_settings(command, job.words)
            except UserError as error:
                raise UserError(f"job {number} of {len(jobs)} ({job}): {error}") from error
        return run_jobs(command, jobs)


def load_settings(command: str, argv: Sequence[str]) -> Any:
    """The settings of one command, read and checked; raises UserError for whatever is wrong with them."""
    settings = read_settings(command, argv)
    COMMANDS[command].check(settings)
    return settings


if __name__ == "__main__":
    raise SystemExit(main())
