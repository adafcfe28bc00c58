"""One value a step, whatever number of batches it is computed in."""

from collections import defaultdict

import torch

from rlvr_vocab.training.metrics.batch import StepMeans


def test_batches_of_a_step_are_one_mean_over_their_tokens_and_steps_are_apart():
    means, metrics = StepMeans(), defaultdict(list)
    for step, total, tokens in ((0, 6.0, 2), (0, 2.0, 6), (1, 5.0, 1), (1, 0.0, 0), (2, 0.0, 0), (3, 8.0, 2)):
        means.log("gap", torch.tensor([total, tokens]), step, metrics)
    assert metrics == {"gap": [1.0, 5.0, 4.0]}


def test_a_row_that_was_logged_is_not_gone_on_with():
    means, metrics = StepMeans(), defaultdict(list)
    means.log("gap", torch.tensor([6.0, 2]), 0, metrics)
    metrics.clear()
    means.log("gap", torch.tensor([1.0, 2]), 0, metrics)
    assert metrics == {"gap": [0.5]}
