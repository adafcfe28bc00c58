"""Small runs through the real trainer, on a tiny model that has learned to think, to answer, and to err."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from rlvr_vocab.record.metrics import RewardFact, RunFacts, RunRecord, divided, read_rows

WORDS = ("so", "she", "sold", "half", "then", "clips", "in", "May")
OWN = Path(__file__).with_name("own_rewards.py")
FACTS = RunFacts(
    exp_name="tiny",
    seed=0,
    model="tiny",
    dataset="digits",
    reasoning_vocab_size=0,
    think_tags=("<think>", "</think>"),
    rewards=(RewardFact("accuracy", 1.0, False),),
    num_generations=8,
    max_completion_length=24,
    temperature=1.0,
    learning_rate=1e-3,
    lr_scheduler_type="linear",
    beta=0.0,
    max_grad_norm=1.0,
    num_iterations=1,
    max_steps=14,
    use_vllm=False,
    completions_per_step=32,
)

# Of `GRPOConfig`, unless a run is made sick by another value.
FIELDS: Mapping[str, Any] = {
    "max_steps": 14,
    "per_device_train_batch_size": 32,
    "num_generations": 8,
    "max_completion_length": 24,
    "learning_rate": 1e-3,
    "temperature": 1.0,
    "warmup_steps": 2,
    "max_grad_norm": 1.0,
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "seed": 3,
    "model_init_kwargs": {"dtype": "float32"},
}


@pytest.fixture
def facts() -> RunFacts:
    return FACTS


def _problem(number: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"Write {number}"}]


def _worked(number: int, luck: random.Random) -> str:
    """Four words of thinking, and an answer that is right about every second time."""
    answer = number % 10 if luck.random() < 0.4 else luck.randrange(10)
    return f"<think>{' '.join(luck.choices(WORDS, k=4))}</think>\\boxed{{{answer}}}<|im_end|>"


@pytest.fixture(scope="session")
def taught(make_shape: Callable[[str], Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model after some supervised steps on the digits 0 to 9."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base, folder = make_shape("qwen3").folder, tmp_path_factory.mktemp("taught")
    tokenizer = AutoTokenizer.from_pretrained(base)
    luck = random.Random(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_pretrained(base, dtype="float32")
        optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.0)
        for _ in range(160):
            rows = []
            for _ in range(32):
                number = luck.randrange(10)
                prompt = tokenizer.apply_chat_template(_problem(number), add_generation_prompt=True, return_dict=False)
                rows.append((prompt, tokenizer.encode(_worked(number, luck), add_special_tokens=False)))
            longest = max(len(prompt) + len(turn) for prompt, turn in rows)
            ids = torch.full((len(rows), longest), tokenizer.pad_token_id)
            labels = torch.full_like(ids, -100)
            for row, (prompt, turn) in enumerate(rows):
                ids[row, : len(prompt) + len(turn)] = torch.tensor(prompt + turn)
                labels[row, len(prompt) : len(prompt) + len(turn)] = torch.tensor(turn)
            mask = torch.arange(longest) < torch.tensor([len(p) + len(t) for p, t in rows]).unsqueeze(1)
            loss = model(input_ids=ids, attention_mask=mask.long(), labels=labels).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(str(folder))
    return folder


@pytest.fixture(scope="session")
def expanded(
    taught: Path, make_shape: Callable[[str], Any], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """The taught model, or the untaught one, expanded; keyword arguments are fields of `Expansion`."""
    from rlvr_vocab.vocab.expand import Expansion, plan_expansion, write_expansion

    root, made = tmp_path_factory.mktemp("expanded_taught"), {}

    def expand(untaught: bool = False, **fields: Any) -> Path:
        key = (untaught, *sorted(fields.items()))
        if key not in made:
            made[key] = root / str(len(made))
            base = make_shape("qwen3").folder if untaught else taught
            write_expansion(plan_expansion(str(base), Expansion(**fields)), made[key])
        return made[key]

    return expand


@pytest.fixture(scope="session")
def train_run(expanded: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., RunRecord]:
    """A run of some steps, as it can be read afterwards; keyword arguments are fields of `GRPOConfig`.

    Args:
        rewards: name or `RewardSpec` of each function; a name of `own_rewards.py` has a dot in front.
        expansion: fields of `Expansion`, and `untaught`.
        spoil: does something to the trainer before it trains.
    """
    from datasets import Dataset

    from rlvr_vocab.rewards.build import RewardContext, build_rewards
    from rlvr_vocab.rewards.reward import RewardSpec
    from rlvr_vocab.training.metrics_file import MetricsFile
    from rlvr_vocab.training.stage import StageContext
    from rlvr_vocab.training.trainer import RegionGRPOTrainer, grpo_config

    def train(
        rewards: Any = ("accuracy",),
        expansion: Mapping[str, Any] = MappingProxyType({}),
        spoil: Callable[[Any], None] | None = None,
        kl_log_steps: int = 5,
        gold: Callable[[int], str] = lambda number: str(number % 10),
        **args: Any,
    ) -> RunRecord:
        out = tmp_path_factory.mktemp("run")
        initial_model = expanded(**expansion)
        specs = [each if isinstance(each, RewardSpec) else RewardSpec(each.replace(".", f"{OWN}:")) for each in rewards]
        built = build_rewards(specs, RewardContext(think_tags=FACTS.think_tags))
        fields = {**FIELDS, "output_dir": str(out), "reward_weights": [each.weight for each in built], **args}
        config = grpo_config(fields)
        rows = [{"prompt": _problem(number), "solution": gold(number)} for number in list(range(10)) * 4]
        trainer = RegionGRPOTrainer(
            initial_model,
            config,
            kl_log_steps=kl_log_steps,
            reward_funcs=[each.function for each in built],
            train_dataset=Dataset.from_list(rows),
            callbacks=[MetricsFile(out / "metrics.jsonl", StageContext(out))],
        )
        if spoil is not None:
            spoil(trainer)
        trainer.train()
        rewards_told = [
            RewardFact(each.name, each.weight, False, spec.name) for each, spec in zip(built, specs, strict=True)
        ]
        facts = _facts_of(initial_model, expansion.get("mode", "expand"), rewards_told, fields)
        return RunRecord(out, facts, *divided(read_rows(out / "metrics.jsonl")))

    return train


def _facts_of(initial_model: Path, mode: str, rewards: Sequence[RewardFact], fields: Mapping[str, Any]) -> RunFacts:
    from rlvr_vocab.vocab.layout import VocabLayout

    layout = VocabLayout.load(initial_model)
    return replace(
        FACTS,
        reasoning_vocab_size=layout.size,
        reasoning_mode=mode,
        reasoning_copies=layout.size / layout.standard_size,
        pure_bf16=fields["model_init_kwargs"]["dtype"] == "bfloat16",
        rewards=tuple(rewards),
        **{name: fields[name] for name in vars(FACTS) if name in fields},
    )


@pytest.fixture(scope="session")
def healthy_rows() -> list[dict[str, Any]]:
    """Sixty rows with the figures of a healthy run: the reward rises, entropy falls, lengths stay."""
    luck = random.Random(1)

    def about(value: float, part: float = 0.05) -> float:
        return value * luck.uniform(1 - part, 1 + part)

    def row(step: int) -> dict[str, Any]:
        reward = about(0.3 + 0.3 * step / 60, 0.1)
        return {
            "step": step,
            "loss": luck.uniform(-0.01, 0.01),
            "grad_norm": about(1.1, 0.3),
            "learning_rate": min(step - 1, 6) / 6 * 1e-3 * (61 - step) / 60,
            "num_tokens": 6000.0 * step,
            "completions/mean_length": about(22.0),
            "completions/clipped_ratio": 0.01,
            "completions/duplicates": about(0.2),
            "completions/shared": 0.0,
            "rewards/accuracy/mean": reward,
            "rewards/accuracy/std": about(0.47),
            "reward": reward,
            "reward_std": about(0.47),
            "groups/reward_std": about(0.4),
            "frac_reward_zero_std": luck.choice((0.1, 0.2, 0.3)),
            "thinking/mean_length": about(13.0),
            "answering/mean_length": about(9.0),
            "thinking/closed": about(0.97, 0.02),
            "thinking/reasoning_share": about(0.46),
            "sampling/logp_gap": 1e-7,
            "entropy": about(0.6 - 0.1 * step / 60),
            "entropy/thinking": about(0.88 - 0.1 * step / 60),
            "entropy/answering": about(0.17 - 0.05 * step / 60),
            "weights/moved": float(step > 1),
            "step_time": about(0.7),
            "time/generation": about(0.3),
            "time/rewards": about(0.01),
            **({"kl": 0.1 * step / 60} if step % 10 == 1 else {}),
        }

    return [row(step) for step in range(1, 61)]
