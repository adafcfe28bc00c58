"""One optimisation step of each variant against one of the baseline (no reasoning tokens), in pairs.

    python benchmarks/step.py [--hidden 512] [--layers 8] [--rows 151936] [--batch 4] [--prompt 192] [--completion 256]
                              [--only "n = V, low rank"] [--pairs 5]

Each run is a process of its own, on the same random model and the same number of tokens, and reports the shortest time
of a step (forward, backward, AdamW), the entropy of the text included, the peak memory beyond parameters, gradients and
optimizer state, and what these take. The first step is not measured: it allocates the optimizer state. Runs of variant
and baseline alternate; what is printed is the median of the ratios of the pairs with a 95 % interval of it (bootstrap).
On a GPU, where there is one, under bfloat16 autocast; else on the CPU in float32.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

VARIANTS = {
    "plain TRL": None,
    "n = 0": {"size": 0},
    **{
        f"n = V, {name}{ending}": {"size": None, "reasoning_rank": rank, "mode": mode}
        for mode, ending in (("expand", ""), ("replace", ", replace"))
        for name, rank in (("independent", None), ("low rank", 16), ("frozen", 0))
    },
}
BASELINE = "n = 0"


def main() -> None:
    arguments = parse()
    if arguments.variant:
        print(json.dumps(measure(arguments)))
        return
    with tempfile.TemporaryDirectory() as folder:
        arguments.folder = folder
        make_base(arguments)
        print(f"{arguments}\n{'variant':<28}{'s/step':>8}{'n=0':>8}{'ratio':>8}   95 %            MiB beyond  state")
        for variant in arguments.only:
            pairs = [paired(arguments, variant, number) for number in range(arguments.pairs)]
            print(summary(variant, pairs), flush=True)


def paired(arguments: argparse.Namespace, variant: str, number: int) -> tuple[dict[str, float], dict[str, float]]:
    """A run of the variant and one of the baseline, the one first or the other."""
    order = (variant, BASELINE) if number % 2 else (BASELINE, variant)
    figures = {name: in_own_process(arguments, name) for name in order}
    return figures[variant], figures[BASELINE]


def summary(variant: str, pairs: list[tuple[dict[str, float], dict[str, float]]]) -> str:
    import numpy as np

    def ratios(name: str) -> np.ndarray:
        return np.array([ours[name] / base[name] for ours, base in pairs])

    of_time = ratios("seconds")
    resampled = np.median(np.random.default_rng(0).choice(of_time, (10_000, len(of_time))), axis=1)
    low, high = np.quantile(resampled, (0.025, 0.975))
    seconds, base = (np.median([pair[which]["seconds"] for pair in pairs]) for which in (0, 1))
    beyond, state = (np.median(ratios(name)) for name in ("peak_mib", "state_values"))
    times = f"{seconds:>8.2f}{base:>8.2f}{np.median(of_time):>8.3f}   {low:.3f} to {high:.3f}"
    return f"{variant:<28}{times}{beyond:>12.2f}{state:>7.3f}"


def parse(description: str | None = __doc__) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("hidden", 512), ("layers", 8), ("rows", 151936), ("batch", 4), ("prompt", 192)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--completion", type=int, default=256)
    parser.add_argument("--heads", type=int, help="half as many for keys and values; by default hidden / 64")
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--thinking", type=float, default=0.75, help="share of completion tokens that is thinking")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=[name for name in VARIANTS if name != BASELINE])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--variant", choices=VARIANTS, help=argparse.SUPPRESS)
    return parser.parse_args()


def in_own_process(arguments: argparse.Namespace, variant: str) -> dict[str, float]:
    options = [
        f"--{name.replace('_', '-')}={value}"
        for name, value in {**vars(arguments), "variant": variant}.items()
        if name not in ("only", "pairs") and value is not None
    ]
    answer = subprocess.run([sys.executable, __file__, *options], stdout=subprocess.PIPE, check=True)
    return json.loads(answer.stdout.splitlines()[-1])


def make_base(arguments: argparse.Namespace) -> None:
    """A Qwen3 of random weights with a real vocabulary's rows, and the embedded model's tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM

    from rlvr_vocab.training.models.tiny import write_tiny_model
    from rlvr_vocab.training.settings import TinyShape

    heads = arguments.heads or max(2, arguments.hidden // 64)
    shape = TinyShape(arguments.hidden, 3 * arguments.hidden, arguments.layers, heads, heads // 2, arguments.head_dim)
    folder = Path(arguments.folder, "base")
    write_tiny_model(folder, shape, ["a benchmark"], ("<think>", "</think>"), seed=0)
    model = AutoModelForCausalLM.from_pretrained(folder)
    model.resize_token_embeddings(arguments.rows, mean_resizing=False)
    model.config.max_position_embeddings = 4096
    if torch.cuda.is_available():
        model.bfloat16()  # it is written and read once for each variant; training makes float32 of it
    model.save_pretrained(folder)


def measure(arguments: argparse.Namespace) -> dict[str, float]:
    from rlvr_vocab.training.metrics.step_clock import GIB, PeakMemory

    trainer, batch, optimizer = ready_to_step(arguments)
    step(trainer, batch, optimizer)
    state = held_bytes() + sum(parameter.numel() * 4 for parameter in trainer.model.parameters())
    memory = PeakMemory()
    memory.enter("steps")
    seconds = []
    for _ in range(arguments.steps):
        started = time.perf_counter()
        step(trainer, batch, optimizer)
        wait_for_device()
        seconds.append(time.perf_counter() - started)
    memory.enter(None)
    peak = memory.highest["steps"] * 1024 - state * 1024 / GIB
    values = 4 * sum(parameter.numel() for parameter in trainer.model.parameters())  # weight, gradient, two moments
    return {"seconds": min(seconds), "peak_mib": peak, "state_values": values}


def ready_to_step(arguments: argparse.Namespace, **grpo):
    """A trainer, a batch on its device, and its optimizer."""
    import torch

    trainer, layout = make_trainer(arguments, **grpo)
    device = trainer.accelerator.device
    batch = {name: values.to(device) for name, values in make_batch(arguments, layout).items()}
    optimizer = torch.optim.AdamW(trainer.model.parameters(), lr=1e-6, fused=True)  # the trainer's default
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    return trainer, batch, optimizer


def make_trainer(arguments: argparse.Namespace, **grpo):
    """The trainer of a variant, with further fields of `GRPOConfig`, and the layout of its rows."""
    import torch
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from rlvr_vocab.training.trainer import RegionGRPOTrainer
    from rlvr_vocab.vocab.expand import Expansion, plan_expansion, write_expansion

    base = Path(arguments.folder, "base")
    settings = {
        "output_dir": str(Path(arguments.folder, "out")),
        "per_device_train_batch_size": arguments.batch,
        "num_generations": max(arguments.batch, 2),
        "gradient_accumulation_steps": 2 if arguments.batch == 1 else 1,  # a group has to fit; what is measured is one
        "max_completion_length": arguments.completion,
        "gradient_checkpointing": False,
        "bf16": torch.cuda.is_available(),
        "use_cpu": not torch.cuda.is_available(),
        "report_to": "none",
        "model_init_kwargs": {"dtype": "float32"},
    }
    common = {
        "args": GRPOConfig(**{**settings, **grpo}),
        "reward_funcs": lambda completions, **_: [0.0] * len(completions),
        "train_dataset": Dataset.from_list([{"prompt": [{"role": "user", "content": "1+1="}]}]),
    }
    options = VARIANTS[arguments.variant]
    plan = plan_expansion(str(base), Expansion(**(options or {})))
    if options is None:
        return GRPOTrainer(model=str(base), **common), plan.layout
    folder = Path(arguments.folder, arguments.variant)
    if not folder.exists():
        write_expansion(plan, folder)
    return RegionGRPOTrainer(folder, **common), plan.layout


def make_batch(arguments: argparse.Namespace, layout):
    """Completions that think, close their thinking and answer, with ids that the policy allows there."""
    import torch

    from rlvr_vocab.vocab.policy import RegionPolicy

    generator = torch.Generator().manual_seed(0)
    bias = RegionPolicy(layout).bias
    tags = torch.tensor([layout.think_open_id, layout.think_close_id])

    def draw(region: int, length: int) -> torch.Tensor:
        allowed = torch.isfinite(bias[region])
        allowed[tags] = False
        ids = allowed.nonzero().squeeze(1)
        return ids[torch.randint(len(ids), (arguments.batch, length), generator=generator)]

    thinking = int(arguments.completion * arguments.thinking)
    opened, closed = tags.repeat(arguments.batch, 1).split(1, dim=1)
    completion = [draw(1, thinking - 1), closed, draw(0, arguments.completion - thinking)]
    prompt = torch.cat([draw(0, arguments.prompt - 1), opened], dim=1)
    completion_ids = torch.cat(completion, dim=1)
    return {
        "prompt_ids": prompt,
        "prompt_mask": torch.ones_like(prompt),
        "completion_ids": completion_ids,
        "completion_mask": torch.ones_like(completion_ids),
        "sampled_mask": torch.ones_like(completion_ids),
        "advantages": torch.randn(arguments.batch, generator=generator),
        "num_items_in_batch": torch.tensor(completion_ids.numel()),
    }


def step(trainer, batch, optimizer, phase=lambda name: nullcontext()) -> None:
    with phase("forward"):
        loss = trainer.compute_loss(trainer.model, batch)
    with phase("backward"):
        loss.backward()
    with phase("optimizer"):
        optimizer.step()
        optimizer.zero_grad()


def wait_for_device() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def held_bytes() -> int:
    """What torch has allocated on the GPU, or the resident pages of this process."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.memory_allocated()
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


if __name__ == "__main__":
    main()
