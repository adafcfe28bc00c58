"""Tokens per second of vLLM on an expanded model, with the region policy in force and without.

    python benchmarks/vllm_overhead.py MODEL [--requests 64] [--tokens 64] [--repeats 8] [--dtype bfloat16]

MODEL is a folder that `rlvr-vocab expand` wrote. Both sides are one engine: for the side without, the processor's two
hooks return at once, so that the model, its rows, the batch and the sampler are the same. Half of the prompts end in
thinking. The sides take turns. Other work on the machine moves the rates of whole runs; the share of the time that
passes inside the hooks it hardly moves.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the hooks are switched in this process
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")


PROCESSOR = "NamedVLLMRegionProcessor"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--dtype", default="bfloat16")
    arguments = parser.parse_args()

    from vllm import LLM, SamplingParams

    from rlvr_vocab.vocab.layout import VocabLayout

    layout = VocabLayout.load(arguments.model)
    llm = LLM(arguments.model, dtype=arguments.dtype, max_model_len=1024, max_num_seqs=arguments.requests)
    prompts = [{"prompt_token_ids": prompt(layout, number)} for number in range(arguments.requests)]
    # A seed for the engine alone: what is sampled differs between the sides, its amount does not.
    params = SamplingParams(temperature=1.0, max_tokens=arguments.tokens, ignore_eos=True)
    worker = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker
    (processor,) = [one for one in worker.model_runner.input_batch.logitsprocs.all if type(one).__name__ == PROCESSOR]
    hooks, in_all = Hooks(processor), 0.0
    rates: dict[bool, list[float]] = {True: [], False: []}
    for number in range(2 * arguments.repeats + 2):
        with_policy = (number + number // 2) % 2 == 0  # with, without, without, with, …
        hooks.switch(with_policy)
        seconds = seconds_for(llm, prompts, params)
        if number < 2:  # the first of each side warms up
            hooks.seconds = 0.0
        else:
            in_all += seconds if with_policy else 0.0
            rates[with_policy].append(arguments.requests * arguments.tokens / seconds)
    report(arguments, rates, hooks.seconds / in_all)


def prompt(layout: Any, number: int) -> list[int]:
    start = [*range(1000 + number, 1040 + number), *layout.turn_ids]
    return [*start, layout.think_open_id] if number % 2 else start


def seconds_for(llm: Any, prompts: list[Any], params: Any) -> float:
    start = time.perf_counter()
    llm.generate(prompts, params, use_tqdm=False)
    return time.perf_counter() - start


class Hooks:
    """The processor's hooks of one step, switched on and off, and the time spent in them."""

    def __init__(self, processor: Any) -> None:
        self.seconds = 0.0
        self._update, self._apply = processor.update_state, processor.apply
        self._processor = processor

    def switch(self, on: bool) -> None:
        if on:
            self._processor.update_state, self._processor.apply = self._timed(self._update), self._timed(self._apply)
        else:  # additions and removals still have to be followed
            self._processor.update_state = lambda change: self._update(change) if change else None
            self._processor.apply = lambda logits: logits

    def _timed(self, hook: Any) -> Any:
        def run(argument: Any) -> Any:
            start = time.perf_counter()
            result = hook(argument)
            self.seconds += time.perf_counter() - start
            return result

        return run


def report(arguments: argparse.Namespace, rates: dict[bool, list[float]], in_hooks: float) -> None:
    medians = {side: statistics.median(values) for side, values in rates.items()}
    for side, name in ((False, "without"), (True, "with")):
        values = rates[side]
        print(f"{name:8} {medians[side]:8.1f} tokens/s  ({min(values):.1f} … {max(values):.1f}, {len(values)} runs)")
    overhead = medians[False] / medians[True] - 1
    best = max(rates[False]) / max(rates[True]) - 1
    print(f"overhead {overhead:.1%} of the medians, {best:.1%} of the fastest runs ({arguments.dtype})")
    print(f"of the time with the policy, {in_hooks:.1%} was spent in its hooks")


if __name__ == "__main__":
    main()
