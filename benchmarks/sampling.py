"""Sampling under the region policy against plain sampling of the same expanded model.

    python benchmarks/sampling.py MODEL_FOLDER [--tokens 1024] [--batch 4] [--rounds 3]

MODEL_FOLDER is a base model (SmolLM2, say); it is expanded with a copy of every token. Both samplers run in turn on
the same prompt, `rounds` times, and never stop early; the medians are compared.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

import torch
from transformers import AutoModelForCausalLM

from rlvr_vocab.vocab.expand import Expansion, plan_expansion, write_expansion
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.sampling import attach_region_sampler
from rlvr_vocab.vocab.tokenizer import load_tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    for name, default in (("tokens", 1024), ("batch", 4), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "expanded")
        plan = plan_expansion(arguments.model, Expansion(size=None))
        write_expansion(plan, folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        tokenizer = load_tokenizer(folder)
    question = [{"role": "user", "content": "How many primes are there below one hundred?"}]
    prompt = tokenizer.apply_chat_template(
        [question] * arguments.batch, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )

    def seconds(generate) -> float:
        torch.manual_seed(0)
        started = time.perf_counter()
        length = {"max_new_tokens": arguments.tokens, "min_new_tokens": arguments.tokens}
        generate(**prompt, **length, do_sample=True, temperature=1.0, top_k=0, top_p=1.0)
        return time.perf_counter() - started

    plain = model.generate
    sampler = attach_region_sampler(model, RegionPolicy(plan.layout))

    def recording(**kwargs) -> None:
        with sampler.recording():
            sampler(**kwargs)

    samplers = {"plain sampling": plain, "region policy": sampler, "region policy, log-probs recorded": recording}
    times = {name: [] for name in samplers}
    for _ in range(arguments.rounds):
        for name, generate in samplers.items():
            times[name].append(seconds(generate))
    base = median(times["plain sampling"])
    for name, rounds in times.items():
        print(f"{name:<36}{median(rounds):>8.2f} s{median(rounds) / base - 1:>+8.1%}   {[round(t, 2) for t in rounds]}")


if __name__ == "__main__":
    main()
