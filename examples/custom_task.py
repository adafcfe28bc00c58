"""GRPO on a task of your own, in plain Python: words that are to be put in alphabetical order. Made to be copied.

    python examples/custom_task.py MODEL OUT [STEPS]

MODEL, a hub name or a folder, gets a reasoning vocabulary; an adapter is trained on it, together with the new tokens,
and merged into OUT/final_model. Yours to change: SYSTEM_PROMPT, get_dataset() and the two rewards.
"""

import random
import sys
from itertools import pairwise
from pathlib import Path

import torch
from datasets import Dataset

from rlvr_vocab import Expansion, GRPOConfig, Lora, RegionGRPOTrainer, after_thinking, merge_adapter

SYSTEM_PROMPT = "Think between <think> and </think>. Then give the words in alphabetical order, separated by commas."
WORDS = ["river", "apple", "stone", "cloud", "bread", "tiger", "lemon", "queen", "heart", "north", "piano"]


def get_dataset(num_problems: int = 1000, seed: int = 42) -> Dataset:
    """A `prompt` of chat messages a row; every other column is handed to the rewards by its name."""
    generator, rows = random.Random(seed), []
    for _ in range(num_problems):
        words = generator.sample(WORDS, generator.randint(2, 5))
        question = {"role": "user", "content": f"Sort these words: {', '.join(words)}"}
        rows.append({"prompt": [{"role": "system", "content": SYSTEM_PROMPT}, question], "solution": sorted(words)})
    return Dataset.from_list(rows)


def answered(turn: str) -> list[str]:
    """The words of an answer; none where the thinking was never closed."""
    return [word.strip(" .\n").lower() for word in (after_thinking(turn) or "").split(",")]


def sorted_right(completions: list, solution: list[list[str]], **_) -> list[float]:
    """1 for the right words in the right order."""
    return [float(answered(turn[-1]["content"]) == words) for turn, words in zip(completions, solution, strict=True)]


def partly_sorted(completions: list, solution: list[list[str]], **_) -> list[float]:
    """The share of neighbours that stand in the right order: something to climb before anything is all right."""
    scores = []
    for turn, words in zip(completions, solution, strict=True):
        pairs = list(pairwise(answered(turn[-1]["content"])))
        scores.append(sum(pair in list(pairwise(words)) for pair in pairs) / max(len(pairs), len(words) - 1))
    return scores


def main(model: str, out: Path, steps: int = 200) -> None:
    options = {
        "output_dir": str(out),
        "max_steps": steps,
        "learning_rate": 1e-4,  # of an adapter; a whole model wants a tenth or less
        "per_device_train_batch_size": 8,
        "num_generations": 8,
        "max_completion_length": 256,
        "reward_weights": [1.0, 0.5],
        "report_to": "none",
        "bf16": torch.cuda.is_available(),
        "model_init_kwargs": {"dtype": "bfloat16" if torch.cuda.is_available() else "float32"},
    }
    trainer = RegionGRPOTrainer(
        model,
        args=GRPOConfig(**options),
        expansion=Expansion(size=1000, open_thinking="prefill"),
        peft_config=Lora(r=16, train_rows="reasoning"),
        reward_funcs=[sorted_right, partly_sorted],
        train_dataset=get_dataset(),
    )
    trainer.train()
    trainer.save_model(str(out / "final_adapter"))
    merge_adapter(out / "final_adapter", out / "final_model")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:]))
