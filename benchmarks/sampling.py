"""Sampling with a copy of every token, under the region policy, against the base model without any.

    python benchmarks/sampling.py MODEL_FOLDER [--ranks 16] [--tokens 1024] [--batch 4] [--rounds 5]

MODEL_FOLDER is a base model (SmolLM2, say). Held as it is in training, it samples as training does, log-probabilities
and entropies recorded, and the base samples as stock Transformers does, in turn and on the same prompt, opened for
thinking, `rounds` times; neither stops early. The median of the rounds' ratios is printed with a 95 % interval.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from rlvr_vocab.vocab.copied_rows import attach_low_rank_rows
from rlvr_vocab.vocab.expand import Expansion, plan_expansion, write_expansion
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.sampling import attach_region_sampler
from rlvr_vocab.vocab.tokenizer import load_tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--ranks", nargs="+", type=int, default=[16])
    for name, default in (("tokens", 1024), ("batch", 4), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    base = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32).eval()
    print(f"{'rank':<14}{'base s':>8}{'held s':>8}{'ratio':>8}   95 % of the median's resamples", flush=True)
    for rank in arguments.ranks:
        prompt, sample = held_sampler(arguments, rank)
        times = [(seconds(base.generate, prompt, arguments), seconds(sample, prompt, arguments))]
        for number in range(arguments.rounds):  # the first pair is not counted
            order = (base.generate, sample) if number % 2 else (sample, base.generate)
            measured = {generate: seconds(generate, prompt, arguments) for generate in order}
            times.append((measured[base.generate], measured[sample]))
        of_base, of_held = zip(*times[1:], strict=True)
        ratios = np.array(of_held) / np.array(of_base)
        resampled = np.median(np.random.default_rng(0).choice(ratios, (10_000, len(ratios))), axis=1)
        low, high = np.quantile(resampled, (0.025, 0.975))
        print(
            f"{rank:<14}{median(of_base):>8.2f}{median(of_held):>8.2f}{median(ratios):>8.3f}   {low:.3f} to {high:.3f}",
            flush=True,
        )


def held_sampler(arguments: argparse.Namespace, rank: int):
    """The prompt's ids, and what samples after them as training does."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, str(rank))
        plan = plan_expansion(arguments.model, Expansion(size=None, reasoning_rank=rank, open_thinking="model"))
        write_expansion(plan, folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        attach_low_rank_rows(model, folder)
        tokenizer = load_tokenizer(folder)
    question = [{"role": "user", "content": "How many primes are there below one hundred?"}]
    ids = tokenizer.apply_chat_template(
        [question] * arguments.batch, add_generation_prompt=True, return_tensors="pt", return_dict=False
    )
    # Opened for thinking, so that all copies are open. The base need not know the tag: there another id stands for it.
    opened = torch.full((arguments.batch, 1), plan.layout.think_open_id)
    ids = torch.cat([ids, torch.zeros_like(opened)], dim=1)
    sampler = attach_region_sampler(model, RegionPolicy(plan.layout))

    def sample(input_ids: torch.Tensor, **kwargs) -> None:
        with sampler.recording():
            sampler(torch.cat([input_ids[:, :-1], opened], dim=1), **kwargs)

    return ids, sample


def seconds(generate, prompt: torch.Tensor, arguments: argparse.Namespace) -> float:
    torch.manual_seed(0)
    never_ends = {"max_new_tokens": arguments.tokens, "eos_token_id": -1}
    started = time.perf_counter()
    generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        **never_ends,
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
    )
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
