"""The command rlvr-vocab: checks the configuration, then imports and runs one command."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from rlvr_vocab.config.command_line import CommandLine, parse_command_line
from rlvr_vocab.config.command_settings import COMMANDS
from rlvr_vocab.config.help import overview, printed, version
from rlvr_vocab.config.load import settings_of
from rlvr_vocab.config.values import keys_of
from rlvr_vocab.errors import (
    BAD_INPUT,
    CTRL_C,
    OUT_OF_ROOM,
    RESUME_ME,
    Interrupted,
    OutOfRoom,
    UserError,
    is_out_of_memory,
    main_process_reports,
    stop_signals,
    write_exit_code,
)
from rlvr_vocab.rewards.reward import only_allowed_code
from rlvr_vocab.runs.multirun import Job, jobs_of, run_jobs
from rlvr_vocab.secrets import without_secrets
from rlvr_vocab.terminal import open_closed_streams, outlive_reader
from rlvr_vocab.text import visible_text

TRAINS = ("train", "quickstart")
# Turns of the loop in which a thread of torch's OpenMP waits for the others before it sleeps, about 0.1 ms. Its own
# 300,000 keep a processor from the thread that is waited for, where other programs compute too (docs/LOG.md).
SPIN_COUNT = "5000"
MAKE_FILES = (*TRAINS, "evaluate", "expand", "merge", "probe")  # and so go on where nobody reads their output
DECIDE_MEMORY = (
    *("batch_size", "max_new_tokens", "warmup.batch_size", "training.per_device_train_batch_size"),
    *("training.max_completion_length", "training.gradient_checkpointing", "training.beta", "model.lora.enabled"),
    "model.reasoning_vocab_size",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `rlvr-vocab <command> key=value …` and return the exit code.

    2: bad input; 74: disk or memory full; 75: a run that stopped and can be resumed; 130: Ctrl-C; 141: nobody reads
    the output any more, of a command that makes nothing else.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    open_closed_streams()
    outlive_reader("stderr")
    outlive_reader("stdout", exits=not words or words[0] not in MAKE_FILES)
    write_exit_code(None)
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)  # before torch is imported
    code = run_and_report(words)
    write_exit_code(code)
    return code


def run_and_report(argv: list[str]) -> int:
    try:
        with main_process_reports():
            code = dispatch(argv)
        sys.stdout.flush()
        return code
    except (UserError, OutOfRoom) as error:
        print_error("error:", error)
        return BAD_INPUT if isinstance(error, UserError) else OUT_OF_ROOM
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        decide = [key for key in DECIDE_MEMORY if key in keys_of(COMMANDS[argv[0]].settings)]
        keys = f" Keys that decide: {', '.join(decide)}" * bool(decide)
        print_error("error:", str(error).partition("If reserved")[0] + keys)  # its advice on the allocator left out
        return OUT_OF_ROOM
    except Interrupted as error:
        if str(error):  # else the main process prints it
            print_error("interrupted:", error)
        return RESUME_ME
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return CTRL_C
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        print_error("error:", f"{error.strerror}: {error.filename}")
        return BAD_INPUT


def print_error(kind: str, error: BaseException | str) -> None:
    """Print one line without secrets and control characters."""
    print(kind, visible_text(" ".join(without_secrets(str(error)).split())), file=sys.stderr)


def dispatch(argv: list[str]) -> int:
    if not argv or argv[0] in ("--help", "-h", "help"):
        print(overview())
        return 0
    if argv[0] in ("--version", "-V", "version"):
        print(version())
        return 0
    line = parse_command_line(argv[0], argv[1:])
    with nullcontext() if line.trust_code else only_allowed_code():
        jobs = jobs_of(line.command, argv[1:]) if line.multirun else []
        lines = [parse_command_line(line.command, job.words) for job in jobs] or [line]
        shown = [text for text in map(printed, lines[:1] if line.help else lines) if text is not None]
        if shown:
            print(("\n---\n" if line.cfg else "\n").join(shown))
            return 0
        if jobs and line.job is None:
            return run_sweep(jobs, lines)
        with stop_signals.listening() if line.command in TRAINS else nullcontext():
            return COMMANDS[line.command].run(checked_settings(lines[0]))


def run_sweep(jobs: Sequence[Job], lines: Sequence[CommandLine]) -> int:
    """Check the settings of every run, then start one after another."""
    for number, (job, line) in enumerate(zip(jobs, lines, strict=True), start=1):
        try:
            checked_settings(line)
        except UserError as error:
            raise UserError(f"job {number} of {len(jobs)} ({job}): {error}") from error
    return run_jobs(lines[0].command, jobs)


def checked_settings(line: CommandLine) -> Any:
    """The settings of a command; raises UserError for the first thing that is wrong with them."""
    settings = settings_of(line)
    COMMANDS[line.command].check(settings)
    return settings


if __name__ == "__main__":
    raise SystemExit(main())
