"""Runs made sick through the real trainer: each is named by its finding, and by no more than one other."""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from rlvr_vocab.analysis.doctor.diagnose import TOPICS, diagnose
from rlvr_vocab.record.metrics import RewardFact, RunFacts, RunRecord, read_rows, split_evaluations
from rlvr_vocab.rewards.reward import RewardSpec

WORDS = ("so", "she", "sold", "half", "then", "clips", "in", "May")
OWN = Path(__file__).with_name("own_rewards.py")
pytestmark = pytest.mark.filterwarnings("ignore")
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
    from torch.nn.utils.rnn import pad_sequence
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base, folder = make_shape("qwen3").folder, tmp_path_factory.mktemp("taught")
    tokenizer = AutoTokenizer.from_pretrained(base)
    luck = random.Random(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_pretrained(base, dtype="float32")
        optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.0)
        for _ in range(160):
            prompts, ids = [], []
            for _ in range(32):
                number = luck.randrange(10)
                chat = tokenizer.apply_chat_template(_problem(number), add_generation_prompt=True, return_dict=False)
                turn = tokenizer.encode(_worked(number, luck), add_special_tokens=False)
                prompts.append(chat)
                ids.append(torch.tensor(chat + turn))
            batch = pad_sequence(ids, batch_first=True, padding_value=tokenizer.pad_token_id)
            mask = pad_sequence([torch.ones_like(row) for row in ids], batch_first=True)
            labels = batch.masked_fill(mask == 0, -100)
            for row, prompt in zip(labels, prompts, strict=True):
                row[: len(prompt)] = -100
            loss = model(input_ids=batch, attention_mask=mask, labels=labels).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(str(folder))
    return folder


@pytest.fixture(scope="session")
def expanded(taught: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The taught model, expanded; keyword arguments are fields of `Expansion`."""
    from rlvr_vocab.vocab.expand import Expansion, plan_expansion, write_expansion

    root, made = tmp_path_factory.mktemp("expanded_taught"), {}

    def expand(**fields: Any) -> Path:
        key = (*sorted(fields.items()),)
        if key not in made:
            made[key] = root / str(len(made))
            write_expansion(plan_expansion(str(taught), Expansion(**fields)), made[key])
        return made[key]

    return expand


@pytest.fixture(scope="session")
def train_run(
    facts: RunFacts, expanded: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., RunRecord]:
    """A run of some steps, as it can be read afterwards; keyword arguments are fields of `GRPOConfig`.

    Args:
        expansion: fields of `Expansion`.
    """
    from datasets import Dataset

    from rlvr_vocab.rewards.build import RewardContext, build_rewards
    from rlvr_vocab.training.arguments import grpo_config
    from rlvr_vocab.training.metrics.logged_rows import MetricsFile
    from rlvr_vocab.training.stage import StageContext
    from rlvr_vocab.training.trainer import RegionGRPOTrainer

    def train(
        rewards: Sequence[RewardSpec] = (RewardSpec("accuracy"),),
        expansion: Mapping[str, Any] = MappingProxyType({}),
        kl_log_steps: int = 5,
        gold: Callable[[int], str] = lambda number: str(number % 10),
        **args: Any,
    ) -> RunRecord:
        out = tmp_path_factory.mktemp("run")
        initial_model = expanded(**expansion)
        built = build_rewards(list(rewards), RewardContext(think_tags=facts.think_tags))
        fields = {**FIELDS, "output_dir": str(out), "reward_weights": [each.weight for each in built], **args}
        rows = [{"prompt": _problem(number), "solution": gold(number)} for number in list(range(10)) * 4]
        trainer = RegionGRPOTrainer(
            initial_model,
            args=grpo_config(fields),
            kl_log_steps=kl_log_steps,
            reward_funcs=built,
            train_dataset=Dataset.from_list(rows),
            callbacks=[MetricsFile(out / "metrics.jsonl", StageContext(out))],
        )
        trainer.train()
        had = replace(
            facts,
            rewards=tuple(RewardFact(each.name, each.weight, False) for each in built),
            **{name: fields[name] for name in vars(facts) if name in fields},
        )
        return RunRecord(out, had, *split_evaluations(read_rows(out / "metrics.jsonl")))

    return train


def own(name: str, **fields: Any) -> RewardSpec:
    return RewardSpec(f"{OWN}:{name}", **fields)


ACCURACY = RewardSpec("accuracy")
QUICK = ("a tight limit",)

SICK: dict[str, tuple[str, dict[str, Any]]] = {
    "gold answers that nobody gives": ("no_group_differs", {"gold": lambda number: "77"}),
    "a huge learning rate, with KL": ("reward_collapsed", {"learning_rate": 0.3, "kl_log_steps": 1}),
    "a tight limit": ("completions_cut_off", {"max_completion_length": 4}),
    "a format that looks for a prefilled tag": (
        "format_reward_zero",
        {"rewards": [ACCURACY, own("think_format_of_text")], "expansion": {"open_thinking": "prefill"}},
    ),
    "a function that raises": ("rows_skipped", {"rewards": [ACCURACY, own("raises")]}),
    "weights in 16 bits": (
        "weights_not_moving",
        {"model_init_kwargs": {"dtype": "bfloat16"}, "learning_rate": 1e-4},
    ),
}


@pytest.mark.parametrize(
    "sickness", [pytest.param(each, marks=() if each in QUICK else pytest.mark.slow) for each in SICK]
)
def test_a_sick_run_is_named_by_its_finding_and_at_most_one_other(
    sickness: str, train_run: Callable[..., RunRecord]
) -> None:
    expected, changes = SICK[sickness]
    record = train_run(**changes)
    names = [finding.name for finding in diagnose(record)]
    assert expected in names and len(names) <= 2, diagnose(record)


HEALTHY: dict[str, dict[str, Any]] = {
    "reasoning vocabulary": {"expansion": {"size": None}},
    "two rewards, every second step logged": {"rewards": [ACCURACY, RewardSpec("boxed")], "logging_steps": 2},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", HEALTHY)
def test_a_healthy_run_has_no_findings_and_logs_what_the_rules_read(
    kind: str, train_run: Callable[..., RunRecord]
) -> None:
    record = train_run(**{"max_steps": 30, **HEALTHY[kind]})
    assert diagnose(record) == []
    read = re.findall(r'"((?:[a-z]+/)?[a-z_]+)"', " ".join(map(inspect.getsource, TOPICS)))
    logged = {name for row in record.rows for name in row}
    assert logged >= {name for name in read if name in OF_RULES or "/" in name}


# Read by their names alone.
OF_RULES = {"frac_reward_zero_std", "reward", "reward_std", "entropy", "kl", "loss", "grad_norm", "learning_rate"}
