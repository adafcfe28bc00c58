"""Rewards of the whole turn, the thinking included, each with a twin that reads the answer alone.

rlvr-vocab train experiment=quickstart "rewards=[accuracy,{name: examples/read_by_rewards.py:brief, weight: 0.5}]"
… "rewards=[accuracy,{name: examples/read_by_rewards.py:brief, weight: 0.5, params: {answer_only: true}}]"
"""

from rlvr_vocab.rewards.reward import after_thinking, turn_text


def _scores(completions, answer_only, score):
    """0 for an answer that thinking which never closed leaves out: its brevity would pay for thinking on."""
    turns = map(turn_text, completions)
    texts = [after_thinking(turn) if answer_only else turn for turn in turns]
    return [0.0 if text is None else score(text) for text in texts]


def brief(completions, answer_only=False):
    """1 for no text, 0 from 80 characters on."""
    return _scores(completions, answer_only, lambda text: max(0.0, 1 - len(text) / 80))


def equations(completions, answer_only=False):
    """The number of equations, as a part of four."""
    return _scores(completions, answer_only, lambda text: min(1.0, text.count("=") / 4))


def carry(completions, answer_only=False):
    """1 where a carry is written, as in `3+1+1=5`."""
    return _scores(completions, answer_only, lambda text: float("+1=" in text))
