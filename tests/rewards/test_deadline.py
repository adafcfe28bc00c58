"""A reward function that does not come back costs the rows of its batch, and neither the run nor its end."""

import asyncio
import contextvars
import functools
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.build import DEADLINE, RewardContext, build_rewards
from rlvr_vocab.rewards.deadline import Deadline, DeadlineThread
from rlvr_vocab.rewards.guard import Reward
from rlvr_vocab.rewards.reward import RewardSpec

LONG_ENOUGH = 60.0


class Judge:
    """Hangs on the turn "b", until it is let go."""

    def __init__(self):
        self.called, self.let_go = [], threading.Event()

    def __call__(self, completions):
        self.called.append(list(completions))
        assert "b" not in completions or self.let_go.wait(LONG_ENOUGH)
        return [1.0] * len(completions)


@pytest.fixture
def slow():
    yield (judge := Judge())
    judge.let_go.set()


def warnings(caplog):
    return [record.getMessage() for record in caplog.records]


def test_a_call_that_is_late_costs_its_rows_and_is_told_with_function_and_seconds(slow, caplog):
    logged = {}
    function = Reward(lambda completions, log_metric: slow(completions), "mine", deadline=0.2)
    started = time.monotonic()
    assert function(completions=["a", "b", "c"], log_metric=logged.__setitem__) == [None] * 3
    assert 0.2 <= time.monotonic() - started < 5
    assert logged == {"rewards/mine/failures": 3.0, "rewards/mine/timeouts": 3.0}
    assert warnings(caplog) == ["reward mine had not returned by its deadline of 0.2 seconds: all of them score None"]


def test_a_function_that_hangs_is_not_called_again_until_its_call_has_ended(slow, caplog):
    function = Reward(slow, "slow", deadline=0.2)
    function(completions=["b"])
    started = time.monotonic()
    assert [function(completions=["a"]) for _ in range(5)] == [[None]] * 5
    assert time.monotonic() - started < 0.2  # at once, all five
    assert slow.called == [["b"]] and function.failures == 6
    assert all("still hangs in a call that began 0 seconds ago" in line for line in warnings(caplog)[1:])
    slow.let_go.set()
    assert called_again(function, ["a"]) == [1.0]
    assert slow.called == [["b"], ["a"]]
    assert [thread.name for thread in threading.enumerate()].count("reward slow") == 1


def called_again(function, turns):
    """What a function scores as soon as it can be called again."""
    end = time.monotonic() + LONG_ENOUGH
    while (scores := function(completions=turns)) == [None] and time.monotonic() < end:
        time.sleep(0.01)
    return scores


def test_rows_that_are_tried_again_share_the_deadline_and_those_scored_before_it_keep_their_scores(slow):
    def fails_on_batches(completions):
        if len(completions) > 1:
            raise ConnectionError("service down")
        return slow(completions)

    function = Reward(fails_on_batches, "mine", deadline=0.3)
    started = time.monotonic()
    assert function(completions=["a", "a", "b", "c", "d"]) == [1.0, 1.0, None, None, None]
    assert time.monotonic() - started < 1  # of one row, not of three


def test_an_asynchronous_function_is_cancelled_at_its_deadline_and_called_again_for_the_next_batch():
    ended = []

    async def judge(completions):
        try:
            await asyncio.sleep(10 * LONG_ENOUGH if "b" in completions else 0)
        finally:
            ended.append(list(completions))
        return [1.0] * len(completions)

    function = Reward(judge, "mine", deadline=0.2)
    assert function(completions=["b"]) == [None]
    assert called_again(function, ["a"]) == [1.0]
    assert ended == [["b"], ["a"]]

    async def impatient(completions):
        raise TimeoutError("the service took too long")

    [score] = Reward(impatient, "mine", deadline=LONG_ENOUGH).explain(completions=["a"])
    assert score.reason.startswith("raised TimeoutError: the service") and not score.timed_out


class Cuda(threading.local):
    """As CUDA does it: a device per thread, at first the first."""

    index = 0

    def is_initialized(self):
        return True

    def current_device(self):
        return self.index

    def set_device(self, index):
        self.index = index


def test_a_function_has_the_context_and_the_gpu_of_its_caller_and_one_thread_for_all_its_calls(monkeypatch):
    variable, kept, cuda = contextvars.ContextVar("variable"), threading.local(), Cuda()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    cuda.set_device(3)

    def function(completions):
        kept.calls = getattr(kept, "calls", 0) + 1
        return [100 * cuda.current_device() + 10 * variable.get() + kept.calls]

    guarded, scores = Reward(function, "mine", deadline=LONG_ENOUGH), []
    for value in (1, 2):
        variable.set(value)
        scores += guarded(completions=["a"])
    assert scores == [311.0, 322.0]


def test_a_call_that_was_given_up_logs_nothing_into_later_batches(slow):
    logged = []

    def function(completions, log_extra):
        slow(completions)
        log_extra("verdict", completions)
        return [1.0] * len(completions)

    guarded = Reward(function, "mine", deadline=0.2)
    logging = functools.partial(guarded, log_extra=lambda *column: logged.append(column))
    logging(completions=["b"])
    slow.let_go.set()
    assert called_again(logging, ["a"]) == [1.0]
    assert [values for column, values in logged if column == "verdict"] == [["a"]]


def test_a_thread_ends_with_the_last_reference_to_it():
    thread = DeadlineThread("short-lived")
    assert thread.call(lambda wanted: wanted(), Deadline(LONG_ENOUGH)) is True
    [worker] = [each for each in threading.enumerate() if each.name == "short-lived"]
    del thread
    worker.join(LONG_ENOUGH)
    assert not worker.is_alive()


def test_a_function_that_never_returns_does_not_hold_up_the_end_of_the_program():
    code = (
        "from rlvr_vocab.rewards.guard import Reward\n"
        "def forever(completions):\n"
        "    while True: pass\n"
        "print(Reward(forever, 'forever', deadline=0.2)(completions=['a', 'b']))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LONG_ENOUGH)
    assert (answer.returncode, answer.stdout) == (0, "[None, None]\n")
    assert "reward forever had not returned by its deadline of 0.2 seconds" in answer.stderr


def test_user_code_has_a_deadline_unless_it_is_null_and_the_library_has_none(tmp_path):
    (tmp_path / "mine.py").write_text("def fine(completions): return [1.0] * len(completions)\n")
    mine = f"{tmp_path}/mine.py:fine"
    specs = [RewardSpec(mine), RewardSpec(mine, deadline=5.0), RewardSpec(mine, deadline=None), RewardSpec("accuracy")]
    assert [reward.deadline for reward in build_rewards(specs, RewardContext())] == [DEADLINE, 5.0, None, None]
    with pytest.raises(UserError, match="boxed takes no deadline beside its name: it is of the library"):
        build_rewards([RewardSpec("boxed", deadline=5.0)], RewardContext())
