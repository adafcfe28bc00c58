"""The one message of TRL's that would fill the screen with rows stays off it; all others of its logger stay on."""

import logging

import pytest
from accelerate import PartialState
from accelerate.logging import get_logger

from rlvr_vocab.terminal import quiet_libraries

TRL_LOGGER = "trl.trainer.grpo_trainer"
NO_SCORE = "All reward functions returned None for the following kwargs:"


def test_rows_that_no_reward_scores_are_not_printed_whole(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.getLogger(TRL_LOGGER)
    monkeypatch.setattr(logger, "filters", [])  # another test may have run a command in this process
    logger.warning("%s before", NO_SCORE)
    quiet_libraries()
    quiet_libraries()
    logger.warning(f"{NO_SCORE}\n{{'solution': '100%'}}\nPlease ensure that …")
    PartialState()
    get_logger(TRL_LOGGER).warning(f"{NO_SCORE}\n{{'solution': '7'}}")  # as TRL says it, with the rank in front
    logger.warning("another warning")
    logging.getLogger("rlvr_vocab.rewards.guard").warning(NO_SCORE)
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        (TRL_LOGGER, f"{NO_SCORE} before"),
        (TRL_LOGGER, "another warning"),
        ("rlvr_vocab.rewards.guard", NO_SCORE),
    ]
