"""A reward function's mistakes cost rows, not runs: each is None, counted, and warned about; a dry run refuses them."""

import asyncio
import importlib
import math
import signal
import time
from collections import deque
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.guard import Reward, dry_run, score_of
from rlvr_vocab.rewards.reward import Score, reward
from rlvr_vocab.verify.verifier import DIFFERENT, TIMEOUT, Verdict

TURNS = ["a", "b", "c", "d", "e"]
LONG_ENOUGH = 60.0


def guarded(function, name="mine"):
    return Reward(function, name)


def raising_on(*turns, error=KeyError):
    def function(completions):
        for turn in completions:
            if turn in turns:
                raise error(turn)
        return [1.0] * len(completions)

    return function


def warnings(caplog):
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(
    ("value", "score"),
    [
        (Decimal("0.125"), 0.125),
        (np.int64(3), 3.0),
        (np.bool_(True), 1.0),
        (np.array(2.5), 2.5),
        (torch.tensor(0.5, dtype=torch.bfloat16, requires_grad=True), 0.5),
        (3e38, 3e38),
    ],
)
def test_finite_numbers_of_any_library_are_scores(value, score):
    assert score_of(value) == Score(score, "") and type(score_of(value).value) is float
    assert score_of(Score(value, "half")) == Score(score, "half")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (1 + 0j, "returned (1+0j) (a complex), not a number"),
        (np.array([1.0]), "returned array([1.]) (a ndarray), not a number"),
        (pd.NA, "returned <NA> (a NAType), not a number"),
        (Decimal("NaN"), "returned nan, which is no finite float32"),
        (torch.tensor(-math.inf), "returned -inf, which is no finite float32"),
        (3.5e38, "returned 3.5e+38, which is no finite float32"),
        (Score(math.nan, "half"), "returned nan, which is no finite float32"),
        ("x" * 10**6, f"returned '{'x' * 12}...{'x' * 13}' (a str), not a number"),
        (10**5000, "returned int, which raised OverflowError: int too large to convert to float"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_anything_else_is_a_mistake_with_the_value_and_its_type(value, why):
    assert score_of(value) == Score(None, why, failed="row")


@pytest.mark.parametrize(
    "result",
    [
        (1.0, 2.0),
        range(1, 3),
        deque([1.0, 2.0]),
        np.array([1.0, 2.0]),
        torch.tensor([1.0, 2.0], requires_grad=True),
        pd.Series([1.0, 2.0]),
    ],
    ids=lambda result: type(result).__name__,
)
def test_sequences_arrays_and_tensors_are_lists(result):
    assert guarded(lambda completions: result)(completions=["a", "b"]) == [1.0, 2.0]


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (None, "None, not a list"),
        ("11111", "'11111' (a str), not a list"),
        ({"a": 1.0}, "{'a': 1.0} (a dict), not a list"),
        (iter([1.0] * 5), None),
        (np.ones((1, 2)), "array([[1., 1.]]) (a ndarray) of shape (1, 2), not a list"),
        ([1.0], "1 value for 5 rows"),
        ([1.0] * 6, "6 values for 5 rows"),
    ],
)
def test_a_result_that_is_no_list_of_the_batch_costs_all_rows_with_one_warning(result, why, caplog):
    function = guarded(lambda completions: result)
    assert function(completions=TURNS) == [None] * 5 and function.failures == 5
    [line] = warnings(caplog)
    assert why is None or line == f"reward mine returned {why}: all of them score None"


def test_a_value_that_is_no_score_costs_its_row_alone(caplog):
    function = guarded(lambda completions: [1, "yes", math.nan, None, True])
    assert function(completions=TURNS) == [1.0, None, None, None, 1.0] and function.failures == 2
    first, second = warnings(caplog)
    assert first == (
        "reward mine returned 'yes' (a str), not a number for row 2 ('b'): it scores None (such rows so far: 1)"
    )
    assert "returned nan, which is no finite float32 for row 3" in second


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


@pytest.mark.parametrize("deadline", [None, LONG_ENOUGH])
@pytest.mark.parametrize("error", [KeyError, SystemExit, asyncio.CancelledError, StopIteration])
def test_a_row_that_raises_costs_itself_with_and_without_a_deadline(error, deadline, caplog):
    function = raising_on("c", error=error)
    assert Reward(function, "mine", deadline=deadline)(completions=TURNS) == [1.0, 1.0, None, 1.0, 1.0]
    [line] = warnings(caplog)
    where = f"(test_guard.py, line {function.__code__.co_firstlineno + 3})"
    assert line.startswith(f"reward mine raised {error.__name__}") and where in line
    assert line.endswith(" for row 3 ('c'): it scores None (such rows so far: 1)")


@pytest.mark.parametrize("deadline", [None, LONG_ENOUGH])
@pytest.mark.parametrize("error", [KeyboardInterrupt, UserError])
def test_an_interruption_and_wrong_use_are_raised_where_the_function_was_called(error, deadline):
    with pytest.raises(error, match="c"):
        Reward(raising_on("c", error=error), "mine", deadline=deadline)(completions=TURNS)


async def length(completions):
    await asyncio.sleep(0)
    return [len(turn) for turn in completions]


class Judge:
    async def __call__(self, completions):
        return await length(completions)


@pytest.mark.parametrize("deadline", [None, LONG_ENOUGH])
@pytest.mark.parametrize("function", [length, Judge()])
def test_asynchronous_functions_are_awaited_inside_a_running_loop_too(function, deadline):
    async def notebook():
        return Reward(function, "mine", deadline=deadline)(completions=["a", "bb"])

    assert Reward(function, "mine", deadline=deadline)(completions=["a", "bb"]) == [1.0, 2.0]
    assert asyncio.run(notebook()) == [1.0, 2.0]


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
    told = [int(line.rpartition(": ")[2].rstrip(")")) for line in warnings(caplog)]
    assert told == [1, 2, 3, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 200]
    assert function.failures == 250


def logged_by(function, **columns):
    """Figures and columns that a call hands to a trainer."""
    figures, said = {}, {}
    function(log_metric=figures.__setitem__, log_extra=said.__setitem__, **columns)
    return figures, said


def test_reasons_are_handed_on_with_every_batch_those_of_mistakes_too():
    @reward()
    def shouts(completions, **_):
        return [Score(1.0, "loud") if turn.isupper() else Score(0.0, "quiet") for turn in completions]

    function = guarded(shouts.explain)
    assert logged_by(function, completions=["A", "b"]) == ({}, {"reason/mine": ["loud", "quiet"]})
    figures, said = logged_by(guarded(lambda completions, **_: [1.0, "x"]), completions=["A", "b"])
    assert figures == {"rewards/mine/failures": 1.0}
    assert said == {"reason/mine": ["", "returned 'x' (a str), not a number"]}


def test_comparisons_that_ran_into_their_deadline_are_counted_apart_from_wrong_answers(monkeypatch):
    judged = {"quick": Verdict(False, DIFFERENT, "1", "2"), "slow": Verdict(False, TIMEOUT)}
    module = importlib.import_module("rlvr_vocab.rewards.library.answers")
    monkeypatch.setattr(module, "verify", lambda golds, answers, deadline: [judged[answer] for answer in answers])
    function = guarded(lambda completions, solution, **_: module.accuracy.explain(completions, solution))
    turns = [rf"\boxed{{{word}}}" for word in ("slow", "quick", "slow")]
    figures, said = logged_by(function, completions=turns, solution=["1"] * 3)
    assert figures == {"rewards/mine/timeouts": 2.0}
    assert said == {"reason/mine": ["timeout", "different: 2 is not 1", "timeout"]}


class Odd:
    def __repr__(self):
        return "\udcff"


def raises(completions, **columns):
    raise ValueError("half a pair: \ud800")


def explains(completions, **columns):
    return [Score(0.5, "\udfff and \0") for _ in completions]


def returns_odd(completions, **columns):
    return [Odd() for _ in completions]


def logs(completions, log_extra, **columns):
    log_extra("\ud800", ["\udfff"] * len(completions))
    return [0.0] * len(completions)


@pytest.mark.parametrize("function", [raises, explains, returns_odd, logs])
@pytest.mark.parametrize("deadline", [None, 5.0])
def test_what_a_function_says_or_logs_can_be_written_as_utf_8(function, deadline):
    logged = {}
    guarded = Reward(function, "mine", deadline=deadline)
    guarded(completions=["a", "b"], log_extra=lambda column, values: logged.update({column: values}))
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
        assert [prompt[0]["content"] for prompt in prompts] == ["1?", "2?", "3?"]
        assert [turn[0]["content"] for turn in completions] == ["\\boxed{1}", "\\boxed{2}", "\\boxed{3}"]
        assert solution == ["1", "2", "3"]
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
        (
            lambda solution, **columns: [1 / (int(answer) - 2) for answer in solution],
            "raised ZeroDivisionError: division by zero (test_guard.py",
        ),
        (
            lambda completions, **columns: [1.0, 1.0, "yes"],
            r"returned 'yes' (a str), not a number for row 3 ('\\boxed{3}') in its trial",
        ),
        (
            lambda completions, **columns: [1.0],
            "returned 1 value for 3 rows; it must return a list with a number or None per row",
        ),
    ],
)
def test_a_mistake_in_a_dry_run_is_refused_with_its_row(function, message):
    assert refusal(function).startswith(f"reward mine {message}")


def sleeps(completions, **columns):
    time.sleep(2)


def sets_an_alarm(completions, **columns):
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    return [1.0] * len(completions)


def test_a_dry_run_that_needs_more_time_or_the_main_thread_names_the_key():
    assert refusal(sleeps, deadline=0.1) == (
        "reward mine had not returned by its deadline of 0.1 seconds in its trial; "
        "a larger `deadline` beside its name gives it more time, null any time"
    )
    assert "`deadline: null` beside its name lets it run in the main thread" in refusal(sets_an_alarm, deadline=60.0)
    assert dry_run(Reward(sets_an_alarm, "mine"), ROWS, REPLIES)[0].value == 1.0
