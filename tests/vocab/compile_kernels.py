"""Compiles the kernels of the log-prob function for GPUs that are not here, as they would be launched.

    python tests/vocab/compile_kernels.py 80,90 [few]

Scores a few cases with kernels that do nothing but take down what they are called with, and compiles each variant once
for each compute capability. Prints a JSON line for each. Triton's interpreter must be off.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import mangle_type

from rlvr_vocab.vocab import head_logits, logprob_kernels, logprobs
from tests.vocab import test_logprobs

STANDARD = (64, 70)  # with places of pieces that a load of 16 bytes can begin at, and others
CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


class TakenDown:
    """Stands for a kernel: `variants` holds what it would be compiled for."""

    def __init__(self, kernel: Any) -> None:
        self.kernel, self.variants = kernel, dict[str, dict[str, Any]]()

    def __getitem__(self, grid: object) -> TakenDown:
        return self

    def __call__(self, *args: Any, **flags: Any) -> None:
        given = dict(zip(self.kernel.arg_names, args, strict=False))
        pointers = [name for name, each in given.items() if isinstance(each, torch.Tensor)]
        variant = {
            "signature": {
                **{name: mangle_type(each) for name, each in given.items()},
                **dict.fromkeys(flags, "constexpr"),
            },
            "constexprs": flags,
            "attrs": {(self.kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in pointers},
        }
        self.variants[repr(variant)] = variant


def launched(few: bool) -> list[TakenDown]:
    """The kernels, with what they were launched for."""
    kernels = [TakenDown(logprob_kernels._add_to_sums), TakenDown(logprob_kernels._gradients_of_products)]
    logprob_kernels._add_to_sums, logprob_kernels._gradients_of_products = kernels
    logprobs._TOKENS_PER_BLOCK, head_logits._ROWS_PER_BLOCK = 1024, 10_000
    logprobs.whole_in_zero3 = lambda *parameters: nullcontext()  # spares importing TRL
    passes = [
        (test_logprobs.CAPPED, "all", torch.bfloat16),
        (test_logprobs.CAPPED, "KL of texts", torch.float32),
        (test_logprobs.PLAIN, "log-probs", torch.bfloat16),
    ]
    for standard in STANDARD[: 1 if few else None]:
        test_logprobs.STANDARD = standard
        test_logprobs.SOURCES.update({"all, thrice": tuple(range(standard)) * 3, "all": tuple(range(standard))})
        every = itertools.product(test_logprobs.FORMS, ("expand", "replace"), ("none", "all", "all, thrice"), passes)
        for form, mode, sources, (settings, used, dtype) in (
            [("low_rank", "expand", "all", passes[0])] if few else every
        ):
            if sources != "none" or form == "independent":
                case = test_logprobs.Case(form, mode, sources)
                with logprobs.block_form("triton"), torch.autocast("cpu", torch.bfloat16, dtype == torch.bfloat16):
                    scores = case.scores(settings)
                case.gradients(scores, test_logprobs.UPSTREAM[used])
    return kernels


def compiled(kernel: TakenDown, variant: dict[str, Any], capability: int) -> dict[str, Any]:
    made = triton.compile(ASTSource(kernel.kernel, **variant), target=GPUTarget("cuda", capability, 32))
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        usage = subprocess.run([CUOBJDUMP, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    registers, stack = map(int, re.search(r"REG:(\d+) STACK:(\d+)", usage).groups())
    return {
        "kernel": kernel.kernel.fn.__name__,
        "capability": capability,
        **variant["constexprs"],
        "cubin": len(made.asm["cubin"]),
        "registers": registers,
        "stack": stack,
        "wide_loads": len(re.findall(r"ld\.global\S*\.v4\.", made.asm["ptx"])),
    }


if __name__ == "__main__":
    capabilities, *words = sys.argv[1:]
    for kernel in launched(few="few" in words):
        for variant, capability in itertools.product(kernel.variants.values(), map(int, capabilities.split(","))):
            print(json.dumps(compiled(kernel, variant, capability)), flush=True)
