"""A reward function's mistakes cost rows, not runs: each is None, counted, and warned about; a dry run refuses them."""

import asyncio
import contextvars
import functools
import importlib
import math
import signal
import subprocess
import sys
import threading
import time
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.guard import Reward, dry_run, score_of
from rlvr_vocab.rewards.reward import Score
from rlvr_vocab.verify.verifier import DIFFERENT, TIMEOUT, Verdict

TURNS = ["a", "b", "c", "d", "e"]
LONG_ENOUGH = 60.0


def guarded(function, deadline=None):
    return Reward(function, "mine", deadline=deadline)


def raising_on_c(error):
    def function(completions):
        if "c" in completions:
            raise error("c")
        return [1.0] * len(completions)

    return function


@pytest.mark.parametrize(
    ("value", "score"),
    [(Decimal("0.125"), 0.125), (np.bool_(True), 1.0), (torch.tensor(0.5, requires_grad=True), 0.5), (3e38, 3e38)],
)
def test_finite_numbers_of_any_library_are_scores(value, score):
    assert score_of(value) == Score(score, "") and type(score_of(value).value) is float
    assert score_of(Score(value, "half")) == Score(score, "half")
    for results in ((value, None), np.array([score, np.inf]), pd.Series([score, np.nan])):
        assert guarded(lambda completions, results=results: results)(completions=["a", "b"]) == [score, None]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (torch.tensor(-math.inf), "returned -inf, which is no finite float32"),
        (3.5e38, "returned 3.5e+38, which is no finite float32"),
        (Score(math.nan, "half"), "returned nan, which is no finite float32"),
        ("x" * 10**6, f"returned '{'x' * 12}...{'x' * 13}' (str), not a number"),
        (10**400, f"returned {'1' + 17 * '0'}...{19 * '0'} (int), not a number"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_that_is_no_score_costs_its_row_alone(value, why, caplog):
    function = guarded(lambda completions: [1, value, None, True])
    assert [score_of(value)] == function.explain(completions=TURNS[:4])[1:2] == [Score(None, why, failed="row")]
    assert function(completions=TURNS[:4]) == [1.0, None, None, 1.0] and function.failures == 1
    assert caplog.messages == [f"reward mine {why} for row 2 ('b'): it scores None (such rows so far: 1)"]


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (None, "None (NoneType), not a list"),
        ("11111", "'11111' (str), not a list"),
        (np.ones((1, 2)), "array([[1., 1.]]) (ndarray), not a list"),
        ([1.0] * 6, "6 values for 5 rows"),
    ],
)
def test_a_result_that_is_no_list_of_the_batch_costs_all_rows_with_one_warning(result, why, caplog):
    function = guarded(lambda completions: result)
    assert function(completions=TURNS) == [None] * 5 and function.failures == 5
    assert caplog.messages == [f"reward mine returned {why}: all of them score None"]


def test_a_fault_of_the_batch_that_no_row_alone_has_costs_no_row():
    seen = []

    def picky(completions, solution, trainer_state, environments):
        seen.append((completions, solution, trainer_state, environments))
        return [1.0] if len(completions) == 1 else 1 / 0

    function = guarded(picky)
    columns = {"solution": ["1", "2"], "trainer_state": "state", "environments": ["x", "y"]}
    assert function(completions=["a", "b"], **columns) == [1.0, 1.0] and function.failures == 0
    # Single rows get their cells and environments, and what belongs to the whole batch.
    assert seen[1:] == [(["a"], ["1"], "state", ["x"]), (["b"], ["2"], "state", ["y"])]


@pytest.mark.parametrize("deadline", [None, LONG_ENOUGH])
@pytest.mark.parametrize("error", [KeyError, SystemExit, asyncio.CancelledError, StopIteration])
def test_a_row_that_raises_costs_itself_with_and_without_a_deadline(error, deadline, caplog):
    function = raising_on_c(error)
    assert guarded(function, deadline)(completions=TURNS) == [1.0, 1.0, None, 1.0, 1.0]
    [line] = caplog.messages
    where = f"(test_guard.py, line {function.__code__.co_firstlineno + 2}) for row 3 ('c')"
    assert f"raised {error.__name__}" in line and where in line


@pytest.mark.parametrize(("error", "deadline"), [(KeyboardInterrupt, LONG_ENOUGH), (UserError, None)])
def test_an_interruption_and_wrong_use_are_raised_where_the_function_was_called(error, deadline):
    with pytest.raises(error, match="c"):
        guarded(raising_on_c(error), deadline)(completions=TURNS)


class Judge:
    async def __call__(self, completions):
        await asyncio.sleep(0)
        return [len(turn) for turn in completions]


@pytest.mark.parametrize("deadline", [None, LONG_ENOUGH])
def test_asynchronous_functions_are_awaited_inside_a_running_loop_too(deadline):
    function = guarded(Judge(), deadline)

    async def notebook():
        return function(completions=["a", "bb"])

    assert function(completions=["a", "bb"]) == asyncio.run(notebook()) == [1.0, 2.0]


@pytest.mark.parametrize(
    ("scores", "figures", "reasons"),
    [
        ([Score(1.0, "loud"), Score(0.0, "quiet")], {}, ["loud", "quiet"]),
        ([1.0, "x"], {"rewards/mine/failures": 1.0}, ["", "returned 'x' (str), not a number"]),
        ([Score(0.0, "slow", timed_out=True)] * 2, {"rewards/mine/timeouts": 2.0}, ["slow", "slow"]),
    ],
)
def test_reasons_failures_and_timeouts_are_handed_on_with_every_batch(scores, figures, reasons):
    logged, columns = {}, {}
    function = guarded(lambda completions: scores)
    function(completions=["A", "b"], log_metric=logged.__setitem__, log_extra=columns.__setitem__)
    assert (logged, columns) == (figures, {"reason/mine": reasons})


def test_comparisons_that_ran_into_their_deadline_are_told_apart_from_wrong_answers(monkeypatch):
    module = importlib.import_module("rlvr_vocab.rewards.library.answers")
    verdicts = [Verdict(False, TIMEOUT), Verdict(False, DIFFERENT, "1", "2")]
    monkeypatch.setattr(module, "verify", lambda golds, answers, deadline: verdicts)
    scores = module.accuracy.explain([r"\boxed{2}"] * 2, solution=["1"] * 2)
    assert [(score.value, score.timed_out) for score in scores] == [(0.0, True), (0.0, False)]


class Odd:
    def __repr__(self):
        return "\udcff"


def raises(completions, **columns):
    raise ValueError("half a pair: \ud800")


def logs(completions, log_extra, **columns):
    log_extra("\ud800", ["\udfff"] * len(completions))
    return [Odd(), Score(0.5, "\udfff and \0")]


@pytest.mark.parametrize("function", [raises, logs])
@pytest.mark.parametrize("deadline", [None, 5.0])
def test_what_a_function_says_or_logs_can_be_written_as_utf_8(function, deadline):
    logged = {}
    guarded(function, deadline)(completions=["a", "b"], log_extra=logged.__setitem__)
    assert set(map(len, logged.values())) == {2}
    "".join([*logged, *(text for values in logged.values() for text in values)]).encode("utf-8")


ROWS = [{"prompt": [{"role": "user", "content": f"{number}?"}], "solution": str(number)} for number in (1, 2, 3)]
REPLIES = [[{"role": "assistant", "content": f"\\boxed{{{number}}}"}] for number in (1, 2, 3)]


def refusal(function, **more):
    with pytest.raises(UserError) as caught:
        dry_run(Reward(function, "mine", **more), ROWS, REPLIES)
    return str(caught.value)


def test_a_dry_run_passes_what_a_trainer_passes():
    def thorough(prompts, completions, completion_ids, solution, trainer_state, log_extra, log_metric):
        assert (prompts, completions, solution) == ([row["prompt"] for row in ROWS], REPLIES, ["1", "2", "3"])
        assert [len(ids) for ids in completion_ids] == [9, 9, 9]
        assert trainer_state.global_step / trainer_state.max_steps == 0
        log_extra("seen", solution)
        log_metric("rows", 3.0)
        return [1.0, None, 0]

    scores = dry_run(Reward(thorough, "mine"), ROWS, REPLIES)
    assert [score.value for score in scores] == [1.0, None, 0.0]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda solution, **_: [1 / (int(gold) - 2) for gold in solution], "raised ZeroDivisionError: division by"),
        (lambda completions, **_: [1.0, 1.0, "yes"], "returned 'yes' (str), not a number for row 3"),
        (lambda completions, **_: [1.0], "returned 1 value for 3 rows in its trial"),
    ],
)
def test_a_mistake_in_a_dry_run_is_refused_with_its_row(function, message):
    assert refusal(function).startswith(f"reward mine {message}")


def sets_an_alarm(completions, **columns):
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    return [1.0] * len(completions)


def test_a_dry_run_that_needs_more_time_or_the_main_thread_names_the_key():
    assert "its deadline of 0.1 seconds in its trial; a larger `deadline`" in refusal(
        lambda **_: time.sleep(2), deadline=0.1
    )
    assert "`deadline: null` the main thread" in refusal(sets_an_alarm, deadline=60.0)
    assert dry_run(Reward(sets_an_alarm, "mine"), ROWS, REPLIES)[0].value == 1.0


class Hanging:
    """Hangs on the turn "b", until it is let go."""

    def __init__(self):
        self.called, self.let_go = [], threading.Event()

    def __call__(self, completions):
        self.called.append(list(completions))
        assert "b" not in completions or self.let_go.wait(LONG_ENOUGH)
        return [1.0] * len(completions)


@pytest.fixture
def slow():
    yield (judge := Hanging())
    judge.let_go.set()


def test_a_call_that_is_late_costs_its_rows_and_is_told_with_function_and_seconds(slow, caplog):
    logged = {}
    function = guarded(lambda completions, log_metric: slow(completions), 0.2)
    started = time.monotonic()
    assert function(completions=["a", "b", "c"], log_metric=logged.__setitem__) == [None] * 3
    assert 0.2 <= time.monotonic() - started < 5
    assert logged == {"rewards/mine/failures": 3.0, "rewards/mine/timeouts": 3.0}
    assert caplog.messages == ["reward mine had not returned by its deadline of 0.2 seconds: all of them score None"]


def test_a_function_that_hangs_is_not_called_again_until_its_call_has_ended(slow, caplog):
    function = Reward(slow, "slow", deadline=0.2)
    function(completions=["b"])
    started = time.monotonic()
    assert [function(completions=["a"]) for _ in range(5)] == [[None]] * 5
    assert time.monotonic() - started < 0.2  # at once, all five
    assert slow.called == [["b"]] and function.failures == 6
    assert all("still hangs in an earlier call" in line for line in caplog.messages[1:])
    slow.let_go.set()
    assert called_again(function, ["a"]) == [1.0]
    assert slow.called == [["b"], ["a"]]


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

    function = guarded(fails_on_batches, 0.3)
    started = time.monotonic()
    assert function(completions=["a", "a", "b", "c", "d"]) == [1.0, 1.0, None, None, None]
    assert time.monotonic() - started < 1  # of one row, not of three


class Cuda(threading.local):
    """As CUDA does it: a device per thread, at first the first."""

    index = 0

    def is_initialized(self):
        return True

    def current_device(self):
        return self.index

    def set_device(self, index):
        self.index = index


def test_a_function_has_the_context_and_the_gpu_of_its_caller(monkeypatch):
    variable, cuda = contextvars.ContextVar("variable"), Cuda()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    cuda.set_device(3)

    def function(completions):
        return [10 * cuda.current_device() + variable.get()]

    reward, scores = guarded(function, LONG_ENOUGH), []
    for value in (1, 2):
        variable.set(value)
        scores += reward(completions=["a"])
    assert scores == [31.0, 32.0]


def test_a_call_that_was_given_up_logs_nothing_into_later_batches(slow):
    logged = []

    def function(completions, log_extra):
        slow(completions)
        log_extra("verdict", completions)
        return [1.0] * len(completions)

    logging = functools.partial(guarded(function, 0.2), log_extra=lambda *column: logged.append(column))
    logging(completions=["b"])
    slow.let_go.set()
    assert called_again(logging, ["a"]) == [1.0]
    assert [values for column, values in logged if column == "verdict"] == [["a"]]


def test_an_asynchronous_function_is_cancelled_at_its_deadline_and_called_again_for_the_next_batch():
    ended = []

    async def judge(completions):
        try:
            await asyncio.sleep(10 * LONG_ENOUGH if "b" in completions else 0)
        finally:
            ended.append(list(completions))
        return [1.0] * len(completions)

    function = guarded(judge, 0.2)
    assert function(completions=["b"]) == [None]
    assert called_again(function, ["a"]) == [1.0]
    assert ended == [["b"], ["a"]]

    async def impatient(completions):
        raise TimeoutError("the service took too long")

    [score] = guarded(impatient, LONG_ENOUGH).explain(completions=["a"])
    assert score.reason.startswith("raised TimeoutError: the service") and not score.timed_out


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
