"""When a stage may end early, seen from the rows that were logged."""

from types import SimpleNamespace

import pytest

from rlvr_vocab.training.stage import Goal, StopAtGoal


def rows(*values):
    return [{"reward": value, "loss": 0.0} for value in values]


@pytest.mark.parametrize(
    ("goal", "values", "reached"),
    [
        (Goal("reward", above=0.5, window=3), (0.9, 0.9), False),  # the window is not yet full
        (Goal("reward", above=0.5, window=3), (0.4, 0.5, 0.7), True),
        (Goal("reward", above=0.5, window=3), (0.9, 0.9, 0.5, 0.4, 0.5), False),  # the last three alone
        (Goal("reward", above=0.5, window=1), (0.5,), False),
        (Goal("reward", below=0.1, window=2), (0.2, 0.0, 0.1), True),
        (Goal("reward", below=0.1, window=2), (0.0, 0.2), False),
    ],
)
def test_the_mean_of_the_window_decides(goal, values, reached):
    assert goal.reached(rows(*values)) is reached


def test_rows_without_the_metric_are_passed_over():
    logged = [{"kl": 0.4}, {"loss": 1.0}, {"kl": 0.2}]
    assert Goal("kl", below=0.35, window=2).reached(logged)


def stop_after(goal, *values):
    """The step after which a trainer that logs these rewards would stop."""
    callback, control = StopAtGoal(goal), SimpleNamespace(should_training_stop=False)
    state = SimpleNamespace(global_step=0, log_history=[])
    for row in rows(*values):
        state.global_step += 1
        state.log_history.append(row)
        callback.on_log(None, state, control, logs=row)
        if control.should_training_stop:
            return state.global_step
    return None


def test_training_stops_at_the_first_step_that_reaches_the_goal():
    assert stop_after(Goal("reward", above=0.5, window=2), 0.1, 0.8, 0.3, 0.9, 0.9) == 3
    assert stop_after(Goal("reward", above=0.95, window=2), 0.1, 0.9, 0.2, 0.9, 0.9) is None
