"""Peak memory, trainable parameters, saved bytes and step time: the whole model, LoRA with rows, 8 bit and 4 bit.

    python benchmarks/lora.py MODEL [--completions 8] [--tokens 64] [--steps 4] [--frozen float32] [--only NAME]

MODEL is a folder or a hub name, given a copy of every token. Each variant runs in a process of its own: GRPO steps of
the trainer, sampling included. Peak memory is what training allocates at most beyond what the process holds before a
model is loaded, files that are only mapped left out (on a GPU: of the allocator); step time is the shortest after the
first. `rows by a mask` is the form that was given up:
the whole table trains, and a hook takes away the gradient of its standard rows.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

VARIANTS: dict[str, dict[str, Any]] = {
    "whole model": {},
    "LoRA": {"train_rows": "none"},
    "LoRA, reasoning rows": {"train_rows": "reasoning"},
    "LoRA, rows by a mask": {"train_rows": "none", "mask": True},
    "LoRA, all rows": {"train_rows": "all"},
    "8 bit, LoRA, reasoning rows": {"train_rows": "reasoning", "bits": 8},
    "4 bit, LoRA, reasoning rows": {"train_rows": "reasoning", "bits": 4},
}


def main() -> None:
    arguments = parse()
    if arguments.variant:
        print(json.dumps(measure(arguments, **VARIANTS[arguments.variant])))
        return
    with tempfile.TemporaryDirectory() as folder:
        arguments.folder = folder
        expand(arguments)
        print("| variant | trains | saved | peak memory | step |\n|---|---|---|---|---|", flush=True)
        for name in [arguments.only] if arguments.only else VARIANTS:
            figure = in_own_process(arguments, name)
            print(
                f"| {name} | {figure['trained'] / 1e6:.1f} M | {figure['saved'] / 1e6:.0f} MB "
                f"| {figure['peak'] / 1e6:,.0f} MB | {figure['seconds']:.2f} s |",
                flush=True,
            )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--completions", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--frozen", default="float32", help="type of frozen weights; bfloat16 on a GPU")
    parser.add_argument("--only", choices=VARIANTS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--variant", choices=VARIANTS, help=argparse.SUPPRESS)
    return parser.parse_args()


def in_own_process(arguments: argparse.Namespace, variant: str) -> dict[str, float]:
    given = {name: value for name, value in vars(arguments).items() if name not in ("model", "only", "variant")}
    options = [f"--{name}={value}" for name, value in {**given, "variant": variant}.items()]
    command = [sys.executable, __file__, arguments.model, *options]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise SystemExit(f"{variant}: {answer.stderr[-2000:]}")
    return json.loads(answer.stdout.splitlines()[-1])


def expand(arguments: argparse.Namespace) -> None:
    from rlvr_vocab.vocab.expand import Expansion, plan_expansion, write_expansion

    plan = plan_expansion(arguments.model, Expansion(size=None, open_thinking="prefill"))
    write_expansion(plan, Path(arguments.folder, "initial_model"))


def measure(
    arguments: argparse.Namespace, train_rows: Any = None, bits: int = 0, mask: bool = False
) -> dict[str, float]:
    import torch
    from datasets import Dataset

    from rlvr_vocab.training.arguments import grpo_config
    from rlvr_vocab.training.settings import Lora
    from rlvr_vocab.training.trainer import RegionGRPOTrainer

    on_gpu = torch.cuda.is_available()
    before = 0 if on_gpu else allocated()
    out = Path(arguments.folder, arguments.variant.replace(" ", "_"))
    options = {
        "output_dir": str(out),
        "max_steps": arguments.steps,
        "per_device_train_batch_size": arguments.completions,
        "num_generations": arguments.completions,
        "max_completion_length": arguments.tokens,
        "learning_rate": 1e-4,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": not on_gpu,
        "bf16": on_gpu,
        "gradient_checkpointing": False,
        "model_init_kwargs": {"dtype": arguments.frozen if train_rows else "float32"},
    }
    problems = [{"prompt": [{"role": "user", "content": f"What is {number} + 4?"}]} for number in range(64)]
    trainer = RegionGRPOTrainer(
        Path(arguments.folder, "initial_model"),
        args=grpo_config(options),
        peft_config=None if train_rows is None else Lora(train_rows=train_rows),
        quantization_config=quantization(bits, arguments.frozen),
        reward_funcs=[every_other],
        train_dataset=Dataset.from_list(problems),
    )
    if mask:
        train_the_table_under_a_mask(trainer)
    watch = Watch()
    trainer.train()
    peak = torch.cuda.max_memory_allocated() if on_gpu else watch.peak - before
    trainer.save_model(str(out / "saved"))
    return {
        "trained": sum(parameter.numel() for parameter in trainer.model.parameters() if parameter.requires_grad),
        "saved": sum(file.stat().st_size for file in (out / "saved").glob("*.safetensors")),
        "peak": peak,
        "seconds": min(row["step_time"] for row in trainer.state.log_history[1:] if "step_time" in row),
    }


def quantization(bits: int, compute_dtype: str) -> Any:
    import torch
    from transformers import BitsAndBytesConfig

    if bits == 4:
        return BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=getattr(torch, compute_dtype),
        )
    return BitsAndBytesConfig(load_in_8bit=True) if bits == 8 else None


def train_the_table_under_a_mask(trainer: Any) -> None:
    table = trainer.model.get_input_embeddings().weight
    table.data = table.data.float()
    table.requires_grad_()

    def without_standard_rows(gradient: Any) -> Any:
        gradient[: trainer.policy.layout.standard_size] = 0
        return gradient

    table.register_hook(without_standard_rows)


def every_other(completions: list[Any], **_: Any) -> list[float]:
    return [float(number % 2) for number, _ in enumerate(completions)]


class Watch(threading.Thread):
    """Looks fifty times a second at what the process has allocated."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0
        self.start()

    def run(self) -> None:
        while True:
            self.peak = max(self.peak, allocated())
            time.sleep(0.02)


def allocated() -> int:
    """Bytes of main memory that belong to the process alone; Linux."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return 1024 * int(re.search(r"RssAnon:\s+(\d+)", status)[1])


if __name__ == "__main__":
    main()
