"""What a signal does, by what is under way."""

import os
import signal
import threading

import pytest

from rlvr_vocab import errors as module
from rlvr_vocab.errors import STARTED_BY_MULTIRUN, STOP_SIGNALS, Interrupted, StopSignals, block_signals_in_children


@pytest.fixture
def signals():
    return StopSignals()


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_outside_of_a_step_it_ends_the_run_at_once(number, signals):
    before = signal.getsignal(number)
    with pytest.raises(Interrupted, match=f"by {number.name}"), signals.listening():
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) == before


def test_within_a_step_it_is_noted_and_hides_no_error(signals):
    def fails():
        signals.defer_signals = True
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.reason == "SIGTERM"
        raise ValueError("loss")

    with pytest.raises(ValueError, match="loss"), signals.listening():
        fails()
    with pytest.raises(Interrupted):
        signals.require_going_on()


def test_a_library_that_makes_another_error_of_it_does_not_hide_it(signals):
    def reads_a_file():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            raise AttributeError("'NoneType' object has no attribute 'x'")

    with pytest.raises(Interrupted, match=r"by SIGTERM \(AttributeError: 'NoneType'"), signals.listening():
        reads_a_file()


@pytest.mark.parametrize("launcher", [None, "TORCHELASTIC_RUN_ID", STARTED_BY_MULTIRUN])
def test_a_second_signal_ends_the_process_but_not_one_that_a_launcher_passes_on(launcher, signals, monkeypatch):
    codes = []
    monkeypatch.setattr(module.os, "_exit", codes.append)
    for variable in ("TORCHELASTIC_RUN_ID", STARTED_BY_MULTIRUN):
        monkeypatch.delenv(variable, raising=False)
    if launcher is not None:
        monkeypatch.setenv(launcher, "1")
    with signals.listening():
        signals.defer_signals = True
        os.kill(os.getpid(), signal.SIGTERM)
        if launcher is not None:
            os.kill(os.getpid(), signal.SIGINT)
            signals._first -= 60
        os.kill(os.getpid(), signal.SIGINT)
    assert codes == [128 + signal.SIGINT]


def test_a_forked_child_leaves_the_decision_to_its_parent(signals):
    with signals.listening():
        child = os.fork()
        if child == 0:
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            finally:
                os._exit(7 if signals.reason is None else 8)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_blocked_signal_arrives_when_the_block_ends(signals):
    reached = []

    def starts_a_child():
        with block_signals_in_children():
            signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
            reached.append(signals.reason)

    with pytest.raises(Interrupted, match="SIGUSR1"), signals.listening():
        starts_a_child()
    assert reached == [None]
