"""The whole loss, with entropies and KL of the text, against dense float64."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from rlvr_vocab.training.metrics.batch import whole_sequences
from rlvr_vocab.vocab.regions import scored_regions

TEMPERATURE = 0.8
# Two steps for each batch; the buffered one is to be trained on for the second time.
TWICE = {"num_iterations": 2, "max_steps": 3, "learning_rate": 2e-3, "loss_type": "grpo", "temperature": TEMPERATURE}
CASES = {  # the first three with a tied table and a softcap, the last untied and with a bias
    "KL of texts": ("gemma3", {"use_bias_correction_kl": True}),
    "KL of sequences": ("gemma3", {"use_bias_correction_kl": True, "importance_sampling_level": "sequence"}),
    "KL of ids": ("gemma3", {"use_bias_correction_kl": False, "kl_over": "ids"}),
    "all": ("phi", {"use_bias_correction_kl": True, "entropy_coef": 0.1, "top_entropy_quantile": 0.3}),
    "KL of texts, truncated": ("gemma3", {"use_bias_correction_kl": True, "top_p": 0.8}),
    "KL of ids, truncated": ("gemma3", {"use_bias_correction_kl": False, "kl_over": "ids", "min_p": 0.1}),
    "all, truncated": ("phi", {"entropy_coef": 0.1, "top_k": 60, "top_p": 0.9, "min_p": 0.01}),
}


class Dense:
    """A held model in float64 with whole tables: `logp`, `text_logp` and `entropy` over texts are `(B, C)`.

    Log-probabilities of tokens that were given are 0.
    """

    def __init__(self, model, trainer, batch):
        self._layout = trainer.policy.layout
        self.leaves = {name: each.detach().double().requires_grad_() for name, each in model.named_parameters()}
        stock = AutoModelForCausalLM.from_pretrained(trainer.initial_model).double()
        ids, mask = whole_sequences(batch)
        inputs = {"input_ids": ids, "attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp(min=0)}
        logits = torch.func.functional_call(stock, self._whole(), kwargs=inputs).logits
        completions, start = batch["completion_ids"], batch["prompt_ids"].size(1)
        bias = trainer.policy.bias.double()[scored_regions(ids, self._layout)[:, start:]]
        texts = trainer.policy.surface_ids(torch.arange(self._layout.rows))
        scores = logits[:, start - 1 : -1] / TEMPERATURE + bias
        kept = torch.ones(*scores.shape[:2], self._layout.standard_size, dtype=torch.bool)
        for row, (counts, own) in enumerate(batch.get("kept_texts", ())):
            for column, of_token in enumerate(own.split(counts.tolist())):
                kept[row, column] = torch.isin(torch.arange(self._layout.standard_size), of_token)
        scores = scores.masked_fill(~kept[..., texts], -1e30)
        log_p = scores.log_softmax(-1)
        q = torch.zeros(*log_p.shape[:2], self._layout.standard_size, dtype=torch.float64)
        q = q.index_add(2, texts, log_p.exp())
        given = batch["sampled_mask"] == 0
        self.logp = log_p.gather(2, completions[:, :, None]).squeeze(2).masked_fill(given, 0.0)
        self.text_logp = q.gather(2, texts[completions][:, :, None]).squeeze(2).masked_fill(given, 1.0).log()
        self.entropy = -(q * torch.where(q > 0, q, 1.0).log()).sum(2)

    def _whole(self):
        sources, whole = torch.tensor(self._layout.source_ids), {}
        for name, each in self.leaves.items():
            if "difference" in name:
                continue
            if each.size(0) == self._layout.standard_size:
                copies = each[sources]
                if name.endswith(".weight"):
                    B = self.leaves[name.replace(".weight", ".difference.B")]
                    A = self.leaves.get(name.replace(".weight", ".difference.A"))
                    copies = copies + (B if A is None else B @ A)
                each = torch.cat([each, copies])
            whole[name] = each
        return whole


def k3(log_ratio):
    return log_ratio.exp() - log_ratio - 1


def dense_loss(policy, reference, batch, args, over="text"):
    """That of `loss_type="grpo"`, as TRL's documentation gives it, and the two KLs in the mean over tokens."""
    mask, advantages = batch["sampled_mask"].double(), batch["advantages"].double().unsqueeze(1)
    log_ratio = policy.logp - batch["old_per_token_logps"].double()
    if args.importance_sampling_level == "sequence":
        log_ratio = ((log_ratio * mask).sum(1) / mask.sum(1)).unsqueeze(1)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - args.epsilon, 1 + args.epsilon)
    loss, acts = -torch.minimum(ratio * advantages, clipped * advantages), mask
    if args.top_entropy_quantile < 1.0:
        threshold = policy.entropy[mask.bool()].quantile(1 - args.top_entropy_quantile)
        acts = mask * (policy.entropy >= threshold)
        loss = loss * acts
    of_texts, of_ids = k3(reference.text_logp - policy.text_logp), k3(reference.logp - policy.logp)
    of_texts, of_ids = (each * ratio if args.use_bias_correction_kl else each for each in (of_texts, of_ids))
    loss = loss + args.beta * (of_texts if over == "text" else of_ids)
    loss = ((loss * mask).sum(1) / mask.sum(1)).mean()
    loss = loss - args.entropy_coef * (policy.entropy * acts).sum() / acts.sum()
    return loss, [((each * mask).sum() / mask.sum()).item() for each in (of_texts, of_ids)]


def farthest(gradients, expected):
    """Relative to the largest entry of the same parameter."""
    assert gradients.keys() == expected.keys()
    return max(
        ((gradients[name] - each).abs().max() / each.abs().max().clamp(min=1e-4)).item()
        for name, each in expected.items()
    )


def gradients_of(trainer, inputs):
    trainer.model.train()
    trainer.model.zero_grad()
    loss = trainer.compute_loss(trainer.model, inputs)
    loss.backward()
    return loss.item(), {name: each.grad for name, each in trainer.model.named_parameters() if each.grad is not None}


@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradients_equal_a_dense_float64_reference(case, expand_shape, make_trainer, tmp_path):
    name, settings = CASES[case]
    folder = expand_shape(name, size=None, multiplicity=2, reasoning_rank=4, init_noise=0.3)
    trainer = make_trainer(folder, tmp_path, beta=0.3, **TWICE, **settings)
    trainer.train()
    check_second_iteration(trainer)


def check_second_iteration(trainer):
    """Loss, gradients and KL on the batch that has been trained on once are those of the dense reference."""
    (batch,) = trainer._buffered_inputs
    before = {name: each.clone() for name, each in batch.items() if isinstance(each, torch.Tensor)}
    loss, gradients = gradients_of(trainer, batch)
    assert before.keys() == {name for name, each in batch.items() if isinstance(each, torch.Tensor)}
    assert all(torch.equal(batch[name], each) for name, each in before.items())
    policy = Dense(trainer.model, trainer, batch)
    with torch.no_grad():
        reference = Dense(trainer.ref_model, trainer, batch)
    assert (policy.logp - batch["old_per_token_logps"])[batch["sampled_mask"].bool()].abs().max() > 1e-3
    assert policy.logp.sub(policy.text_logp)[batch["sampled_mask"].bool()].std() > 0.04  # copies are not their sources
    expected, (of_texts, of_ids) = dense_loss(policy, reference, batch, trainer.args, trainer.kl_over)
    expected.backward()
    assert loss == pytest.approx(expected.item(), abs=1e-6)
    assert farthest(gradients, {name: leaf.grad for name, leaf in policy.leaves.items()}) < 1e-5
    assert abs(of_texts - of_ids) > 1e-4 * of_ids
    logged = {name: trainer._metrics["train"][name][-1] for name in ("kl", "kl/ids")}
    assert logged == pytest.approx({"kl": of_texts, "kl/ids": of_ids}, rel=1e-4)
