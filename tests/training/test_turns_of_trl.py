"""Tools and environments as TRL's own trainer has them, and over an interruption."""

from functools import wraps

import pytest
import torch

from rlvr_vocab.training.trainer import RegionGRPOTrainer
from tests.conftest import ask
from tests.training.conftest import PROBLEMS
from tests.training.test_algorithms import TWO_UPDATES, Plain, assert_same_training, four_sgd_steps


@wraps(ask)
async def ask_later(letter):
    return f"It was {ord(letter)}."


@wraps(ask)
def ask_unsteadily(letter):
    if ord(letter) % 2:
        raise KeyError(letter)
    return {letter: [ord(letter), None]}


class Counter:
    """Answers a letter with the number of calls of its episode, and rewards those."""

    def reset(self, solution, **row):
        self.calls = 0
        return f" Start with {solution}."

    def ask(self, letter: str) -> str:
        """Answers a letter.

        Args:
            letter: a letter.
        """
        self.calls += 1
        return f"{letter} is call {self.calls}."

    def get_reward(self):
        return float(self.calls)


class Other(Counter):
    """Has a tool that nobody calls, which its prompts show."""

    def reset(self, **row):
        self.calls = 10

    def wait(self) -> str:
        """Waits."""
        return "."


ROWS = [
    {"prompt": list(prompt), "solution": str(number), "environment": ["one", "other"][number % 2]}
    for number, prompt in enumerate(PROBLEMS * 3)
]
KINDS = {
    "a function": {"tools": [ask]},
    "a coroutine function": {"tools": [ask_later]},
    "a function that raises, or returns a mapping": {"tools": [ask_unsteadily]},
    "an environment": {"environment_factory": Counter},
    "two environments": {"environment_factory": {"one": Counter, "other": Other}},
}


BY_SPEED = [pytest.param(kind, marks=[] if kind == "a function" else pytest.mark.slow) for kind in KINDS]


@pytest.mark.parametrize("kind", BY_SPEED)
def test_without_reasoning_tokens_tools_train_as_in_plain_trl(kind, calling_shape, make_trainer, tmp_path):
    folder = calling_shape("phi", size=0, open_thinking="model")
    fields = {"optim": "sgd", "learning_rate": 2e-3, "max_steps": 4, "beta": 0.04, **TWO_UPDATES, **KINDS[kind]}
    fields |= {"rows": ROWS, "max_completion_length": 220, "max_tool_calling_iterations": 2}
    ours, plain = (
        (trainer := make_trainer(folder, tmp_path / each.__name__, trainer=each, **fields), four_sgd_steps(trainer))
        for each in (RegionGRPOTrainer, Plain)
    )
    (trainer, training), (their_trainer, their_training) = ours, plain
    assert_same_training(training, their_training, rel=0, abs=1e-7)
    assert list(trainer._logs["completion"]) == list(their_trainer._logs["completion"])


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 2])  # between two updates on the same completions, and before new ones
def test_a_run_in_an_environment_resumes_to_the_same_bits(step, calling_shape, make_trainer, tmp_path):
    folder = calling_shape("phi", size=None, open_thinking="model")

    def trained(checkpoint=None):
        every_step = {"save_strategy": "steps", "save_steps": 1, "num_iterations": 2, "max_steps": 5}
        lengths = {"max_completion_length": 220, "max_tool_calling_iterations": 2}
        trainer = make_trainer(folder, tmp_path, environment_factory=Counter, rows=ROWS, **every_step, **lengths)
        trainer.train(resume_from_checkpoint=checkpoint)
        return trainer

    whole = trained()
    resumed = trained(str(tmp_path / f"checkpoint-{step}"))
    weights = resumed.model.state_dict()
    assert all(torch.equal(weights[name], weight) for name, weight in whole.model.state_dict().items())
    assert any(row.get("tools/call_frequency") for row in resumed.state.log_history[step:])
