"""The learning curve of a baseline laid over that of TRL's own `GRPOTrainer`, from the same model, problems and seed.

    rlvr-vocab quickstart seed=0 model.reasoning_vocab_size=0
    python benchmarks/against_trl.py out/quickstart_baseline_seed0 PICTURE.png

The second line trains the run's initial model once more, by TRL alone, with its number of threads.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from trl import GRPOTrainer

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.record.files import INITIAL_MODEL, METRICS
from rlvr_vocab.rewards.build import build_rewards
from rlvr_vocab.runs.model import loading_kwargs
from rlvr_vocab.runs.problems import load_run_problems
from rlvr_vocab.runs.rewards import reward_context
from rlvr_vocab.training.arguments import grpo_config
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.tokenizer import load_tokenizer


def main(run: Path, picture: Path) -> None:
    ours = [json.loads(line) for line in (run / METRICS).read_text().splitlines()]
    theirs = plain_trl(run)
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
    draw(curves, picture)


def plain_trl(run: Path) -> list[dict[str, float]]:
    """What TRL logs."""
    settings = read_settings("train", [f"config={run}"])
    if settings.model.reasoning_vocab_size != 0:
        sys.exit(f"{run} has a reasoning vocabulary, which TRL knows nothing of")
    initial_model = run / INITIAL_MODEL
    rewards = build_rewards(settings.rewards.functions, reward_context(settings, VocabLayout.load(initial_model)))
    with tempfile.TemporaryDirectory() as out:
        own = {"output_dir": out, "report_to": "none", "save_strategy": "no", "eval_strategy": "no"}
        loading = {"model_init_kwargs": loading_kwargs(settings.model)}
        trainer = GRPOTrainer(
            model=str(initial_model),
            processing_class=load_tokenizer(initial_model),
            args=grpo_config({**settings.training.grpo, "seed": settings.seed, **own, **loading}),
            reward_funcs=[reward.function for reward in rewards],
            train_dataset=load_run_problems(settings, Console()).train,
        )
        trainer.train()
    return trainer.state.log_history


def draw(curves: dict[str, list[float]], file: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.subplots()
    for (name, rewards), (width, colour) in zip(curves.items(), ((4, "#9ecae1"), (1, "#08306b")), strict=True):
        axes.plot(range(1, len(rewards) + 1), rewards, linewidth=width, color=colour, label=name)
    axes.set(xlabel="step", ylabel="mean reward of the sampled answers")
    axes.legend()
    figure.savefig(file, dpi=150)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
