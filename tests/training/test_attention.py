"""The same policy is sampled, scored and referred to under every attention that a CPU has."""

import pytest

from rlvr_vocab.training.settings import Lora


# flex_attention is refused without a GPU: no backward on a CPU, whose forward was off by 0.15 to 0.38 on one machine.
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("lora", [None, Lora()], ids=["whole", "adapter"])
def test_a_token_is_scored_as_it_was_sampled(
    attention, lora, expand_shape, make_trainer, farthest_from_its_score, tmp_path
):
    trainer = make_trainer(
        expand_shape("llama", size=None, open_thinking="prefill"),
        tmp_path,
        lora=lora,
        max_completion_length=24,
        kl_log_steps=1,
        model_init_kwargs={"dtype": "float32", "attn_implementation": attention},
    )
    assert trainer.model.config._attn_implementation == attention
    trainer.model.train()
    batch = trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader()))[:4])
    assert farthest_from_its_score(trainer, batch) < 1e-4
    assert abs(trainer._metrics["train"]["kl"][0]) < 1e-6  # to the reference read from disk, or the adapter's base


def test_the_reference_has_the_attention_of_the_policy(expand_shape, make_trainer, tmp_path):
    trainer = make_trainer(
        expand_shape("llama", size=None),
        tmp_path,
        beta=0.04,
        model_init_kwargs={"dtype": "float32", "attn_implementation": "flex_attention"},
    )
    assert trainer.ref_model.config._attn_implementation == "flex_attention"
    with trainer._reference_kl.reference() as read_from_disk:
        assert read_from_disk.config._attn_implementation == "flex_attention"
