"""Weights that follow success, in a trainer and across a checkpoint; a batch without rewards stops the run."""

import json
import math

import pytest
import torch

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.adaptive import Adaptation, AdaptiveWeight
from rlvr_vocab.training.reward_weights import REWARD_STATE, AdaptiveWeights, require_scores

NAN = math.nan


def adaptive(window=1, value=1.0):
    return AdaptiveWeight(value, full_mark=1.0, adaptation=Adaptation(window=window))


def test_adaptive_weights_alone_move_and_completions_without_a_score_do_not_count():
    weights = AdaptiveWeights({"a": adaptive()})
    weights.observe(torch.tensor([[0.0, 0.0], [0.0, 0.0]]), ["a", "b"])
    assert weights.values() == {"a": pytest.approx(1.2)}
    weights.observe(torch.tensor([[1.0], [NAN], [NAN], [NAN], [NAN]]), ["a"])
    assert weights.values() == {"a": pytest.approx(1.2 * 0.9)}  # one of one, not one of five


def test_a_restored_window_goes_on_where_it_was(tmp_path):
    unbroken, broken = AdaptiveWeights({"a": adaptive(window=3)}), AdaptiveWeights({"a": adaptive(window=3)})
    batches = [torch.tensor([[value]]) for value in (0.0, 0.0, 1.0, 0.0, 0.0, 0.0)]
    for batch in batches:
        unbroken.observe(batch, ["a"])
    for batch in batches[:4]:
        broken.observe(batch, ["a"])
    broken.save(tmp_path)
    resumed = AdaptiveWeights({"a": adaptive(window=3, value=7.0)})
    resumed.restore(tmp_path)
    for batch in batches[4:]:
        resumed.observe(batch, ["a"])
    assert resumed.values() == unbroken.values() == {"a": pytest.approx(1.2)}
    assert json.loads((tmp_path / REWARD_STATE).read_text())["a"]["rates"] == [0.0]


@pytest.mark.parametrize("nothing", [NAN, math.inf, -math.inf])
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


def test_a_trainer_raises_the_weight_of_what_is_rarely_right(make_trainer, expand_shape, tmp_path):
    weight = AdaptiveWeight(1.0, full_mark=2.0, adaptation=Adaptation(window=1))  # a full mark that nobody reaches
    trainer = make_trainer(expand_shape("qwen3"), tmp_path, adaptive_weights={"accuracy": weight}, max_steps=3)
    trainer.train()
    logged = [row["rewards/accuracy/weight"] for row in trainer.state.log_history if "reward" in row]
    assert logged == pytest.approx([1.0, 1.2, 1.44])
    assert trainer.reward_weights.tolist() == pytest.approx([1.728, 1.0])
    rewards = [row["reward"] for row in trainer.state.log_history if "reward" in row]
    spreads = [row["rewards/spread/mean"] for row in trainer.state.log_history if "reward" in row]
    # accuracy is 1 for half of the completions, spread applies to three quarters of them
    assert rewards == pytest.approx([0.5 * w + 0.75 * s for w, s in zip(logged, spreads, strict=True)], abs=1e-5)
