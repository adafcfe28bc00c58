"""Progress off a terminal is a few plain lines, and one message of TRL's stays off the screen."""

import io
import logging

from accelerate import PartialState
from accelerate.logging import get_logger
from rich.console import Console

from rlvr_vocab import terminal
from rlvr_vocab.terminal import progress_bar, quiet_libraries


def test_the_time_left_is_by_the_pace_since_the_first_update(monkeypatch):
    out, now = io.StringIO(), [100.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    with progress_bar(Console(file=out, width=200), "evaluating", 40) as display:
        for done, now[0] in ((10, 100.0), (20, 130.0), (40, 160.0)):
            display.update(done)
    assert out.getvalue().splitlines() == ["evaluating 10/40", "evaluating 20/40  left 1:00", "evaluating 40/40"]


TRL_LOGGER = "trl.trainer.grpo_trainer"
NO_SCORE = "All reward functions returned None for the following kwargs:"


def test_rows_that_no_reward_scores_are_not_printed_whole(caplog, monkeypatch):
    logger = logging.getLogger(TRL_LOGGER)
    monkeypatch.setattr(logger, "filters", [])  # another test may have run a command in this process
    quiet_libraries()
    logger.warning(f"{NO_SCORE}\n{{'solution': '100%'}}\nPlease ensure that …")
    PartialState()
    get_logger(TRL_LOGGER).warning(f"{NO_SCORE}\n{{'solution': '7'}}")  # as TRL says it, with the rank in front
    logger.warning("another warning")
    logging.getLogger("rlvr_vocab.rewards.guard").warning(NO_SCORE)
    assert caplog.messages == ["another warning", NO_SCORE]
