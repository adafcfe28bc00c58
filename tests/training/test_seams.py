"""Advantages, losses and filters of a subclass act as its methods say, and are what is recorded."""

from pathlib import Path

import pandas as pd
import pytest
import torch
from trl import GRPOTrainer

import rlvr_vocab
from rlvr_vocab.cli import main
from rlvr_vocab.config.recorded import read_recorded
from rlvr_vocab.errors import UserError
from rlvr_vocab.training.trainer import RegionGRPOTrainer

TWO_GROUPS = {"per_device_train_batch_size": 8, "num_generations": 4}


class Doubled(RegionGRPOTrainer):
    def advantages(self, rewards_BR, advantages_B):
        self.given = rewards_BR, advantages_B
        return 2 * advantages_B.double()


class ClippedByHand(RegionGRPOTrainer):
    """The loss of PPO, written out."""

    def per_token_loss(self, logps_BC, old_logps_BC, batch):
        ratio_BC, advantages_B1 = (logps_BC - old_logps_BC).exp(), batch["advantages"].unsqueeze(1)
        clipped_BC = ratio_BC.clamp(1 - self.epsilon_low, 1 + self.epsilon_high)
        return -torch.minimum(ratio_BC * advantages_B1, clipped_BC * advantages_B1)


class SecondGroup(RegionGRPOTrainer):
    def keep_groups(self, rewards_NGR):
        return torch.arange(len(rewards_NGR)) % 2 == 1


def trained_by(trainer):
    """A trainer that has trained, and how far its weights have moved."""

    def weights():
        return torch.cat([weight.detach().flatten() for weight in trainer.model.parameters()])

    before = weights()
    trainer.train()
    return trainer, weights() - before


def completions(folder, step=1):
    return pd.read_parquet(Path(folder, "completions", f"step_{step:05d}.parquet"))


@pytest.mark.slow
def test_advantages_of_a_subclass_are_trained_on_and_recorded(expand_shape, make_trainer, tmp_path):
    folder = expand_shape("qwen3", size=None)

    def trained(kind):
        one_step = {"max_steps": 1, "max_grad_norm": 0.0, "optim": "sgd", "learning_rate": 0.1, **TWO_GROUPS}
        return trained_by(make_trainer(folder, tmp_path / kind.__name__, trainer=kind, **one_step))

    (plain, moved), (doubled, moved_twice) = trained(RegionGRPOTrainer), trained(Doubled)
    rewards_BR, trl_B = doubled.given
    rows = completions(doubled.args.output_dir)
    assert rewards_BR.shape == (8, 2) and rows["advantage"].tolist() == (2 * trl_B).tolist()
    assert completions(plain.args.output_dir)["advantage"].tolist() == trl_B.tolist()
    torch.testing.assert_close(moved_twice, 2 * moved, rtol=1e-3, atol=1e-6)
    assert moved.abs().max() > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [
        {"loss_type": "dapo", "beta": 0.1, "num_iterations": 2},
        {"loss_type": "grpo", "num_iterations": 2, "entropy_coef": 0.01},
    ],
    ids=str,
)
def test_a_loss_of_a_token_takes_the_place_of_trls(fields, expand_shape, make_trainer, tmp_path):
    folder = expand_shape("qwen3", size=None)

    def trained(kind):
        return trained_by(make_trainer(folder, tmp_path / kind.__name__, trainer=kind, **TWO_GROUPS, **fields))

    (plain, moved), (own, moved_by_own) = trained(RegionGRPOTrainer), trained(ClippedByHand)
    assert [row["loss"] for row in own.state.log_history[:2]] == pytest.approx(
        [row["loss"] for row in plain.state.log_history[:2]], abs=1e-6
    )
    torch.testing.assert_close(moved_by_own, moved, rtol=1e-3, atol=1e-6)
    assert moved.abs().max() > 1e-5
    assert not any(name.startswith("clip_ratio") for name in own.state.log_history[0])


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 2])
def test_groups_that_are_not_kept_have_no_advantage(rounds, expand_shape, make_trainer, tmp_path):
    trainer = make_trainer(
        expand_shape("qwen3", size=0), tmp_path, trainer=SecondGroup, max_rounds=rounds, max_steps=1, **TWO_GROUPS
    )
    trainer.train()
    [row, *_] = trainer.state.log_history
    advantages = completions(tmp_path)["advantage"].tolist()
    if rounds == 1:
        assert not any(advantages[:4]) and all(advantages[4:]) and row["groups/kept"] == 0.5
    else:  # one group of the first round, and one of the second
        assert all(advantages) and row["groups/kept"] == 1 and row["dynamic/rounds"] == 2


@pytest.mark.slow
def test_a_run_trains_with_the_trainer_that_it_names_also_after_a_resume(tmp_path):
    file, run = tmp_path / "mine.py", tmp_path / "run"
    file.write_text(
        "from rlvr_vocab import GRPOTrainer\n"
        "class Halved(GRPOTrainer):\n"
        "    def advantages(self, rewards_BR, advantages_B):\n"
        "        return advantages_B / 2\n"
        "def letters(completions, **columns):\n"
        "    return [float(len(turn[0]['content'])) for turn in completions]\n"
    )
    words = ["quickstart", f"output_dir={run}", f"training.trainer={file}:Halved", f"rewards=[{file}:letters]"]
    words += ["training.per_device_train_batch_size=8", "training.num_generations=8", "training.save_strategy=steps"]
    words += ["training.save_steps=1", "warmup.max_steps=0", "report=false", "dataset.max_eval_samples=8"]
    words += ["dataset.max_train_samples=32"]
    for steps in (1, 2):
        allowed = ["allow_changes=[training.max_steps]"] * (steps - 1)
        assert main([*words, f"training.max_steps={steps}", *allowed]) == 0
        rows = completions(run, steps)
        expected = (rows["reward"] - rows["reward"].mean()) / (rows["reward"].std() + 1e-4) / 2
        assert rows["advantage"].tolist() == pytest.approx(expected.tolist(), abs=1e-5) and expected.any()
    assert read_recorded(run)["training"]["trainer"] == f"{file}:Halved"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "value", "message"),
    [
        ("advantages", [0.0], r"Own.advantages returned list, not a tensor of \(8,\)"),
        ("advantages", torch.full((8,), torch.nan), "Own.advantages: not all are finite"),
        ("keep_groups", torch.ones(2, 1), r"Own.keep_groups returned \(2, 1\), not a tensor of \(2,\)"),
        ("keep_groups", torch.ones(2), "Own.keep_groups returned torch.float32, not torch.bool"),
        ("per_token_loss", torch.zeros(()), r"Own.per_token_loss returned \(\), not a tensor of \(8, \d+\)"),
        ("per_token_loss", lambda logps_BC, *given: logps_BC * torch.nan, "Own.per_token_loss: not all are finite"),
    ],
)
def test_a_result_of_another_form_is_named(method, value, message, expand_shape, make_trainer, tmp_path):
    own = {method: lambda self, *given: value(*given) if callable(value) else value}
    trainer_class = type("Own", (RegionGRPOTrainer,), own)
    trainer = make_trainer(expand_shape("qwen3", size=0), tmp_path, trainer=trainer_class, **TWO_GROUPS)
    with pytest.raises(UserError, match=message):
        trainer.train()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"loss_type": "cispo", "epsilon_high": 5.0}, "loss_type=cispo has none, set one of grpo"),
        ({"off_policy_mask_threshold": 0.5}, "which off_policy_mask_threshold is about: leave it out"),
    ],
)
def test_a_loss_of_a_token_is_refused_where_trls_ratio_counts(given, message, expand_shape, make_trainer, tmp_path):
    with pytest.raises(UserError, match=rf"ClippedByHand.per_token_loss .*{message}"):
        make_trainer(expand_shape("qwen3", size=0), tmp_path, trainer=ClippedByHand, **given)


def test_the_guides_names_are_the_same_classes():
    assert rlvr_vocab.GRPOTrainer is rlvr_vocab.RegionGRPOTrainer and issubclass(rlvr_vocab.GRPOTrainer, GRPOTrainer)
    with pytest.raises(UserError, match="tokenizer=…: the trainer takes it as processing_class=…"):
        rlvr_vocab.GRPOTrainer("no/such_model", print, tokenizer=object())
