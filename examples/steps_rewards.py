"""A reward that pays for equations wherever they stand, also in the thinking; and its twin, which reads the answer.

rlvr-vocab train experiment=quickstart "rewards=[accuracy,{name: examples/steps_rewards.py:shows_steps, weight: 0.5}]"
"""

from rlvr_vocab.rewards.reward import after_thinking, turn_text

_ENOUGH = 4


def shows_steps(completions, **columns):
    """The number of equations in the turn, as a part of four."""
    return [min(1.0, turn_text(completion).count("=") / _ENOUGH) for completion in completions]


def shows_steps_in_answer(completions, **columns):
    """The same of the answer."""
    answers = (after_thinking(turn_text(completion)) or "" for completion in completions)
    return [min(1.0, answer.count("=") / _ENOUGH) for answer in answers]
