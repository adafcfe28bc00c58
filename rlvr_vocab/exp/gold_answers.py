"""Gold answers that the verifier cannot use are counted, shown and left out before anything is trained on them."""

from __future__ import annotations

from collections.abc import Mapping

from datasets import Dataset
from rich.console import Console

from rlvr_vocab.counted import counted
from rlvr_vocab.rewards.verify.golds import COMPARED_AS_TEXT, GoldFindings, check_golds
from rlvr_vocab.training.progress import stage

_SHOWN = 3


def usable_problems(rows: Dataset, which: str, console: Console) -> Dataset:
    """The problems whose gold answer can be compared with.

    Args:
        which: what the rows are for, in words.
    """
    golds = list(rows["solution"])
    with stage(console, f"gold answers {which}", len(golds)) as display:
        findings = check_golds(golds, lambda done, total: display.update(done, total=total))
    for line in finding_lines(golds, findings, which):
        console.print(line, markup=False)
    if not findings.unusable:
        return rows
    return rows.select([index for index in range(len(rows)) if index not in findings.unusable])


def finding_lines(golds: list[str], findings: GoldFindings, which: str) -> list[str]:
    """What was found, with the first of each kind."""
    lines = []
    if unusable := findings.unusable:
        left_out = counted(len(unusable), "problem")
        lines.append(f"left out {left_out} {which} whose gold answer nothing can be compared with: "
                     + _examples(golds, unusable))  # fmt: skip
    if by_text_only := findings.by_text_only:
        lines.append(f"gold answers {which} that only an answer written alike can match, as algebra cannot evaluate "
                     f"them: {len(by_text_only):,} ({_examples(golds, by_text_only)})")  # fmt: skip
    if ambiguous := findings.ambiguous:
        shown = ", ".join(repr(golds[index][:40]) for index in list(ambiguous)[:_SHOWN])
        lines.append(f"{counted(len(ambiguous), 'gold answer')} {which} {COMPARED_AS_TEXT} "
                     f"({shown}{', …' * (len(ambiguous) > _SHOWN)})")  # fmt: skip
    return lines


def _examples(golds: list[str], reasons: Mapping[int, str]) -> str:
    shown = [f"{golds[index][:40]!r}: {reason}" for index, reason in list(reasons.items())[:_SHOWN]]
    return "; ".join(shown) + ("; …" if len(reasons) > _SHOWN else "")
