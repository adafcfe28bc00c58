"""What the trainer samples under and what it scores under are the same distribution."""

import math

import pytest
import torch

from rlvr_vocab.errors import UserError
from rlvr_vocab.training.metrics.batch import whole_sequences
from rlvr_vocab.training.settings import Lora
from rlvr_vocab.training.trainer import RegionGRPOTrainer
from rlvr_vocab.vocab.regions import scored_regions

MESSAGES = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"
CLOSED = MESSAGES + "{% if add_generation_prompt %}{{ 'assistant: <think>\n\n</think>\n\n' }}{% endif %}"

LONG = {"max_completion_length": 40, "per_device_train_batch_size": 16}


class Watched(RegionGRPOTrainer):
    """Keeps each generation batch, with the scores that the trainer gives it at that moment."""

    def __init__(self, *args, **kwargs):
        self.seen = []
        super().__init__(*args, **kwargs)
        head = self.model.get_output_embeddings()
        if head.bias is not None:  # many thinking blocks: tags are likely
            head.bias.data[[self.policy.layout.think_open_id, self.policy.layout.think_close_id]] += 5.0

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        ids, mask = whole_sequences(batch)
        with torch.no_grad():
            logps, *_ = self._get_per_token_logps_and_entropies(
                self.model, ids, mask, batch["completion_ids"].size(1), len(ids)
            )
            entropies = self.dense_entropies(ids, mask, batch["prompt_ids"].size(1))
        self.seen.append({**batch, "ids": ids, "trainer_logps": logps, "entropies": entropies})
        return batch

    def dense_entropies(self, ids, mask, start):
        """Over texts, and over copies given the text, of the distribution at each completion token."""
        regions = scored_regions(ids, self.policy.layout)[:, start:]
        logits = self.model(input_ids=ids, attention_mask=mask).logits[:, start - 1 : -1]
        p = (logits / self.temperature + self.policy.bias[regions]).double().softmax(-1)
        texts, of_ids = self.policy.over_texts(p.flatten(0, 1)).view(*p.shape[:2], -1), torch.special.entr(p).sum(-1)
        of_texts = torch.special.entr(texts).sum(-1)
        return of_texts, of_ids - of_texts


PREFILLED, OPENED = {"open_thinking": "prefill"}, {"open_thinking": "model"}


@pytest.mark.parametrize(
    ("name", "kind", "mode", "temperature", "attention"),
    [
        ("phi", PREFILLED, "replace", 0.6, "sdpa"),
        ("phi", OPENED, "expand", 1.5, "eager"),
        ("gemma3", PREFILLED, "expand", 0.6, "eager"),
        ("gpt2", OPENED | {"chat_template": CLOSED}, "expand", 1.0, "sdpa"),
        pytest.param("qwen3", PREFILLED, "replace", 1.0, "eager", marks=pytest.mark.slow),
        pytest.param("qwen2", OPENED, "expand", 1.0, "sdpa", marks=pytest.mark.slow),
    ],
)
def test_each_token_is_scored_as_it_was_sampled_and_none_was_forbidden(
    name, kind, mode, temperature, attention, expand_shape, make_trainer, tmp_path
):
    folder = expand_shape(name, size=None, mode=mode, multiplicity=3, **kind)
    loaded = {"model_init_kwargs": {"dtype": "float32", "attn_implementation": attention}}
    trainer = make_trainer(folder, tmp_path, trainer=Watched, temperature=temperature, **LONG, **loaded)
    trainer.train()
    assert len(trainer.seen) == 2 and trainer.model.config._attn_implementation == attention
    layout, regions_seen = trainer.policy.layout, set()
    for batch in trainer.seen:
        mask = batch["completion_mask"].bool()
        difference = (batch["sampling_per_token_logps"] - batch["trainer_logps"])[mask].abs()
        assert difference.numel() > 100 and difference.max() < 1e-4
        regions = scored_regions(batch["ids"], layout)[:, batch["prompt_ids"].size(1) :]
        allowed = torch.isfinite(trainer.policy.bias)[regions].gather(2, batch["completion_ids"].unsqueeze(2))
        assert allowed.squeeze(2)[mask].all()
        regions_seen |= set(regions[mask].tolist())
        assert regions[:, 0].unique().tolist() == [int(kind is PREFILLED)]
    assert regions_seen == {0, 1} or name != "phi"


# flex_attention computes on a CPU, and has no backward pass there.
def test_the_reference_has_the_attention_of_the_policy(expand_shape, make_trainer, tmp_path):
    loaded = {"model_init_kwargs": {"dtype": "float32", "attn_implementation": "flex_attention"}}
    trainer = make_trainer(expand_shape("llama", size=None), tmp_path, beta=0.04, **loaded)
    with trainer._reference_kl.reference() as read_from_disk:
        for reference in (trainer.ref_model, read_from_disk):
            assert reference.config._attn_implementation == "flex_attention"


def test_logged_entropies_are_those_of_the_text_and_of_the_copies_while_thinking(expand_shape, make_trainer, tmp_path):
    trainer = make_trainer(expand_shape("phi", size=None), tmp_path, trainer=Watched, **LONG)
    trainer.train()
    for step, (row, batch) in enumerate(zip(trainer.state.log_history, trainer.seen, strict=False), start=1):
        mask = batch["completion_mask"].bool()
        text, copies = (each[:, : mask.size(1)][mask] for each in batch["entropies"])
        regions = scored_regions(batch["ids"], trainer.policy.layout)[:, batch["prompt_ids"].size(1) :]
        thinking = regions[mask] == 1
        assert 20 < thinking.sum() < len(thinking) - 20 and abs(copies[~thinking]).max() < 1e-5
        expected = {"text": text, "thinking": text[thinking], "answering": text[~thinking], "copies": copies[thinking]}
        for name, values in expected.items():
            assert row[f"sampling/entropy/{name}"] == pytest.approx(values.mean().item(), rel=1e-4)
            assert row[f"entropy/{name}"] == pytest.approx(values.mean().item(), rel=1e-3)  # one update on each batch
        assert 0.5 < row["entropy/copies"] < math.log(2) + 1e-6
        bound = row["hidden/capacity"] - row["entropy/copies"] / math.log(2)
        assert row["hidden/bound"] == pytest.approx(bound, abs=1e-5) and row["hidden/bound"] >= -1e-6
        thoughts = ((regions == 1) & mask).any(1).sum().item()
        per_thought = row["hidden/bound"] * thinking.sum().item() / thoughts
        assert row["hidden/bound_per_thought"] == pytest.approx(per_thought, rel=1e-3, abs=1e-4)
        if step == 1:  # before the first update
            assert row["hidden/bound"] == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize(
    ("rank", "lora"),
    [
        (16, None),
        pytest.param(None, None, marks=pytest.mark.slow),
        pytest.param(None, Lora(r=4, lora_dropout=0.5), marks=pytest.mark.slow),
    ],
)
def test_kl_is_logged_every_so_many_steps_starts_at_nothing_and_changes_nothing_else(
    rank, lora, expand_shape, make_trainer, tmp_path
):
    folder, rows, ends = expand_shape("llama", size=None, reasoning_rank=rank), {}, {}
    for steps in (0, 1, 2, None):
        more = {"max_steps": 3, "learning_rate": 1e-2, "gradient_checkpointing": True}
        trainer = make_trainer(folder, tmp_path, lora=lora, kl_log_steps=steps, **more)
        trainer.train()
        rows[steps] = [row for row in trainer.state.log_history if "loss" in row]
        ends[steps] = [torch.get_rng_state(), *trainer.model.state_dict().values()]
    assert all(all(map(torch.equal, ends[0], end)) for end in ends.values())
    logged = {steps: ["kl" in row for row in found] for steps, found in rows.items()}
    assert logged == {0: [False] * 3, 1: [True] * 3, 2: [True, False, True], None: [True, False, False]}
    first, *others = (row["kl"] for row in rows[1])
    assert abs(first) < 1e-6 < 1e-5 < min(others)
    assert abs(rows[1][0]["kl/ids"]) < 1e-6 and all("kl/ids" in row for row in rows[1])
    ignored = ("kl", "step_time", "time/", "memory/")
    plain, logged = (
        [{name: value for name, value in row.items() if not name.startswith(ignored)} for row in rows[steps]]
        for steps in (0, 1)
    )
    assert plain == logged


def test_a_kl_over_anything_but_texts_or_ids_is_refused(expand_shape, make_trainer, tmp_path):
    with pytest.raises(UserError, match=r"^kl_over=texts: must be text or ids$"):
        make_trainer(expand_shape("llama", size=None), tmp_path, kl_over="texts")


@pytest.mark.parametrize("has_bf16", [True, False])
def test_a_cpu_with_bfloat16_computes_in_it_and_samples_what_it_trains(
    has_bf16, expand_shape, make_trainer, tmp_path, monkeypatch
):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": has_bf16})
    trainer = make_trainer(expand_shape("llama", size=None), tmp_path, bf16=True, learning_rate=1e-2)
    before, computed = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}, set()
    layer = trainer.model.model.layers[0].self_attn.q_proj
    layer.register_forward_hook(lambda module, inputs, output: computed.add(output.dtype))
    trainer.train()
    assert computed == {torch.bfloat16 if has_bf16 else torch.float32}
    weights = trainer.model.state_dict()
    assert all(weight.dtype == torch.float32 for weight in weights.values())
    assert all(not torch.equal(weights[name], weight) for name, weight in before.items() if "proj" in name)
    for row in trainer.state.log_history[:2]:
        low, high = (1e-6, 1e-2) if has_bf16 else (0, 1e-5)
        assert low <= row["sampling/logp_gap"] < high and 0 < row["grad_norm"] < 100
