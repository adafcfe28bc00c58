"""Sampling in two processes: each draws its own completions, under the policy that scores them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import scored_regions

KINDS = pytest.mark.parametrize("kind", ["ddp", "fsdp2"])


def seen_by_both(folder: Path) -> list[dict[str, Any]]:
    return [json.loads((folder / f"rank_{rank}.json").read_text()) for rank in (0, 1)]


@KINDS
def test_processes_draw_completions_of_their_own_under_the_policy_that_scores_them(trained, expand_shape, kind):
    first, second = both = seen_by_both(trained(kind, "sampled"))
    assert not [ids for ids in first["completion_ids"] if ids in second["completion_ids"]]
    layout = VocabLayout.load(expand_shape("qwen3", size=100))
    bias = RegionPolicy(layout).bias_on(torch.device("cpu"))
    for seen in both:
        assert len(seen["completion_ids"]) == 6  # two in each of three steps
        assert len(seen["farthest_from_its_score"]) == 3 and max(seen["farthest_from_its_score"]) < 1e-5
        for prompt, completion in zip(seen["prompt_ids"], seen["completion_ids"], strict=True):
            ids = torch.tensor([prompt + completion])
            regions = scored_regions(ids, layout)[0, len(prompt) :]
            assert torch.isfinite(bias[regions, ids[0, len(prompt) :]]).all()


@KINDS
def test_a_process_whose_completions_end_at_once_waits_for_the_other(trained, kind):
    first, second = seen_by_both(trained(kind, "one_ends_early"))
    assert {len(ids) for ids in first["completion_ids"]} == {1}
    assert max(len(ids) for ids in second["completion_ids"]) == 12
    assert max(second["farthest_from_its_score"]) < 1e-5


@KINDS
def test_log_probabilities_are_not_rounded_to_16_bits_under_mixed_precision(trained, kind):
    for seen in seen_by_both(trained(kind, "mixed_precision")):
        assert max(seen["rounded_to_16_bits"]) < 0.5
