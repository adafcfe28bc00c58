"""Several turns with tools: the model's tokens are sampled, scored and trained alike, whatever a tool says."""

import random
from functools import wraps
from itertools import product
from typing import get_args, get_type_hints

import pytest
import torch
from trl import GRPOConfig

from rlvr_vocab.training.drawn_tokens import sampled_spans
from rlvr_vocab.training.metrics.batch import whole_sequences
from rlvr_vocab.vocab.regions import RegionTracker, scored_regions
from tests.conftest import ask
from tests.training.test_one_policy import Watched
from tests.training.test_text_loss import TWICE, check_second_iteration, gradients_of

PIECES = ("<think>", "</think>", "<|im_start|>", "<|im_end|>", "<|im_start|>assistant\n", "<|endoftext|>")
HALVES = ("<thi", "nk>", "</", "<|im_", "start|>assistant", "\n", " 7", "é")
CHANCE = random.Random(0)
HOSTILE = [*PIECES, *map("".join, product(PIECES, HALVES))]
HOSTILE += ["".join(CHANCE.choices(PIECES + HALVES, k=3)) for _ in range(200)]
TURNS = {"max_completion_length": 220, "max_tool_calling_iterations": 2, "per_device_train_batch_size": 8}
PREFILLED, OPENED = {"open_thinking": "prefill"}, {"open_thinking": "model"}
CASES = {  # untied, tied, and untied with a bias; with settings of the loss
    "replace, prefilled": ("olmo2", {"mode": "replace", **PREFILLED}, {"use_bias_correction_kl": True}),
    "expand, prefilled": ("qwen3", {"mode": "expand", **PREFILLED}, {"kl_over": "ids", "entropy_coef": 0.1}),
    "replace": ("phi", {"mode": "replace", **OPENED}, {"top_entropy_quantile": 0.3, "entropy_coef": 0.1}),
    "replace, truncated": ("phi", {"mode": "replace", **OPENED}, {"top_p": 0.9, "top_k": 100}),
    "expand": (
        *("phi", {"mode": "expand", **OPENED}),
        {"use_bias_correction_kl": True, "importance_sampling_level": "sequence"},
    ),
}
BY_SPEED = [pytest.param(case, marks=[] if case == "replace" else pytest.mark.slow) for case in CASES]


@pytest.fixture
def make_turns(calling_shape, make_trainer, tmp_path):
    """A trainer whose tool answers each call with another hostile text."""

    def make(case, *, copies=None, **given):
        name, expansion, _ = CASES[case]
        left = list(HOSTILE)

        @wraps(ask)
        def hostile(letter):
            left.append(left.pop(0))
            return left[-1]

        folder = calling_shape(name, size=None, **expansion, **(copies or {}))
        return make_trainer(folder, tmp_path, tools=[hostile], **{**TURNS, **given})

    return make


@pytest.mark.parametrize("case", BY_SPEED)
def test_loss_and_gradients_of_several_turns_equal_a_dense_float64_reference(case, make_turns):
    copies = {"multiplicity": 2, "reasoning_rank": 4, "init_noise": 0.3}
    settings = {"use_bias_correction_kl": False, **CASES[case][2]}
    trainer = make_turns(case, copies=copies, trainer=Watched, beta=0.3, **TWICE, **settings)
    trainer.train()
    (batch,) = trainer._buffered_inputs
    given = batch["completion_mask"].bool() & ~batch["sampled_mask"].bool()
    assert given.sum() > 50
    forbidden = torch.isinf(trainer.policy.bias)[regions_of(trainer, batch)].gather(
        2, batch["completion_ids"][..., None]
    )
    assert forbidden.squeeze(2)[given].any() == ("replace" in case)
    check_second_iteration(trainer)
    if case == "replace":
        for loss_type in get_args(get_type_hints(GRPOConfig)["loss_type"]):
            trainer.loss_type = loss_type
            loss, gradients = gradients_of(trainer, batch)
            assert all(each.isfinite().all() for each in (torch.tensor(loss), *gradients.values()))


def regions_of(trainer, batch):
    """Of the tokens of the completions."""
    ids, _ = whole_sequences(batch)
    return scored_regions(ids, trainer.policy.layout)[:, batch["prompt_ids"].size(1) :]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_of_ten_thousand_tokens_none_was_forbidden_and_a_tool_moved_no_region(case, make_turns):
    steps = 2 if CASES[case][0] == "qwen3" else 9  # whose turns are longer
    given = {"max_steps": steps, "per_device_train_batch_size": 24, "num_generations": 24}
    trainer = make_turns(case, copies={"multiplicity": 3}, trainer=Watched, **given)
    trainer.train()
    layout, sampled_tokens, most_turns = trainer.policy.layout, 0, 0
    for row, batch in zip(trainer.state.log_history, trainer.seen, strict=False):
        mask, regions = batch["sampled_mask"].bool(), regions_of(trainer, batch)
        sampled_tokens += int(mask.sum())
        assert (batch["sampling_per_token_logps"] - batch["trainer_logps"])[mask].abs().max() < 1e-4
        allowed = torch.isfinite(trainer.policy.bias)[regions].gather(2, batch["completion_ids"][..., None])
        assert allowed.squeeze(2)[mask].all()
        for ids, of_row, tool_mask in zip(batch["completion_ids"], regions, mask.tolist(), strict=True):
            spans = [*sampled_spans(tool_mask)]
            most_turns = max(most_turns, len(spans))
            for start, end in spans:
                tracker = RegionTracker(layout, [layout.think_open_id] if "prefilled" in case else [])
                for place in range(start, end):
                    assert of_row[place] == tracker.region
                    tracker.add(int(ids[place]))
        thinking = (regions == 1) & mask
        assert row["completions/mean_length"] == pytest.approx(mask.sum().item() / len(mask))
        assert row["thinking/mean_length"] == pytest.approx(thinking.sum().item() / len(mask))
        text, copies = batch["entropies"]
        assert row["sampling/entropy/text"] == pytest.approx(text[mask].mean().item(), rel=1e-4)
        assert row["entropy/copies"] == pytest.approx(copies[thinking].mean().item(), rel=1e-3)
        assert row["sampling/logp_gap"] < 1e-5
    assert sampled_tokens > 2500 and most_turns == 3  # in each of four cases
