"""A reward function's mistakes cost rows, not runs: each is None, counted, and told with function, row and value."""

import asyncio
import functools
import importlib
import math
import time

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.build import Bound
from rlvr_vocab.rewards.guard import GuardedReward, Mistake
from rlvr_vocab.rewards.reward import Score, reward
from rlvr_vocab.verify.judge import DIFFERENT, TIMEOUT, Verdict

TURNS = ["a", "b", "c", "d", "e"]


def guarded(function, name="mine"):
    return GuardedReward(function, name)


def raising_on(*turns, error=KeyError):
    def function(completions):
        for turn in completions:
            if turn in turns:
                raise error(turn)
        return [1.0] * len(completions)

    return function


def test_good_scores_pass_as_they_are_and_nothing_is_said(caplog):
    function = guarded(lambda completions: [1, None, 0.5, True, -2.0])
    assert function(completions=TURNS) == [1.0, None, 0.5, 1.0, -2.0]
    assert function.failures == 0 and not caplog.records
    assert function.__name__ == "mine"


def test_a_row_for_which_the_function_raises_scores_none_and_the_others_keep_their_scores(caplog):
    function = guarded(raising_on("b", "d"))
    assert function(completions=TURNS) == [1.0, None, 1.0, None, 1.0]
    assert function.failures == 2
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("reward mine raised KeyError: 'b' (test_guard.py, line ")
    assert first.endswith(" for row 2 ('b'): it scores None (such rows so far: 1)")
    assert "for row 4 ('d')" in second


def test_a_value_that_is_no_score_costs_its_row_alone(caplog):
    function = guarded(lambda completions: [1.0, "yes", math.nan, [1.0], math.inf])
    assert function(completions=TURNS) == [1.0, None, None, None, None]
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == "reward mine returned 'yes' (a str), not a number for row 2 ('b'): it scores None " \
                      "(such rows so far: 1)"  # fmt: skip
    assert "returned nan for row 3" in said[1] and "returned [1.0] (a list)" in said[2]


@pytest.mark.parametrize("result", [None, 1.0, "11111", {}, [1.0] * 4, [1.0] * 6])
def test_a_result_that_is_no_list_of_the_batch_costs_all_rows_and_is_told_once(result, caplog):
    function = guarded(lambda completions: result)
    assert function(completions=TURNS) == [None] * 5
    assert function.failures == 5
    [record] = caplog.records
    assert record.getMessage().startswith("reward mine returned ")
    assert record.getMessage().endswith(": all of them score None")


def test_a_fault_of_the_batch_that_no_row_alone_has_costs_no_row_and_is_told(caplog):
    calls = []

    def four_at_most(completions):
        calls.append(len(completions))
        if len(completions) > 3:
            raise IndexError("list index out of range")
        return [1.0] * len(completions)

    function = guarded(four_at_most)
    assert function(completions=TURNS) == [1.0] * 5 and calls == [5, 1, 1, 1, 1, 1]
    assert function.failures == 0
    assert "raised IndexError: list index out of range" in caplog.text and "no row is lost" in caplog.text


class Unspeakable(Exception):
    """An exception that cannot even be shown."""

    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize("error", [SystemExit, RecursionError, MemoryError, asyncio.CancelledError, StopIteration])
def test_whatever_is_raised_is_caught(error):
    assert guarded(raising_on("c", error=error))(completions=TURNS) == [1.0, 1.0, None, 1.0, 1.0]


def test_an_error_that_cannot_be_shown_is_still_told(caplog):
    guarded(raising_on("c", error=Unspeakable))(completions=TURNS)
    assert "raised Unspeakable: an error that cannot say what it is" in caplog.text


def test_an_interruption_of_the_user_is_not_caught():
    with pytest.raises(KeyboardInterrupt):
        guarded(raising_on("c", error=KeyboardInterrupt))(completions=TURNS)


def test_a_function_of_the_library_that_is_used_wrongly_stops_the_run():
    with pytest.raises(UserError, match="no range"):
        guarded(raising_on("a", error=lambda turn: UserError("no range")))(completions=TURNS)


def test_an_object_that_cannot_be_looked_at_costs_its_row():
    class Closed:
        @property
        def ndim(self):
            raise ValueError("closed")

    function = guarded(lambda completions: [1.0, Closed(), 1.0, 1.0, 1.0])
    assert function(completions=TURNS) == [1.0, None, 1.0, 1.0, 1.0]


def test_a_generator_that_raises_on_the_way_costs_the_row():
    def scores(completions):
        for turn in completions:
            yield {"a": 1.0, "b": 2.0, "d": 3.0, "e": 4.0}[turn]

    assert guarded(scores)(completions=TURNS) == [1.0, 2.0, None, 3.0, 4.0]


async def length(completions):
    await asyncio.sleep(0)
    return [len(turn) for turn in completions]


class Judge:
    async def __call__(self, completions):
        return await length(completions)

    def method(self, completions):
        return length(completions)


@pytest.mark.parametrize("function", [length, Judge(), Judge().method, functools.partial(length)])
def test_asynchronous_functions_are_awaited(function):
    assert guarded(function)(completions=["a", "bb"]) == [1.0, 2.0]


def test_asynchronous_functions_are_awaited_inside_a_running_loop_too():
    async def notebook():
        return guarded(length)(completions=["a", "bb"])

    assert asyncio.run(notebook()) == [1.0, 2.0]


def test_what_a_function_does_to_its_columns_reaches_neither_the_caller_nor_its_next_call():
    def careless(completions, solution, completion_ids):
        for turn in completions:
            turn[0]["content"] = "gone"
        completion_ids[0].clear()
        completions.clear()
        solution.pop()
        return [1.0, 1.0]

    columns = {
        "completions": [[{"role": "assistant", "content": text}] for text in ("one", "two")],
        "solution": ["1", "2"],
        "completion_ids": [[1], [2]],
    }
    assert guarded(careless)(**columns) == [1.0, 1.0]
    assert columns == {
        "completions": [[{"role": "assistant", "content": "one"}], [{"role": "assistant", "content": "two"}]],
        "solution": ["1", "2"],
        "completion_ids": [[1], [2]],
    }


def test_single_rows_get_their_cells_and_what_belongs_to_the_whole_batch():
    seen = []

    def picky(completions, solution, trainer_state, environments):
        if len(completions) > 1:
            raise ValueError
        seen.append((completions, solution, trainer_state, environments))
        return [1.0]

    columns = {"solution": ["1", "2"], "trainer_state": "state", "environments": ["x", "y"]}
    guarded(picky)(completions=["a", "b"], **columns)
    assert seen[:2] == [(["a"], ["1"], "state", ["x", "y"]), (["b"], ["2"], "state", ["x", "y"])]


def test_the_first_three_mistakes_are_told_then_every_tenth_then_every_hundredth(caplog):
    function = guarded(lambda completions: ["no"] * len(completions))
    function(completions=["a"] * 250)
    told = [int(record.getMessage().rpartition(": ")[2].rstrip(")")) for record in caplog.records]
    assert told == [1, 2, 3, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 200]
    assert function.failures == 250


def test_failures_of_a_batch_are_logged_as_a_metric_where_there_are_any():
    logged = []
    function = guarded(lambda completions, log_metric: [1.0, "no"] if "b" in completions else [1.0, 1.0])
    for turns in (["a", "b"], ["a", "c"]):
        function(completions=turns, log_metric=lambda name, value: logged.append((name, value)))
    assert logged == [("rewards/mine/failures", 1.0)]


@reward()
def shouts(completions, **columns):
    return [Score(1.0, "upper case") if turn.isupper() else Score(None, "no letters") for turn in completions]


def test_scores_have_the_reasons_of_the_function_and_mistakes_theirs_and_nothing_is_counted_or_told(caplog):
    assert guarded(shouts.explain).explain(completions=["A", "1"]) == [
        Score(1.0, "upper case"),
        Score(None, "no letters"),
    ]
    function = guarded(raising_on("b", error=ValueError))
    kept, failed = function.explain(completions=["a", "b"])
    assert kept == Score(1.0, "")
    assert isinstance(failed, Mistake) and failed.value is None
    assert failed.reason.startswith("raised ValueError: b (test_guard.py, line ")
    [one, other] = guarded(lambda completions: "no").explain(completions=["a", "b"])
    assert one == other == Mistake(None, "returned 'no' (a str), not a list", of_the_batch=True)
    assert function.failures == 0 and not caplog.records


def logged_by(function, **columns):
    """Figures and columns that a call hands to a trainer."""
    figures, said = {}, {}
    function(log_metric=figures.__setitem__, log_extra=said.__setitem__, **columns)
    return figures, said


def test_reasons_are_handed_on_with_every_batch_those_of_mistakes_too():
    @reward()
    def shouts(completions, **_):
        return [Score(1.0, "loud") if turn.isupper() else Score(0.0, "quiet") for turn in completions]

    function = guarded(Bound(shouts, {}, is_library=False))
    assert logged_by(function, completions=["A", "b"]) == ({}, {"reason/mine": ["loud", "quiet"]})
    figures, said = logged_by(guarded(lambda completions, **_: [1.0, "x"]), completions=["A", "b"])
    assert figures == {"rewards/mine/failures": 1.0}
    assert said == {"reason/mine": ["", "returned 'x' (a str), not a number"]}


def test_comparisons_that_ran_into_their_deadline_are_counted_apart_from_wrong_answers(monkeypatch):
    judged = {"quick": Verdict(False, DIFFERENT, "1", "2"), "slow": Verdict(False, TIMEOUT)}
    module = importlib.import_module("rlvr_vocab.rewards.library.accuracy")
    monkeypatch.setattr(module, "verify", lambda golds, answers, deadline: [judged[answer] for answer in answers])
    function = guarded(Bound(module.accuracy, {}, is_library=True))
    turns = [rf"\boxed{{{word}}}" for word in ("slow", "quick", "slow")]
    figures, said = logged_by(function, completions=turns, solution=["1"] * 3)
    assert figures == {"rewards/mine/timeouts": 2.0}
    assert said == {"reason/mine": ["timeout", "different: 2 is not 1", "timeout"]}
    assert logged_by(function, completions=turns[1:2], solution=["1"])[0] == {}


def test_rows_that_a_deadline_of_the_function_cost_are_timeouts_and_failures():
    def hangs(completions, **_):
        time.sleep(1)
        return [1.0] * len(completions)

    figures, _ = logged_by(GuardedReward(hangs, "mine", deadline=0.05), completions=TURNS)
    assert figures == {"rewards/mine/failures": 5.0, "rewards/mine/timeouts": 5.0}
