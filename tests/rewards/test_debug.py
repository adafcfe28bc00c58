"""What `debug` shows, and that nothing in a completion can play tricks on a terminal."""

import itertools

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.library import debug as debug_module
from rlvr_vocab.rewards.library.debug import debug


@pytest.fixture(autouse=True)
def _first_call(monkeypatch):
    monkeypatch.setattr(debug_module, "_calls", itertools.count())


def test_the_first_completions_are_shown_with_their_columns(capsys):
    columns = {"solution": ["7", "8"], "trainer_state": object(), "log_extra": print, "completion_ids": [[1, 2], [3]]}
    columns["tools"] = ["search"]  # not one per completion
    assert debug(["one", "two"], prompts=["3 + 4?", "4 + 4?"], **columns) == [1.0, 1.0]
    out, err = capsys.readouterr()
    assert out == ""
    assert err == ("debug 1 of 2\n  prompt: 3 + 4?\n  completion: one\n  solution: '7'\n  completion_ids: [1, 2]\n")


def test_samples_and_calls_are_chosen(capsys):
    shown = []
    for call in range(5):
        debug([f"{call}a", f"{call}b", f"{call}c"], samples=2, every=3)
        shown += [line.strip() for line in capsys.readouterr().err.splitlines() if "completion:" in line]
    assert shown == ["completion: 0a", "completion: 0b", "completion: 3a", "completion: 3b"]


def test_control_characters_and_directions_are_escaped(capsys):
    chat = [[{"role": "assistant", "content": "\x1b[2J\r\u202e\ud800é\x00\n"}]]
    debug(chat, prompts=[[{"role": "user", "content": "a\x1b"}]])
    err = capsys.readouterr().err
    assert r"completion: \x1b[2J\r\u202e\ud800é\x00\n" in err
    assert "\x1b" not in err and err.count("\n") == 3


@pytest.mark.parametrize("parameters", [{"samples": 0}, {"every": 0}, {"every": "10"}])
def test_what_would_show_nothing_is_refused(parameters):
    with pytest.raises(UserError, match=r"^debug: .* at least 1"):
        debug([], **parameters)
