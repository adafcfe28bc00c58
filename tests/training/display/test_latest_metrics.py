"""The metrics on a display, each with its latest value, and how long the rest will take."""

import pytest

from rlvr_vocab.training import display
from rlvr_vocab.training.display import LatestMetrics, TimeLeft


def test_a_metric_that_is_not_of_the_newest_step_says_which_step_it_is_of():
    metrics = LatestMetrics()
    metrics.update({"step": 1, "loss": 0.1, "reward": 0.456, "kl": 0.25, "thinking/reasoning_share": 0.5})
    metrics.update({"step": 2, "eval/accuracy": 0.45, "eval/format": 0.9})
    assert metrics.update({"step": 3, "loss": 0.1, "reward": 0.5, "groups/reward_std": None}) == {"reward": "0.50"}
    assert metrics.values() == {
        "reward": "0.50",
        "held out": "45.0% (step 2)",
        "in format": "90% (step 2)",
        "reasoning tokens": "50% (step 1)",
        "kl": "0.250 (step 1)",
    }


def test_a_step_shows_its_seconds_and_the_phase_that_takes_most_of_them():
    seconds = {"time/generation": 9.0, "time/forward": 1.0, "time/backward": 1.75, "time/other": 0.25}
    rates = {"time/sampled_tokens_per_second": 1234.4, "time/trained_tokens_per_second": 5678.0}
    assert LatestMetrics().update({"step": 1, "step_time": 12.0, **seconds, **rates}) == {
        "seconds a step": "12",
        "longest phase": "generation 75%",
        "sampled tokens/s": "1234",
        "trained tokens/s": "5678",
    }


@pytest.fixture
def clock(monkeypatch):
    """Its one item is what the clock says."""
    now = [100.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    return now


def test_the_time_left_is_that_of_the_steps_of_this_process_alone(clock):
    time_left = TimeLeft(step=40)
    assert time_left.seconds(50) is None
    for step, clock[0] in ((41, 103.0), (43, 105.0)):  # 3 s, and twice 1 s
        time_left.update(step)
    assert time_left.seconds(50) == pytest.approx(7 * 5 / 3)
    clock[0] += 2.0
    assert time_left.seconds(50) == pytest.approx(7 * 5 / 3 - 2)
    clock[0] += 1_000.0
    assert time_left.seconds(50) == 0.0
    time_left.update(50)
    assert time_left.seconds(50) is None
