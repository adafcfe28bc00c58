"""A reward that pays for a written carry wherever it stands, also in the thinking; its twin reads the answer alone.

rlvr-vocab train experiment=quickstart "rewards=[accuracy,{name: examples/carry_rewards.py:shows_carry, weight: 0.5}]"
"""

from rlvr_vocab.rewards.reward import after_thinking, turn_text


def shows_carry(completions, **columns):
    """1 where the turn adds a carry, as in `3+1+1=5`."""
    return [float("+1=" in turn_text(completion)) for completion in completions]


def shows_carry_in_answer(completions, **columns):
    """1 where the answer does."""
    return [float("+1=" in (after_thinking(turn_text(completion)) or "")) for completion in completions]
