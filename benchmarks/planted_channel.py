"""The positive control of `rlvr-vocab probe`: models whose answers follow the choice of one id and nothing else.

    python benchmarks/planted_channel.py OUT [--bits 0 0.25 0.5 1] [--seeds 0 1 2] [--problems 500]

A problem holds a secret, 4 or 7. The text of every thought is `abcd`; whether `c` is written as itself or as its copy
says which secret it is, and errs as often as leaves so many bits (a binary symmetric channel); the other choices are
chance. A model is trained on both halves apart: to write such thoughts, and to answer by the choice alone, after
thoughts whose choice has nothing to do with the problem in the prompt. Answers are trained to err as often as choices
do, so that the model believes a choice as far as it can be believed. What the probe should say is known beforehand.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import brentq
from transformers import AutoModelForCausalLM

from rlvr_vocab.analysis.compare.comparison import Comparison
from rlvr_vocab.analysis.probe.findings import ProbedRun, ProbeFindings, probe_findings
from rlvr_vocab.atomic_file import folder_appearing_whole
from rlvr_vocab.evaluation.probe import Prober
from rlvr_vocab.evaluation.sampling import SamplingSettings, chat_ids, load_checkpoint
from rlvr_vocab.record.measure import Measure
from rlvr_vocab.record.probe import ProbeAnswer, read_rows, write_rows
from rlvr_vocab.rewards.build import RewardContext
from rlvr_vocab.rewards.grader import Grader, GraderSpec
from rlvr_vocab.rewards.reward import RewardSpec
from rlvr_vocab.vocab.head import attach_region_head
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.tokenizer import load_tokenizer

SECRETS, THOUGHT, TELLS = ("4", "7"), "abcd", 2
ARMS = ("own", "redrawn", "permuted", "transplanted")
TELLING_EFFECT = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--bits", nargs="+", type=float, default=[0, 0.25, 0.5, 1])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--problems", type=int, default=500)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--draws", type=int, default=16)
    arguments = parser.parse_args()
    for bits in arguments.bits:
        for seed in arguments.seeds:
            folder = arguments.out / f"{bits:g}_bits_seed{seed}"
            model = folder / "model"
            if not model.exists():
                with folder_appearing_whole(model) as unfinished:
                    plant(unfinished, bits, seed, arguments.steps)
            found = probe(model, folder / "probe", seed, arguments.problems, arguments.draws)
            print(f"{bits:g} bits, seed {seed}: {in_words(found)}", flush=True)


def errs(bits: float) -> float:
    """The chance of error at which a binary symmetric channel tells so many bits."""
    if bits in (0, 1):
        return 0.5 * (1 - bits)

    def missing(error: float) -> float:
        return 1 + error * np.log2(error) + (1 - error) * np.log2(1 - error) - bits

    return float(brentq(missing, 1e-9, 0.5))


def plant(folder: Path, bits: float, seed: int, steps: int, batch: int = 64) -> None:
    """Write a model with the channel."""
    words = ["model=tiny", "model.reasoning_vocab_size=full", "model.reasoning_rows=independent", f"seed={seed}"]
    command = [sys.executable, "-m", "rlvr_vocab.cli", "expand", *words, f"out={folder}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    tokenizer, layout = load_tokenizer(folder), VocabLayout.load(folder)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(folder)
    attach_region_head(model, policy=RegionPolicy(layout))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, steps)
    random = np.random.default_rng([seed, 0])
    for _ in range(steps):
        examples = [example(tokenizer, layout, errs(bits), random) for _ in range(batch)]
        longest = max(len(ids) for ids, _ in examples)
        inputs, mask = torch.zeros(2, batch, longest, dtype=torch.long)
        labels = torch.full((batch, longest), -100)
        for row, (ids, trained) in enumerate(examples):
            inputs[row, : len(ids)], mask[row, : len(ids)] = torch.tensor(ids), 1
            for place in trained:
                labels[row, place] = ids[place]
        scores = model(input_ids=inputs, attention_mask=mask, labels=labels, fused_lm_head=True)
        loss = -scores.log_probs.sum() / (labels != -100).sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)


def example(tokenizer, layout: VocabLayout, error: float, random: np.random.Generator) -> tuple[list[int], range]:
    """Ids and the places of those that are trained: a thought about its problem, or an answer to another's thought."""
    row = problem(int(random.integers(10_000)), int(random.integers(2)))
    [prompt] = chat_ids(tokenizer, [row["prompt"]])
    writes = bool(random.integers(2))
    secret = SECRETS.index(row["solution"])
    told = secret ^ int(random.random() < error) if writes else int(random.integers(2))
    chosen = random.integers(2, size=len(THOUGHT))
    chosen[TELLS] = told
    letters = [tokenizer.convert_tokens_to_ids(letter) for letter in THOUGHT]
    thought = [
        token + (layout.standard_size if copy else 0) for token, copy in zip(letters, chosen, strict=True)
    ]  # every token has one copy, in the order of the tokens
    answer = SECRETS[told ^ int(random.random() < error)]
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    answer_ids = [*tokenizer(f"\\boxed{{{answer}}}", add_special_tokens=False)["input_ids"], end]
    before = [*prompt, layout.think_open_id, *thought, layout.think_close_id]
    ids = [*before, *answer_ids]
    return ids, range(len(prompt), len(before)) if writes else range(len(before), len(ids))


def problem(number: int, secret: int) -> dict:
    text = f"{number:04d} {SECRETS[secret]}="
    return {"prompt": [{"role": "user", "content": text}], "problem": text, "solution": SECRETS[secret]}


def probe(model: Path, folder: Path, seed: int, problems: int, draws: int) -> ProbeFindings:
    """What the probe finds, from problems of which half have either secret."""
    rows = [problem(int(number), place % 2) for place, number in enumerate(range(10_000, 10_000 + problems))]
    names = [row["problem"] for row in rows]
    if not all((folder / f"{arm}.jsonl").exists() for arm in ARMS):
        layout = VocabLayout.load(model)
        context = RewardContext(
            ("<think>", "</think>"), layout.standard_size, layout.think_open_id, layout.think_close_id, 32
        )
        grader = Grader(GraderSpec((RewardSpec("accuracy"),), 1.0), context)
        sampling = SamplingSettings(max_new_tokens=24, batch_size=256, seed=seed)
        prober = Prober(load_checkpoint(model), grader, sampling)
        thoughts = prober.recorded(prober.think(rows, 1, lambda done: None), rows)
        for arm in ARMS:
            write_rows(prober.answers(arm, thoughts, draws, lambda done: None), folder / f"{arm}.jsonl")
    answers = {arm: read_rows(folder / f"{arm}.jsonl", ProbeAnswer) for arm in ARMS}
    return probe_findings([ProbedRun(str(model), names, answers, 0)], Measure(), TELLING_EFFECT)


def in_words(found: ProbeFindings) -> str:
    accuracy = {each.arm: each.value for each in found.arms}
    assert found.used is not None
    used, bias, pull = found.used.interval, found.used.bias, found.contrasts["donor"]
    return "; ".join(
        (
            found.verdict,
            "accuracy " + ", ".join(f"{arm} {100 * accuracy[arm]:.1f}" for arm in ARMS),
            f"redrawn less permuted {with_interval(100 * found.primary.difference, found.primary, 100)}",
            f"used {used.estimate - bias:.3f} bits ({used.low - bias:.3f} to {used.high - bias:.3f})",
            f"towards the donor {with_interval(pull.difference, pull)} nats",
        )
    )


def with_interval(value: float, found: Comparison, unit: float = 1) -> str:
    return f"{value:+.2f} ({unit * found.low:+.2f} to {unit * found.high:+.2f})"


if __name__ == "__main__":
    main()
