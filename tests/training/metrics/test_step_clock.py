"""Where the seconds of a step go: each to one phase, all of them to the step."""

import mmap
import sys
from types import SimpleNamespace

import pytest
import torch
from transformers import TrainerCallback
from trl import GRPOTrainer

from rlvr_vocab.record.metrics import PHASES
from rlvr_vocab.training.metrics import step_clock

linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells the peak of resident memory")
# Seconds that each call of something takes, on a clock that nothing else moves.
GENERATION, REWARDS, LOGPROBS, FORWARD, BACKWARD, OPTIMIZER, OTHER = 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0
# Two batches a step, two steps for what is generated once: old and reference log-probabilities are needed.
TWICE = {"gradient_accumulation_steps": 2, "num_iterations": 2, "beta": 0.1, "max_steps": 3}


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(step_clock, "time", SimpleNamespace(perf_counter=lambda: now.seconds))
    return now


class SlowUpdate(TrainerCallback):
    def __init__(self, clock):
        self._clock = clock

    def on_optimizer_step(self, *args, **kwargs):
        self._clock.seconds += OPTIMIZER

    def on_log(self, *args, **kwargs):
        self._clock.seconds += 1000  # no part of a step


def taking(clock, seconds, function):
    def slow(*args, **kwargs):
        clock.seconds += seconds() if callable(seconds) else seconds
        return function(*args, **kwargs)

    return slow


def test_each_second_counts_to_the_phase_that_it_is_spent_in(clock, expand_shape, make_trainer, tmp_path, monkeypatch):
    for name, seconds in {
        "_generate_single_turn": GENERATION,
        "_calculate_rewards": REWARDS,
        "_get_per_token_logps_and_entropies": lambda: FORWARD if torch.is_grad_enabled() else LOGPROBS,
        "_generate_and_score_completions": OTHER,
    }.items():
        monkeypatch.setattr(GRPOTrainer, name, taking(clock, seconds, getattr(GRPOTrainer, name)))
    trainer = make_trainer(expand_shape("qwen3", size=None), tmp_path, callbacks=[SlowUpdate(clock)], **TWICE)
    trainer.accelerator.backward = taking(clock, BACKWARD, trainer.accelerator.backward)
    trainer.train()
    rows = trainer.state.log_history[:3]
    updating = {"time/forward": 2 * FORWARD, "time/backward": 2 * BACKWARD, "time/optimizer": OPTIMIZER}
    drawing = {
        "time/generation": GENERATION,
        "time/rewards": REWARDS,
        "time/logprobs": 2 * LOGPROBS,
        "time/other": OTHER,
    }
    for row, expected in zip(
        rows, ({**updating, **drawing}, {**updating, **dict.fromkeys(drawing, 0)}) * 2, strict=False
    ):
        assert {name: row[name] for name in PHASES if name in row} == expected
        assert row["step_time"] == sum(expected.values())
    tokens = [8 * rows[drawn_at]["completions/mean_length"] for drawn_at in (0, 0, 2)]
    trained = [row["time/trained_tokens_per_second"] * sum(updating.values()) for row in rows]
    assert trained == pytest.approx(tokens)
    sampled = [row.get("time/sampled_tokens_per_second") for row in rows]
    assert sampled == [tokens[0] / GENERATION, None, tokens[2] / GENERATION]


def allocating(mebibytes, function):
    """The function, which holds so much memory beside what it does; each call the next of the numbers."""
    # Mapped by itself: malloc may have as much left from before.
    left, touched = iter(mebibytes), b"1" * 2**20

    def large(*args, **kwargs):
        size = next(left) * 2**20
        with mmap.mmap(-1, size) as held:
            for _ in range(size // 2**20):
                held.write(touched)
            return function(*args, **kwargs)

    return large


@linux
def test_a_row_has_the_highest_memory_of_its_batches_and_steps(expand_shape, make_trainer, tmp_path, monkeypatch):
    monkeypatch.setattr(
        GRPOTrainer, "_calculate_rewards", allocating([128, 512, 64, 64], GRPOTrainer._calculate_rewards)
    )
    trainer = make_trainer(
        expand_shape("qwen3", size=None),
        tmp_path,
        max_steps=4,
        logging_steps=2,
        gradient_accumulation_steps=1,
        kl_log_steps=0,
    )
    trainer.accelerator.backward = allocating([64, 64, 64, 256], trainer.accelerator.backward)
    trainer.train()
    first, second = trainer.state.log_history[:2]
    assert {name for name in first if name.startswith("memory/")} == {
        f"memory/{phase}" for phase in ("generation", "rewards", "forward", "backward", "optimizer", "other")
    }
    of_rewards, of_backward = (
        [row[f"memory/{phase}"] - row["memory/optimizer"] for row in (first, second)]
        for phase in ("rewards", "backward")
    )
    assert of_rewards == pytest.approx([0.5, 0.0625], abs=0.02)
    assert of_backward == pytest.approx([0.0625, 0.25], abs=0.02)
