"""What is said of a merge on the screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rlvr_vocab.vocab.merge import MergeReport


def report_lines(report: MergeReport, out: Path, note: str) -> Iterator[str]:
    """What was folded into what, how far the result is from the model that trained, and a note."""
    yield (
        f"adapter folded into {report.base}; largest difference of a logit on a chat of {report.probe_tokens} tokens, "
        f"in {report.arithmetic}:"
    )
    yield f"  {report.merging:.1e} between the adapter on its base and the merged weights in float32"
    yield f"  {report.reloading:.1e} between the weights as written and as stock classes load them in a fresh process"
    if report.rounding is not None:
        yield (
            f"  {report.rounding.largest:.1e} by rounding to {report.dtype}, mean KL {report.rounding.mean_kl:.1e} "
            f"nats a token; {report.training.largest:.1e} and {report.training.mean_kl:.1e} by training"
        )
    if report.blurs:
        yield f"warning: {report.dtype} is too coarse for what was trained, dtype=fp32 keeps it"
    untied = "; embedding and head, one table in the base, are two in it" if report.untied else ""
    if note:
        yield note
    yield f"{out}: the merged model in {report.dtype}{untied}"
