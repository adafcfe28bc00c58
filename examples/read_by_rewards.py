"""Rewards of the whole turn, the thinking included, each with a twin that reads the answer alone.

rlvr-vocab train experiment=quickstart "rewards=[accuracy,{name: examples/read_by_rewards.py:brief, weight: 0.5}]"
… "rewards=[accuracy,{name: examples/read_by_rewards.py:brief, weight: 0.5, params: {answer_only: true}}]"
"""

from rlvr_vocab.rewards.reward import after_thinking, turn_text


def _texts(completions, answer_only):
    turns = map(turn_text, completions)
    return [after_thinking(turn) or "" for turn in turns] if answer_only else list(turns)


def brief(completions, answer_only=False):
    """1 for no text, 0 from 80 characters on."""
    return [max(0.0, 1 - len(text) / 80) for text in _texts(completions, answer_only)]


def equations(completions, answer_only=False):
    """The number of equations, as a part of four."""
    return [min(1.0, text.count("=") / 4) for text in _texts(completions, answer_only)]


def carry(completions, answer_only=False):
    """1 where a carry is written, as in `3+1+1=5`."""
    return [float("+1=" in text) for text in _texts(completions, answer_only)]
