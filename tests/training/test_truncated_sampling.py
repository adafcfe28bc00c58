"""Training under top_k, top_p and min_p: the texts that a token was drawn from are those that it is scored among."""

import pytest
import torch

from rlvr_vocab.training.metrics.batch import whole_sequences
from rlvr_vocab.training.settings import Lora
from rlvr_vocab.training.trainer import RegionGRPOTrainer
from rlvr_vocab.vocab.regions import scored_regions

LONG = {"max_completion_length": 40, "per_device_train_batch_size": 16}
TRUNCATIONS = {
    "top_p": {"top_p": 0.7},
    "top_k": {"top_k": 5},
    "min_p": {"min_p": 0.3},
    "all": {"top_k": 20, "top_p": 0.8, "min_p": 0.05},
}


class Watched(RegionGRPOTrainer):
    """Keeps each generation batch, with the trainer's scores at that moment and the dense definition of them."""

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        ids, mask = whole_sequences(batch)
        length = batch["completion_ids"].size(1)
        with torch.no_grad():
            unreplayed, *_ = self._get_per_token_logps_and_entropies(self.model, ids, mask, length, len(ids))
            self.kept_texts = batch["kept_texts"]
            logps, *_ = self._get_per_token_logps_and_entropies(self.model, ids, mask, length, len(ids))
            self.kept_texts = None
            regions = scored_regions(ids, self.policy.layout)[:, -length:]
            logits = self.model(input_ids=ids, attention_mask=mask).logits[:, -length - 1 : -1].double()
        log_p = (logits / self.temperature + self.policy.bias[regions]).log_softmax(-1)
        seen.append({**batch, "trainer": logps, "unreplayed": unreplayed, "log_p": log_p})
        return batch


seen = []


def kept_by_definition(q, top_k=0, top_p=1.0, min_p=0.0):
    """Of probabilities over texts: the top_k likeliest; of these the fewest that hold top_p; of these those near it."""
    q_sorted, order = q.sort(descending=True)
    keep = torch.arange(len(q)) < (top_k or len(q))
    of_kept = q_sorted * keep / (q_sorted * keep).sum()
    keep &= of_kept.cumsum(0) - of_kept < top_p
    keep &= q_sorted >= min_p * q_sorted[0]
    return set(order[keep].tolist())


def texts_at(batch):
    """(row, column, kept texts) of each sampled token."""
    for row, (counts, texts) in enumerate(batch["kept_texts"]):
        for column, kept in enumerate(texts.split(counts.tolist())):
            if batch["sampled_mask"][row, column]:
                yield row, column, set(kept.tolist())


@pytest.mark.parametrize("given", TRUNCATIONS.values(), ids=TRUNCATIONS)
@pytest.mark.parametrize(
    ("size", "fields", "temperature"),
    [
        (None, {"mode": "expand", "multiplicity": 2}, 0.7),
        (None, {"mode": "replace"}, 1.3),
        (200, {"reasoning_rank": 4}, 1.0),
        (0, {}, 1.0),
    ],
    ids=["expand twice", "replace", "low rank", "baseline"],
)
def test_tokens_are_drawn_from_and_scored_among_the_texts_that_the_definition_keeps(
    given, size, fields, temperature, expand_shape, make_trainer, tmp_path
):
    seen.clear()
    folder = expand_shape("llama", size=size, open_thinking="prefill", **fields)
    more = {**LONG, **given, "max_steps": 3, "num_iterations": 3, "learning_rate": 1e-2}
    trainer = make_trainer(folder, tmp_path, trainer=Watched, temperature=temperature, **more)
    trainer.train()
    [batch], policy, tokens, others = seen, trainer.policy, 0, 0
    texts_of_ids = policy.surface_ids(torch.arange(policy.layout.rows))
    for row, column, kept in texts_at(batch):
        log_p, token = batch["log_p"][row, column], int(batch["completion_ids"][row, column])
        q = policy.over_texts(log_p.exp().unsqueeze(0))[0]
        others += kept != kept_by_definition(q, **given)
        is_kept = torch.isin(texts_of_ids, torch.tensor(sorted(kept)))
        assert is_kept[token]
        expected = log_p[token] - log_p[is_kept].logsumexp(0)
        for name in ("sampling_per_token_logps", "trainer", "old_per_token_logps"):
            assert abs(batch[name][row, column] - expected) < 1e-5
        tokens += 1
    assert tokens > 200 and others < tokens / 100  # two texts on the edge, which rounding tells apart
    mask = batch["sampled_mask"].bool()
    assert torch.equal(batch["old_per_token_logps"][mask], batch["trainer"][mask])  # the ratio is 1
    bias = (batch["old_per_token_logps"] - batch["unreplayed"])[mask].mean()
    assert bias > 0.1
    first, *later = (row for row in trainer.state.log_history if "loss" in row)
    counts = [len(kept) for *_, kept in texts_at(batch)]
    assert first["sampling/kept_texts"] == pytest.approx(sum(counts) / len(counts))
    assert first["sampling/logp_gap"] < 1e-5 and first["clip_ratio/region_mean"] == 0
    assert max(row["clip_ratio/region_mean"] for row in later) > 0  # scored anew among the same texts


def test_parts_of_a_shuffled_batch_are_scored_without_dropout_among_their_own_texts(
    expand_shape, make_trainer, tmp_path
):
    folder = expand_shape("llama", size=None)
    parts = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4, "num_generations": 4}
    more = {"lora": Lora(r=4, lora_dropout=0.5), "max_completion_length": 40}
    trainer = make_trainer(folder, tmp_path, top_p=0.7, **parts, **more)
    trainer.train()
    assert max(row["sampling/logp_gap"] for row in trainer.state.log_history[:2]) < 1e-5


def test_dynamic_sampling_and_a_reference_replay_the_kept_texts(expand_shape, make_trainer, tmp_path):
    folder = expand_shape("llama", size=None, reasoning_rank=4)
    trainer = make_trainer(folder, tmp_path, top_p=0.7, beta=0.04, max_rounds=2, **LONG)
    trainer.train()
    first = trainer.state.log_history[0]
    assert first["sampling/logp_gap"] < 1e-5 and abs(first["kl"]) < 1e-6 and first["sampling/kept_texts"] > 1
