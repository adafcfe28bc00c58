"""What is kept of completions: their text, and rewards that add up over the functions that scored them."""

import math

import pandas as pd
import pytest
from datasets import Dataset

from rlvr_vocab.training.metrics.completions import CompletionRows


def test_a_function_that_passed_on_a_row_adds_nothing_to_it():
    rows = CompletionRows(
        prompt_ids=[[1]] * 3,
        completion_ids=[[2]] * 3,
        completion=["a", "b", "c"],
        solution=["1"] * 3,
        advantage=[0.0] * 3,
        rewards={"accuracy": [1.0, 0.0, math.nan], "format": [0.5, math.nan, math.nan]},
        weights={"accuracy": 2.0, "format": 0.1},
    )
    assert rows.total_rewards() == pytest.approx([2.05, 0.0, 0.0])


def test_prompts_that_are_strings_are_trained_on_and_answered_in_strings(expand_shape, make_trainer, tmp_path):
    trainer = make_trainer(expand_shape("qwen3", size=None), tmp_path, max_steps=1)
    seen = []
    trainer.reward_funcs[0] = lambda completions, **_: seen.extend(completions) or [float(n % 2) for n in range(4)]
    trainer.reward_funcs[1] = lambda completions, **_: [len(completion) / 100 for completion in completions]
    problems = [{"prompt": f"{n} + 4 =", "solution": "7", "task": f"sum {n}", "difficulty": n} for n in range(8)]
    trainer.train_dataset = Dataset.from_list(problems)
    trainer.train()
    rows = pd.read_parquet(tmp_path / "completions" / "step_00001.parquet").to_dict("records")
    decoded = [trainer.processing_class.decode(row["completion_ids"], skip_special_tokens=True) for row in rows]
    assert seen == decoded == [row["completion"] for row in rows]  # and nothing of the prompt, which opens no turn
    assert all(row["prompt"].endswith("+ 4 =") for row in rows)
    assert all(row["task"] == f"sum {row['difficulty']}" and row["difficulty"] in row["prompt"] for row in rows)
