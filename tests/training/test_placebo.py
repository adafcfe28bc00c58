"""The control in which another id of each text is reinforced than was sampled."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from rlvr_vocab.errors import UserError
from rlvr_vocab.training.refuse_control import refuse_beside_placebo
from rlvr_vocab.vocab.head import attach_region_head
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import THINKING, scored_regions

ROWS = 2048
USUAL = {
    **dict.fromkeys(("num_iterations", "gradient_accumulation_steps", "steps_per_generation"), 1),
    "beta": 0.0,
    "off_policy_mask_threshold": None,
    "use_vllm": False,
}


def moved(folder):
    """A model whose copies are not their sources, in evaluation mode."""
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        weight = model.get_output_embeddings().weight
        weight += 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
    return model


@pytest.fixture
def placebo(expand_shape):
    """Two copies for some tokens, one for others, none for the rest; the same sequence in many rows."""
    folder = expand_shape("qwen3", source_ids=(*range(10, 200), *range(10, 100)))
    model, policy = moved(folder), RegionPolicy(VocabLayout.load(folder))
    attach_region_head(model, policy=policy, placebo=True)
    layout = policy.layout
    sequence = [70, layout.think_open_id, 20, layout.standard_size + 5, 150, 300, layout.think_close_id, 20, 30]
    return model, policy, torch.tensor([sequence]).repeat(ROWS, 1)


def test_another_choice_is_scored_as_often_as_the_model_would_make_it(placebo):
    model, policy, ids = placebo
    torch.manual_seed(0)
    scores = model(input_ids=ids, labels=ids, fused_lm_head=True)
    regions = scored_regions(ids[:1], policy.layout)
    logits = model(input_ids=ids[:1]).logits[:, :-1].double() + policy.bias.double()[regions[:, 1:]]
    p = logits.softmax(-1)[0]
    for place in range(ids.size(1) - 1):
        open_ids, exists = policy.ids_of_texts(policy.surface_ids(ids[:1, place + 1]).unsqueeze(1))
        of_ids = p[place, open_ids[0]] * exists[0]
        of_text = of_ids.sum()
        # The text's probability is that of the sequence, whichever of its ids is scored.
        text_logps = (scores.log_probs - scores.copy_log_probs)[:, place]
        assert (text_logps - of_text.log()).abs().max() < 1e-4
        found = scores.log_probs[:, place].double().exp()
        for probability in of_ids[of_ids > 0]:
            share = ((found - probability).abs() < 1e-3 * probability).double().mean()
            expected = probability / of_text
            error = (expected * (1 - expected) / ROWS).sqrt()
            assert abs(share - expected) <= 5 * error + 1e-9
    assert regions[0].tolist().count(THINKING) == 5


def test_passes_without_gradients_and_the_sampled_scores_are_those_of_the_ids_themselves(placebo):
    model, _, ids = placebo
    scores = model(input_ids=ids[:4], labels=ids[:4], fused_lm_head=True)
    with torch.no_grad():
        own = model(input_ids=ids[:4], labels=ids[:4], fused_lm_head=True)
    assert torch.equal(own.log_probs, scores.sampled_log_probs) and torch.equal(own.log_probs, own.sampled_log_probs)
    assert scores.log_probs.requires_grad and not scores.sampled_log_probs.requires_grad


def test_a_run_trains_and_its_sampling_gap_is_that_of_the_sampled_ids(expand_shape, make_trainer, tmp_path):
    folder = expand_shape("qwen3", size=None, init_noise=0.5, open_thinking="prefill")
    histories = {}
    for placebo in (False, True):
        trainer = make_trainer(folder, tmp_path / str(placebo), placebo=placebo, max_steps=1)
        trainer.train()
        [histories[placebo]] = [row for row in trainer.state.log_history if "loss" in row]
    assert histories[True]["sampling/logp_gap"] < 1e-4
    assert histories[True]["reward"] == histories[False]["reward"]  # the same completions
    assert histories[True]["grad_norm"] != histories[False]["grad_norm"] > 0


def test_a_batch_of_which_nothing_is_scored_is_none_to_redraw_from(placebo):
    model, _, ids = placebo
    scores = model(input_ids=ids[:2], labels=torch.full_like(ids[:2], -100), fused_lm_head=True)
    assert scores.log_probs.eq(0).all() and scores.sampled_log_probs.eq(0).all()


def test_before_training_both_kls_to_the_initial_model_are_nothing(expand_shape, make_trainer, tmp_path):
    folder = expand_shape("qwen3", size=None, init_noise=0.5, open_thinking="prefill")
    trainer = make_trainer(folder, tmp_path, placebo=True, beta=0.3, max_steps=1)
    trainer.train()
    [row] = [row for row in trainer.state.log_history if "loss" in row]
    assert abs(row["kl"]) < 1e-6 and abs(row["kl/ids"]) < 1e-6


def test_without_copies_it_changes_nothing(expand_shape, make_trainer, tmp_path):
    folder = expand_shape("qwen3", size=0)
    norms = []
    for placebo in (False, True):
        trainer = make_trainer(folder, tmp_path / str(placebo), placebo=placebo, max_steps=1)
        trainer.train()
        norms.append([row["grad_norm"] for row in trainer.state.log_history if "loss" in row])
    assert norms[0] == norms[1]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"beta": 0.1}, "beta=0.1 with training.kl_over=ids"),
        ({"num_iterations": 2}, "num_iterations=2"),
        ({"gradient_accumulation_steps": 2, "steps_per_generation": 4}, "steps_per_generation=4"),
        ({"off_policy_mask_threshold": 0.5}, "off_policy_mask_threshold=0.5"),
        ({"use_vllm": True}, "use_vllm=true"),
    ],
)
def test_what_would_compare_the_scored_id_with_the_sampled_one_is_refused(fields, named):
    with pytest.raises(UserError, match=named):
        refuse_beside_placebo({**USUAL, **fields}, "ids")
    refuse_beside_placebo({**USUAL, "beta": 0.1, "gradient_accumulation_steps": 4, "steps_per_generation": 4}, "text")
