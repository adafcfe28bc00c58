"""Rewards of a batch: weights that follow success, also after a resume, and a batch without any."""

import math

import pytest
import torch

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.adaptive import Adaptation, AdaptiveWeight
from rlvr_vocab.training.metrics.batch import require_scores


@pytest.mark.parametrize("nothing", [math.nan, math.inf, -math.inf])
def test_a_batch_without_a_finite_reward_stops_the_run(nothing):
    reasons = {"reason/a": ["", "raised KeyError: 'x' (mine.py, line 12)"]}
    with pytest.raises(UserError) as caught:
        require_scores(torch.full((2, 2), nothing), ["a", "b"], 7, reasons)
    assert str(caught.value) == (
        "step 8: none of 2 completions has a reward: a raised KeyError: 'x' (mine.py, line 12); "
        "b gave only None, NaN or infinite ones"
    )
    with pytest.raises(UserError, match="b is infinite for row 2 of 2"):
        require_scores(torch.tensor([[0.0, 1.0], [1.0, math.inf]]), ["a", "b"], 0, {})


def test_a_weight_follows_the_successes_of_scored_completions_and_goes_on_after_a_resume(
    make_trainer, expand_shape, tmp_path
):
    def train(resume=None):
        weights = {
            "accuracy": AdaptiveWeight(1.0, full_mark=2.0, adaptation=Adaptation(window=2)),  # nobody reaches it
            "spread": AdaptiveWeight(1.0, full_mark=0.0, adaptation=Adaptation(window=1)),  # all that it scores do
        }
        trainer = make_trainer(
            expand_shape("qwen3"), tmp_path, adaptive_weights=weights, max_steps=5, save_strategy="steps", save_steps=1
        )
        trainer.train(resume_from_checkpoint=resume)
        rows = [row for row in trainer.state.log_history if "reward" in row]
        assert trainer.reward_weights.tolist() == pytest.approx([1.44, 0.9**5])
        for row in rows:  # accuracy is 1 for half of the completions, spread applies to three quarters of them
            of_accuracy, of_spread = (row[f"rewards/{name}/weight"] for name in ("accuracy", "spread"))
            total = 0.5 * of_accuracy + 0.75 * of_spread * row["rewards/spread/mean"]
            assert row["reward"] == pytest.approx(total, abs=1e-5)
        return [row["rewards/accuracy/weight"] for row in rows], [row["rewards/spread/weight"] for row in rows]

    of_accuracy, of_spread = train()
    assert of_accuracy == pytest.approx([1.0, 1.0, 1.2, 1.2, 1.44])
    assert of_spread == pytest.approx([0.9**step for step in range(5)])
    assert train(str(tmp_path / "checkpoint-3")) == (of_accuracy, of_spread)  # in the middle of a window
