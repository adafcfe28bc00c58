"""What the exit codes of a command mean, and a file for that of a run: `accelerate launch` makes 1 of any."""

import os
from pathlib import Path

BAD_INPUT = 2
OUT_OF_ROOM = os.EX_IOERR  # 74: the disk or the memory is full
RESUME_ME = os.EX_TEMPFAIL  # 75: told to stop before its end; the same command goes on
INTERRUPTED = 130
READER_GONE = 141  # as a shell counts a process that SIGPIPE ended: 128 + 13

FILE = "RLVR_VOCAB_EXIT_CODE_FILE"


def is_main_process() -> bool:
    """As a launcher says it, before torch can."""
    return os.environ.get("RANK", "0") == "0"


def forget_exit_code() -> None:
    """What an earlier run has left there: a crash leaves nothing."""
    if FILE in os.environ and is_main_process():
        Path(os.environ[FILE]).unlink(missing_ok=True)


def write_exit_code(code: int) -> None:
    """Leave the code of the main process in the file that the environment names, where it names one."""
    if FILE in os.environ and is_main_process():
        Path(os.environ[FILE]).write_text(f"{code}\n", encoding="utf-8")
