"""Sampled and scored log-probabilities of the same tokens: how far apart a run logs them to be."""

import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

from rlvr_vocab.training.settings import Lora
from rlvr_vocab.training.trainer import RegionGRPOTrainer
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import scored_regions


class OtherPolicy(RegionGRPOTrainer):
    """Samples as if half of the tokens were less likely than it scores them."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.sampler.policy = RegionPolicy(self.policy.layout)
        self.sampler.policy.bias[:, : self.policy.layout.standard_size // 2] -= 2.0


def gaps_of(trainer):
    trainer.train()
    return [row.get("sampling/logp_gap") for row in trainer.state.log_history if "loss" in row]


@pytest.mark.parametrize(
    ("settings", "first_updates"),
    [
        ({"steps_per_generation": 2, "per_device_train_batch_size": 4, "temperature": 0.7}, [True, False, True]),
        ({"num_iterations": 2, "lora": Lora(lora_dropout=0.5)}, [True, False, True]),
        ({"gradient_accumulation_steps": 2, "steps_per_generation": 1}, [True, True, True]),
    ],
)
def test_a_healthy_run_has_next_to_none_and_is_compared_before_the_first_update_on_a_batch_alone(
    settings, first_updates, expand_shape, make_trainer, tmp_path
):
    folder = expand_shape("llama", size=None)
    gaps = gaps_of(make_trainer(folder, tmp_path, max_steps=3, learning_rate=0.1, **settings))
    assert [gap is not None for gap in gaps] == first_updates
    assert all(gap < 1e-4 for gap in gaps if gap is not None)


@pytest.mark.parametrize("lora", [None, Lora(lora_dropout=0.1)])
def test_a_sampler_with_another_policy_shows_with_the_distance_that_it_has(lora, expand_shape, make_trainer, tmp_path):
    folder = expand_shape("llama", size=None)
    gap, *_ = gaps_of(make_trainer(folder, tmp_path, trainer=OtherPolicy, lora=lora, max_steps=1))
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    policy = RegionPolicy(VocabLayout.load(folder))
    distances = []
    for row in pd.read_parquet(tmp_path / "completions" / "step_00001.parquet").to_dict("records"):
        ids = torch.tensor([[*row["prompt_ids"], *row["completion_ids"]]])
        with torch.no_grad():
            logits = model(input_ids=ids).logits[:, :-1].double()
        logp = (logits + policy.bias.double()[scored_regions(ids, policy.layout)[:, 1:]]).log_softmax(-1)
        scored = logp.gather(2, ids[:, 1:].unsqueeze(2))[0, len(row["prompt_ids"]) - 1 :, 0]
        distances.append((torch.tensor(row["sampling_logps"]).double() - scored).abs())
    assert gap == pytest.approx(torch.cat(distances).mean().item(), abs=1e-4)
    assert gap > 0.1
