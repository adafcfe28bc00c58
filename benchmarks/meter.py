"""What the meter of the hidden channel adds to an optimisation step on a CPU, with a copy of every token.

    python benchmarks/meter.py [--pairs 20] [--only "n = V, low rank"] [the shape, as in benchmarks/step.py]

The meter is `hidden/capacity` and `hidden/bound`: the sum of p(text) · log m(text) in each scoring, and what is logged
of it. In one process steps with it and without it follow each other in pairs, the one first or the other. Printed are
the medians of the pairs' ratios with 95 % intervals (bootstrap), of processor time, which other processes disturb less
than seconds, and of seconds.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from functools import lru_cache

import numpy as np
from step import VARIANTS, make_base, parse, ready_to_step, step

from rlvr_vocab.training.metrics import batch as metrics


def main() -> None:
    arguments = parse(__doc__)
    with tempfile.TemporaryDirectory() as arguments.folder:
        make_base(arguments)
        print(f"{arguments}\n{'variant':<28}ratio of processor time    ratio of seconds")
        for variant in filter(has_copies, arguments.only):
            arguments.variant = variant
            ratios = measure(arguments)
            print(f"{variant:<28}{median(ratios[:, 0])}    {median(ratios[:, 1])}", flush=True)


def has_copies(variant: str) -> bool:
    options = VARIANTS[variant]
    return options is not None and options["size"] != 0


def measure(arguments: argparse.Namespace) -> np.ndarray:
    """`(pairs, 2)`: how many times as long a step with the meter takes, in time of the processor and in seconds."""
    trainer, batch, optimizer = ready_to_step(arguments)
    blocks, log = trainer.policy.text_blocks, metrics.hidden_channel_sums
    meters = {True: (blocks, log), False: (without_capacity(blocks), lambda *_: {})}

    def timed(metered: bool) -> np.ndarray:
        trainer.policy.text_blocks, metrics.hidden_channel_sums = meters[metered]
        before = np.array([time.process_time(), time.perf_counter()])
        step(trainer, batch, optimizer)
        return np.array([time.process_time(), time.perf_counter()]) - before

    timed(True), timed(False)  # allocate what later steps find there
    pairs = []
    for number in range(arguments.pairs):
        took = {metered: timed(metered) for metered in ((True, False) if number % 2 else (False, True))}
        pairs.append(took[True] / took[False])
    return np.array(pairs)


def without_capacity(text_blocks):
    return lru_cache(lambda *args: [replace(block, log_open=None) for block in text_blocks(*args)])


def median(ratios: np.ndarray) -> str:
    resampled = np.median(np.random.default_rng(0).choice(ratios, (10_000, len(ratios))), axis=1)
    low, high = np.quantile(resampled, (0.025, 0.975))
    return f"{np.median(ratios):.3f} ({low:.3f} to {high:.3f})"


if __name__ == "__main__":
    main()
