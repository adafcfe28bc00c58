"""Compiles the kernels of the log-prob function for GPUs that are not here, as they would be launched.

    python tests/vocab/compile_kernels.py

Scores a few cases with kernels that do nothing but take down what they are called with, and compiles each variant once
for each compute capability. Prints the name of a kernel for each. Triton's interpreter must be off.
"""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import mangle_type

from rlvr_vocab.vocab import head_logits, logprob_kernels, logprobs
from tests.vocab import test_logprobs

CASES = ((64, "low_rank", "all", True), (70, "independent", "KL of texts", False))


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


def launched() -> list[TakenDown]:
    """The kernels, with what they were launched for."""
    kernels = [TakenDown(logprob_kernels._add_to_sums), TakenDown(logprob_kernels._gradients_of_products)]
    logprob_kernels._add_to_sums, logprob_kernels._gradients_of_products = kernels
    logprobs._TOKENS_PER_BLOCK, head_logits._ROWS_PER_BLOCK = 1024, 10_000
    logprobs.whole_in_zero3 = lambda *parameters: nullcontext()  # spares importing TRL
    for standard, form, used, is_bfloat16 in CASES:
        test_logprobs.STANDARD = standard
        test_logprobs.SOURCES["all"] = tuple(range(standard))
        case = test_logprobs.Case(form, sources="all")
        with test_logprobs.block_form("triton"), torch.autocast("cpu", torch.bfloat16, is_bfloat16):
            scores = case.scores(test_logprobs.CAPPED)
        case.gradients(scores, test_logprobs.UPSTREAM[used])
    return kernels


if __name__ == "__main__":
    for kernel in launched():
        for variant, capability in itertools.product(kernel.variants.values(), (80, 90)):
            made = triton.compile(ASTSource(kernel.kernel, **variant), target=GPUTarget("cuda", capability, 32))
            print(kernel.kernel.fn.__name__ if made.asm["cubin"] else "nothing", flush=True)
