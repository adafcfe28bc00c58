"""The learning curve of a baseline laid over that of TRL's own `GRPOTrainer`, from the same model, problems and seed,
and what a step takes in either.

    rlvr-vocab quickstart seed=0 model.reasoning_vocab_size=0
    python benchmarks/against_trl.py out/quickstart_baseline_seed0 THEIRS.jsonl

The second line trains the run's initial model once more, by TRL alone, with its number of threads, and writes what it
logs; docs/draw_learning.py draws both. The first step is not timed: it allocates the state of the optimizer.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean
from typing import Any

from rich.console import Console
from transformers import TrainerCallback
from trl import GRPOTrainer

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.record.files import INITIAL_MODEL, METRICS
from rlvr_vocab.rewards.build import build_rewards
from rlvr_vocab.runs.model import loading_kwargs
from rlvr_vocab.runs.problems import load_run_problems
from rlvr_vocab.runs.rewards import reward_context
from rlvr_vocab.training.arguments import grpo_config
from rlvr_vocab.vocab.tokenizer import load_tokenizer


def main(run: Path, log: Path) -> None:
    ours = [json.loads(line) for line in (run / METRICS).read_text().splitlines()]
    theirs, seconds = plain_trl(run)
    log.write_text("".join(json.dumps(row) + "\n" for row in theirs), encoding="utf-8")
    curves = {
        "rlvr_vocab": [row["reward"] for row in ours if "reward" in row],
        "TRL": [row["reward"] for row in theirs if "reward" in row],
    }
    first = next(
        (step for step, (one, other) in enumerate(zip(*curves.values(), strict=True), 1) if one != other), None
    )
    for name, rewards in curves.items():
        ends = (rewards[:10], rewards[-10:])
        print(name, "mean reward of the first and last ten steps", *(f"{sum(end) / len(end):.4f}" for end in ends))
    print(f"the rewards of a step differ first at step {first}" if first else "the rewards of all steps are the same")
    print("seconds a step: rlvr_vocab", in_words(ours[1:]), f"TRL {mean(seconds[1:]):.2f}")


def in_words(rows: list[dict[str, float]]) -> str:
    """The mean time of a step, and of its phases."""
    timed = [row for row in rows if "step_time" in row]
    phases = [name for name in timed[0] if name.startswith("time/") and not name.endswith("per_second")]
    of_phases = ", ".join(f"{name.removeprefix('time/')} {mean(row[name] for row in timed):.2f}" for name in phases)
    return f"{mean(row['step_time'] for row in timed):.2f} ({of_phases}),"


class StepSeconds(TrainerCallback):
    """The whole of each step, its update included."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._began = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._began = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds.append(time.perf_counter() - self._began)


def plain_trl(run: Path) -> tuple[list[dict[str, float]], list[float]]:
    """What TRL logs, and the seconds of each step."""
    settings = read_settings("train", [f"config={run}"])
    if settings.model.reasoning_vocab_size != 0:
        sys.exit(f"{run} has a reasoning vocabulary, which TRL knows nothing of")
    initial_model = run / INITIAL_MODEL
    rewards = build_rewards(settings.rewards.functions, reward_context(settings))
    with tempfile.TemporaryDirectory() as out:
        own = {"output_dir": out, "report_to": "none", "save_strategy": "no", "eval_strategy": "no"}
        loading = {"model_init_kwargs": loading_kwargs(settings.model)}
        trainer = GRPOTrainer(
            model=str(initial_model),
            processing_class=load_tokenizer(initial_model),
            args=grpo_config({**settings.training.grpo, "seed": settings.seed, **own, **loading}),
            reward_funcs=rewards,
            train_dataset=load_run_problems(settings, Console()).train,
            callbacks=[watch := StepSeconds()],
        )
        trainer.train()
    return trainer.state.log_history, watch.seconds


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
