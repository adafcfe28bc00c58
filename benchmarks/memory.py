"""The peak of memory in each phase of a short run, in every form, and in plain TRL beside it.

    python benchmarks/memory.py BASE [--only "n = 0" "plain TRL"] [--json FOUND.json] [words of train]

BASE is a model folder. Each variant is a process of its own: a whole `rlvr-vocab train` of two steps on generated sums,
with a checkpoint, held-out answers before and after, the final model and the report; plain TRL trains BASE
on the same batches and saves the same. GiB as `memory/<phase>` and `peak_memory` are (docs/files.md).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RUN = [
    *("dataset=arithmetic", "dataset.generator.num_problems=100", "dataset.max_eval_samples=4", "logging=disabled"),
    *("training.max_steps=2", "training.save_steps=2", "training.kl_log_steps=0", "seed=0"),
    *("training.max_completion_length=16", "dataset.open_thinking=prefill", "training.per_device_train_batch_size=4"),
    "training.gradient_accumulation_steps=2",  # the second batch's gradient comes upon that of the first
]
FULL, LORA = "model.reasoning_vocab_size=full", "model.lora.enabled=true"
VARIANTS = {
    "n = 0": ["model.reasoning_vocab_size=0"],
    "n = V, independent": [FULL, "model.reasoning_rank=null"],
    "n = V, low rank": [FULL],
    "n = V, frozen": [FULL, "model.reasoning_rank=0"],
    "n = 0, LoRA": ["model.reasoning_vocab_size=0", LORA],
    "n = V, low rank, LoRA": [FULL, LORA],
}
PLAIN = "plain TRL"
PHASES = [
    *("warmup", "expansion", "loading", "generation", "rewards", "logprobs", "forward", "backward", "optimizer"),
    *("evaluation", "saving", "final_model", "report", "other"),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=Path)
    parser.add_argument("--only", nargs="+", default=[*VARIANTS, PLAIN], choices=[*VARIANTS, PLAIN])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--variant", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    arguments, words = parser.parse_known_args()
    words = [*RUN, f"model.name={arguments.base}", *words]
    if arguments.variant:
        measured = of_plain_trl if arguments.variant == PLAIN else of_a_run
        print(json.dumps(measured(arguments.variant, words, arguments.out)))
        return
    found = {variant: in_own_process(variant) for variant in arguments.only}
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(table(found))


def in_own_process(variant: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, *sys.argv, "--variant", variant, "--out", out]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    peaks: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(variant, peaks, file=sys.stderr, flush=True)
    return peaks


def table(found: dict[str, dict[str, float]]) -> str:
    """Markdown: a row for each phase that any of them has, the highest of all last."""
    lines = [f"| | {' | '.join(found)} |", "|---|" + "---:|" * len(found)]
    for phase in [*PHASES, "highest"]:
        figures = [max(peaks.values()) if phase == "highest" else peaks.get(phase) for peaks in found.values()]
        if any(figures):
            lines.append(f"| {phase} | {' | '.join('' if peak is None else f'{peak:.2f}' for peak in figures)} |")
    return "\n".join(lines)


def of_a_run(variant: str, words: list[str], out: Path) -> dict[str, float]:
    from rlvr_vocab.cli import main as cli
    from rlvr_vocab.training.metrics.step_clock import peak_memory

    code = cli(["train", *words, *VARIANTS[variant], f"output_dir={out / 'run'}"])
    if code:
        sys.exit(code)
    peak_memory.enter(None)
    return peak_memory.highest


def of_plain_trl(variant: str, words: list[str], out: Path) -> dict[str, float]:
    from datasets import Dataset
    from rich.console import Console
    from transformers import AutoTokenizer
    from trl import GRPOTrainer

    from rlvr_vocab.config.load import read_settings
    from rlvr_vocab.rewards.build import build_rewards
    from rlvr_vocab.runs.model import loading_kwargs
    from rlvr_vocab.runs.problems import load_run_problems
    from rlvr_vocab.runs.rewards import reward_context
    from rlvr_vocab.training.arguments import grpo_config
    from rlvr_vocab.training.metrics.step_clock import peak_memory

    settings = read_settings("train", [*words, *VARIANTS["n = 0"], f"output_dir={out / 'run'}"])
    base = settings.model.name
    rewards = build_rewards(settings.rewards.functions, reward_context(settings))
    problems: Dataset = load_run_problems(settings, Console(stderr=True)).train
    own = {"output_dir": str(out), "report_to": "none", "eval_strategy": "no", "seed": settings.seed}
    loading = {"model_init_kwargs": loading_kwargs(settings.model)}
    with peak_memory.phase("loading"):
        trainer = GRPOTrainer(
            model=base,
            processing_class=AutoTokenizer.from_pretrained(base),
            args=grpo_config({**settings.training.grpo, **own, **loading}),
            reward_funcs=rewards,
            train_dataset=problems,
        )
    with_phases(trainer)
    trainer.train()
    with peak_memory.phase("final_model"):
        trainer.save_model(str(out / "final_model"))
    peak_memory.enter(None)
    return peak_memory.highest


def with_phases(trainer: Any) -> None:
    """Have TRL's trainer tell its phases."""
    import torch
    from transformers import TrainerCallback

    from rlvr_vocab.training.metrics.step_clock import peak_memory

    for name, phase in {
        "_generate": "generation",
        "_calculate_rewards": "rewards",
        "_compute_loss": "forward",
        "_save_checkpoint": "saving",
    }.items():
        setattr(trainer, name, peak_memory.phase(phase)(getattr(trainer, name)))
    trainer.accelerator.backward = peak_memory.phase("backward")(trainer.accelerator.backward)
    scored = trainer._get_per_token_logps_and_entropies

    def scoring(*args: Any, **kwargs: Any) -> Any:
        with peak_memory.phase("forward" if torch.is_grad_enabled() else "logprobs"):
            return scored(*args, **kwargs)

    trainer._get_per_token_logps_and_entropies = scoring

    class Update(TrainerCallback):
        def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
            peak_memory.enter("optimizer")

        def on_step_end(self, *_: Any, **__: Any) -> None:
            peak_memory.enter(None)

    trainer.add_callback(Update())


if __name__ == "__main__":
    main()
