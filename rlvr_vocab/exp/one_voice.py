"""Several processes of a run meet the same error: one of them says so."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rlvr_vocab.errors import Interrupted, OutOfRoom, UserError
from rlvr_vocab.exp.exit_code import is_main_process

# A launcher ends the others as soon as one has ended, and looks a few times a second.
_SECONDS = 5.0
_LEFT_ALONE = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")


@contextmanager
def one_voice(seconds: float = _SECONDS) -> Iterator[None]:
    """Inside the block errors that all processes of a run may meet are left to the main one to tell.

    The others wait for it to end, and for the launcher to end them. A process that is still there after that has met
    the error alone, and goes on to tell it. Where a process is told by its connections that another one has ended,
    it waits too, the main one no less: what there is to say, the other has said.

    Args:
        seconds: how long to wait.
    """
    try:
        yield
    except (UserError, OutOfRoom, Interrupted):
        if not is_main_process():
            _wait_to_be_ended(seconds)
        raise
    except RuntimeError as error:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1 and any(words in str(error) for words in _LEFT_ALONE):
            _wait_to_be_ended(seconds)
        raise


def _wait_to_be_ended(seconds: float) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    time.sleep(seconds)
