"""Which phase takes most of the seconds of a step, and what makes it shorter. One of them always does: no finding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rlvr_vocab.analysis.doctor.finding import Threshold, figure, share, steps
from rlvr_vocab.analysis.doctor.history import FEWEST_ROWS, WINDOW, values
from rlvr_vocab.analysis.doctor.rule import larger_batches
from rlvr_vocab.record.metrics import RunFacts, RunRecord

PHASE_PART = Threshold(0.5, "share of a step", "halving a shorter phase saves less than a quarter of the time")
PHASE_SECONDS = Threshold(1.0, "seconds per step", "the steps of toy models take less than that")


@dataclass(frozen=True)
class Advice:
    """On phases that one thing makes long: what that is, and the lines that make them shorter.

    `metrics` are those that count the seconds.
    """

    metrics: tuple[str, ...]
    why: str
    lines: Callable[[RunFacts], tuple[str, ...]] = lambda facts: ()


ADVICE: Mapping[str, Advice] = {
    "generation": Advice(
        ("time/generation",),
        "each token of the longest completion is one pass through the model; vLLM is faster on a GPU, and more "
        "completions at once take little longer where the device has room",
        lambda facts: ("training.use_vllm=true", larger_batches(facts)),
    ),
    "rewards": Advice(("time/rewards",), "the device waits for the reward functions; a deadline bounds them"),
    "log-probabilities": Advice(
        ("time/logprobs",),
        "those of the reference are for the KL, old ones for vLLM and for batches that serve several updates",
        lambda facts: ("training.beta=0.0" if facts.beta else "training.kl_log_steps=0",),
    ),
    "forward and backward": Advice(
        ("time/forward", "time/backward"),
        "gradient checkpointing goes forward twice, and larger batches use a device better, where they fit",
        lambda facts: ("training.gradient_checkpointing=false",),
    ),
    "optimizer": Advice(
        ("time/optimizer",),
        "its work is the same for any batch, and a smaller part of a larger one",
        lambda facts: (larger_batches(facts),),
    ),
    "waiting": Advice(
        ("time/waiting",),
        "the process with the longest completions keeps the others waiting; with more of them each, less so",
        lambda facts: (larger_batches(facts),),
    ),
    "other": Advice(("time/other",), "gathering, figures and callbacks take more than the model"),
}


def slowest_phase(record: RunRecord) -> tuple[str, ...]:
    """A line on what takes more than half of the last steps, and what to change; none where nothing does."""
    stage = record.rows[-1].get("stage") if record.rows else None
    rows = [row for row in record.rows if row.get("stage") == stage][-int(WINDOW) :]
    whole = sum(values(rows, "step_time"))
    if len(rows) < FEWEST_ROWS or whole < PHASE_SECONDS * len(rows):
        return ()
    spent = {name: sum(sum(values(rows, metric)) for metric in each.metrics) for name, each in ADVICE.items()}
    name = max(spent, key=spent.__getitem__)
    if spent[name] <= PHASE_PART * whole:
        return ()
    facts, advice = record.facts.of_stage(stage), ADVICE[name]
    lines = [line for line in advice.lines(facts) if facts.takes(line)]
    seconds = f"{figure(spent[name] / len(rows))} s of {figure(whole / len(rows))} s in {steps(rows)}"
    attempt = f"; try {' or '.join(lines)}" if lines else ""
    return (f"most of a step: {name}, {seconds} ({share(spent[name] / whole)}): {advice.why}{attempt}",)
