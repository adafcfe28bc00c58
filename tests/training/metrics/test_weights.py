"""The share of trained values that an update changes, beside a count of all of them."""

from collections import defaultdict

import torch
from torch import nn

from rlvr_vocab.training.metrics.weights import UpdatedShare, every_nth_value, sampled_parameters


def test_an_update_below_the_precision_of_the_type_moves_nothing():
    for dtype, share in ((torch.float32, 1.0), (torch.bfloat16, 0.0)):
        parameter, metrics = nn.Parameter(torch.ones(50, dtype=dtype)), defaultdict(list)
        callback = UpdatedShare(metrics)
        callback._parameters = [parameter]
        callback.on_step_begin(None, None, None)
        parameter.data.add_(1e-5)
        callback.on_step_end(None, None, None)
        assert metrics == {"weights/moved": [share]}


def test_the_sample_is_every_nth_of_all_values_across_tensors():
    parts = [torch.arange(start, end, dtype=torch.float64) for start, end in ((0, 10), (10, 11), (11, 40))]
    found = torch.cat([part.view(torch.float64) for part in every_nth_value(parts, 6)])
    assert found.tolist() == list(range(0, 40, 7))
    assert [len(part) for part in every_nth_value([torch.zeros(0), torch.zeros(5)], 6)] == [0, 5]


def test_embedding_and_head_are_left_out_where_anything_else_trains():
    tables, layers, frozen = ([nn.Parameter(torch.zeros(size))] for size in (1, 2, 3))
    of_tables = {(True, "embedding and head"): tables, (False, "layers"): frozen}
    assert sampled_parameters({**of_tables, (True, "layers"): layers}) == layers
    assert sampled_parameters(of_tables) == tables
