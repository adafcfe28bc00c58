"""An optimisation step and sampling in every form of the reasoning rows, beside plain TRL, with and without vLLM.

    python benchmarks/gpu.py [--shape 0.6B 1.7B] [--only "plain TRL" "n = 0"] [--minutes 25] [--out out/benchmark_gpu]

The shapes are those of Qwen3-0.6B and Qwen3-1.7B, tied, with 151,936 rows; weights are random and made on the spot.
Without a GPU the shape is `toy`, so that every line of this has run somewhere. Each variant is a process of its own.
What it measured goes into one JSON file at once, and the same command goes on where it was stopped; the traces of
`torch.profiler` (a step, and eight tokens of sampling; chrome://tracing opens them) lie beside it. A variant for which
the memory is too small is a row that says so.

A step is forward, backward and AdamW on a batch of completions that think for three quarters of their length; the first
one is not timed, nor is the first sampling. Tokens are those of completions. The share of the peak counts what the
*plain* model needs, forward and three times that for a step, no copy and nothing computed twice: rows of one shape are
comparable. Memory is what torch has allocated on the GPU (on a CPU resident pages), the highest in each phase, in GiB.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import step as one_step

from rlvr_vocab.plan.devices import card_called


def qwen3(hidden: int) -> dict[str, int]:
    body = {"hidden": hidden, "layers": 28, "rows": 151_936, "heads": 16, "head_dim": 128}
    return {**body, "batch": 8, "prompt": 256, "completion": 512, "sampled": 128}


TOY = {"hidden": 64, "layers": 2, "rows": 2048, "heads": 2, "head_dim": 64}
SHAPES = {
    "toy": {**TOY, "batch": 2, "prompt": 16, "completion": 32, "sampled": 16},
    "0.6B": qwen3(1024),
    "1.7B": qwen3(2048),
}
VLLM = " + vLLM"
VARIANTS = (
    *one_step.VARIANTS,
    *(f"{name}{VLLM}" for name in ("plain TRL", "n = 0", "n = V, low rank", "n = V, independent")),
)
STEPS = 3
PROFILED_TOKENS = 8
PHASES = ("sampling", "forward", "backward", "optimizer")
NOT_ENOUGH_MEMORY, NO_VLLM = "not enough memory", "vLLM is not installed here"


@dataclass(frozen=True)
class Results:
    """The JSON file of one device, and the folder of its traces."""

    file: Path

    def read(self) -> dict[str, Any]:
        return json.loads(self.file.read_text()) if self.file.is_file() else {"machine": machine(), "rows": {}}

    def has(self, key: str, setting: dict[str, int]) -> bool:
        """Whether it was measured in this setting, or the memory did not suffice for it."""
        row = self.read()["rows"].get(key)
        return row is not None and row["setting"] == setting and row.get("failed") in (None, NOT_ENOUGH_MEMORY)

    def keep(self, key: str, row: dict[str, Any]) -> None:
        content = self.read()
        content["rows"][key] = row
        self.file.parent.mkdir(parents=True, exist_ok=True)
        aside = self.file.with_suffix(".new")
        aside.write_text(json.dumps(content, indent=1))
        aside.replace(self.file)

    def traces(self, key: str) -> str:
        return str(self.file.with_suffix("") / slug(key))


def main() -> int:
    arguments = parse()
    if arguments.variant:
        print(json.dumps(measure(arguments)))
        return 0
    results = Results(Path(arguments.out, f"{slug(device_name())}.json"))
    until = time.monotonic() + 60 * arguments.minutes
    failed = [key for shape in arguments.shape for key in run_shape(shape, arguments.only, results, until)]
    print(table(results.read()))
    print(f"{results.file}; traces in {results.file.with_suffix('')}")
    print("".join(f"failed: {key}\n" for key in failed), end="", file=sys.stderr)
    return int(bool(failed))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", nargs="+", choices=SHAPES, default=None)
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--minutes", type=float, default=24 * 60, help="then stop; the same command goes on")
    parser.add_argument("--out", default="out/benchmark_gpu")
    for name in ("variant", "folder", "traces"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.shape = arguments.shape or (["0.6B", "1.7B"] if has_gpu() else ["toy"])
    return arguments


def run_shape(shape: str, variants: list[str], results: Results, until: float) -> list[str]:
    """Measure what is not there yet. Returns the keys that failed."""
    setting, failed = SHAPES[shape], []
    missing = [each for each in variants if not results.has(f"{shape}: {each}", setting)]
    with tempfile.TemporaryDirectory() as folder:
        for variant in missing:
            key = f"{shape}: {variant}"
            if variant.endswith(VLLM) and find_spec("vllm") is None:
                row = {"failed": NO_VLLM}
            else:
                row = in_own_process(shape, variant, folder, results.traces(key), until)
            if row is None:
                print(f"{key}: no time left; the same command goes on here", flush=True)
                break
            results.keep(key, {"setting": setting, **row})
            print(f"{key}: {row.get('failed') or 'measured'}", flush=True)
            if row.get("failed") not in (None, NOT_ENOUGH_MEMORY, NO_VLLM):
                failed.append(key)
            for made in Path(folder).iterdir():  # the variant's own model; the next one needs the room
                if made.name != "base":
                    shutil.rmtree(made)
    return failed


def in_own_process(shape: str, variant: str, folder: str, traces: str, until: float) -> dict[str, Any] | None:
    """What a variant measured, or why it did not; None where the time is up."""
    options = {"shape": shape, "variant": variant, "folder": folder, "traces": traces}
    words = [sys.executable, __file__, *(word for name, value in options.items() for word in (f"--{name}", value))]
    left = until - time.monotonic()
    if left <= 0:
        return None
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=left)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode == 0:
        return json.loads(next(line for line in reversed(done.stdout.splitlines()) if line.startswith("{")))
    if done.returncode == -9:  # a CPU's memory: nobody but the kernel says so
        return {"failed": NOT_ENOUGH_MEMORY}
    return {"failed": f"exit code {done.returncode}"}


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """In this process; `failed` says that the memory did not suffice, and the phases how far it came."""
    from rlvr_vocab.errors import is_out_of_memory
    from rlvr_vocab.training.metrics.step_clock import PeakMemory

    [shape] = arguments.shape
    variant = arguments.variant.removesuffix(VLLM)
    setting = argparse.Namespace(**SHAPES[shape], thinking=0.75, folder=arguments.folder, variant=variant)
    memory = PeakMemory()
    row: dict[str, Any] = {}
    try:
        figures(setting, arguments.variant.endswith(VLLM), Path(arguments.traces), memory, row)
    except MemoryError:
        row["failed"] = NOT_ENOUGH_MEMORY
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        row["failed"] = NOT_ENOUGH_MEMORY
    return {**row, "gib": memory.highest}


def figures(setting: argparse.Namespace, by_vllm: bool, traces: Path, memory: Any, row: dict[str, Any]) -> None:
    """Fill the row as far as the memory suffices."""
    if not Path(setting.folder, "base").exists():
        one_step.make_base(setting)
    vllm = {"use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.3} if by_vllm else {}
    vllm |= {"vllm_importance_sampling_correction": False}  # what it corrects by comes with a rollout, not with a batch
    with memory.phase("loading"):
        trainer, batch, optimizer = one_step.ready_to_step(setting, max_completion_length=setting.sampled, **vllm)
    flops = plain_flops(setting)
    prompts = batch["prompt_ids"].tolist()

    def sample() -> int:
        ids, _ = trainer._generate_single_turn(prompts, None, {}, setting.batch)
        return sum(map(len, ids))

    with memory.phase("sampling"):
        sample()
        seconds, tokens = timed(sample)
    row["sampling"] = {"seconds": seconds, "tokens_per_second": tokens / seconds}
    row["sampling"]["share_of_peak"] = share(flops["token"] * tokens, seconds)
    if by_vllm:
        row["weight_sync_seconds"], _ = timed(trainer.vllm_generation.sync_weights)
    one_step.step(trainer, batch, optimizer)  # allocates the state of the optimizer
    spent = [seconds_of_phases(trainer, batch, optimizer, memory) for _ in range(STEPS)]
    seconds = median(sum(each.values()) for each in spent)
    row["step"] = {name: median(each[name] for each in spent) for name in spent[0]}
    row["step"] |= {"seconds": seconds, "tokens_per_second": setting.batch * setting.completion / seconds}
    row["step"]["share_of_peak"] = share(flops["step"], seconds)
    profile(lambda: one_step.step(trainer, batch, optimizer), traces, "step")
    if not by_vllm:
        trainer.generation_config.max_new_tokens = PROFILED_TOKENS
        profile(sample, traces, "sampling")


def seconds_of_phases(trainer: Any, batch: Any, optimizer: Any, memory: Any) -> dict[str, float]:
    seconds: dict[str, float] = {}

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        with memory.phase(name):
            one_step.wait_for_device()
            began = time.perf_counter()
            yield
            one_step.wait_for_device()
            seconds[name] = time.perf_counter() - began

    one_step.step(trainer, batch, optimizer, phase)
    return seconds


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    one_step.wait_for_device()
    began = time.perf_counter()
    value = function()
    one_step.wait_for_device()
    return time.perf_counter() - began, value


def profile(function: Callable[[], Any], traces: Path, name: str) -> None:
    from torch.profiler import ProfilerActivity, profile

    traces.mkdir(parents=True, exist_ok=True)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if has_gpu() else [])]
    with profile(activities=activities) as trace:
        function()
        one_step.wait_for_device()
    trace.export_chrome_trace(str(traces / f"{name}.json.gz"))


def plain_flops(setting: argparse.Namespace) -> dict[str, float]:
    """Floating-point operations of the model without copies: of a step, and of a token that is sampled.

    Twice the weights for each token that they multiply, and 4 · layers · heads · head_dim · (tokens before it) for its
    attention; backward twice as much as forward. The head multiplies the tokens of completions alone. A sampled token
    is taken to stand in the middle of its completion, and its prompt to have been read without the head.
    """
    hidden, width = setting.hidden, setting.heads * setting.head_dim
    of_layers = (
        2 * setting.layers * hidden * (2 * width + width + 9 * hidden)
    )  # q, o; k and v of half the heads; 3 · 3h
    of_head = 2 * hidden * setting.rows
    length = setting.prompt + setting.completion

    def attention(before: float) -> float:
        return 4 * setting.layers * width * before

    forward = setting.batch * (length * (of_layers + attention(length / 2)) + setting.completion * of_head)
    of_prompt = setting.prompt * (of_layers + attention(setting.prompt / 2))
    of_sampled = of_layers + of_head + attention(setting.prompt + setting.sampled / 2)
    return {"step": 3 * forward, "token": of_sampled + of_prompt / setting.sampled}


def share(flops: float, seconds: float) -> float | None:
    card = card_called(device_name())
    return None if card is None else flops / seconds / card.flops


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def device_name() -> str:
    import torch

    return torch.cuda.get_device_name() if has_gpu() else "CPU"


def machine() -> dict[str, Any]:
    names = [name for name in ("torch", "transformers", "trl", "vllm") if find_spec(name)]
    card = card_called(device_name())
    peak = None if card is None else card.flops
    return {"device": device_name(), "peak_flops": peak, "versions": {name: version(name) for name in names}}


def slug(name: str) -> str:
    return re.sub(r"\W+", "_", name).strip("_")


# Heading, format, and where in a row.
COLUMNS = (
    ("sampled/s", "11,.0f", "sampling", "tokens_per_second"),
    ("of peak", "9.2%", "sampling", "share_of_peak"),
    ("s/step", "9.3f", "step", "seconds"),
    ("trained/s", "11,.0f", "step", "tokens_per_second"),
    ("of peak", "9.2%", "step", "share_of_peak"),
    *((name, "10.2f", "gib", name) for name in PHASES),
)


def table(content: dict[str, Any]) -> str:
    """One line for each row: rates, shares of the peak, and the highest memory of each phase in GiB."""
    heads = "".join(f"{head:>{width(form)}}" for head, form, *_ in COLUMNS)
    lines = [json.dumps(content["machine"]), f"{'':<44}{heads}"]
    order = [f"{shape}: {variant}" for shape in SHAPES for variant in VARIANTS]
    for key, row in sorted(content["rows"].items(), key=lambda item: order.index(item[0])):
        values = ((form, row.get(part, {}).get(name)) for _, form, part, name in COLUMNS)
        cells = "".join(" " * width(form) if value is None else f"{value:{form}}" for form, value in values)
        lines.append(f"{key:<44}{cells}  {row.get('failed', '')}".rstrip())
    return "\n".join(lines)


def width(form: str) -> int:
    return int(re.match(r"\d+", form)[0])


if __name__ == "__main__":
    raise SystemExit(main())
