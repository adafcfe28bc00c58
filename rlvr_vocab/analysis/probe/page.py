"""The page of a probe: the verdict, the bits that are used, every arm, the other contrasts."""

from __future__ import annotations

from markupsafe import Markup

from rlvr_vocab.analysis.compare.comparison import p_text
from rlvr_vocab.analysis.compare.page import difference_chart
from rlvr_vocab.analysis.probe.findings import CONTRASTS, ProbeFindings
from rlvr_vocab.analysis.report.page import Page, chart_grid, facts, paragraph, preformatted, table
from rlvr_vocab.record.results import ARMS


def probe_page(found: ProbeFindings, command: str) -> Page:
    """The page as it can be rendered; `command` repeats the probe."""
    sections = {
        "Verdict": _verdict(found),
        "Every arm": _arms(found),
        "Other contrasts": _contrasts(found),
        "Reproduce": preformatted(command),
    }
    return Page("What the copies mean", found.sentence, sections, kind="rlvr-vocab probe")


def _verdict(found: ProbeFindings) -> Markup:
    note = (
        "A reasoning token reads as its source. Exchanged for it, the ids of a thought change and its text does not; "
        "the answer is sampled again afterwards. Redrawn against permuted choices decides, and was fixed beforehand."
    )
    pairs = {
        "thoughts": f"{found.thoughts:,}, and {found.without_thought:,} without an end",
        "runs": f"{len(found.runs):,}",
        "bits about the answer in the choices": "unknown" if found.used is None else found.used.text(),
    }
    against = [each.against_redrawn for each in found.arms if each.against_redrawn is not None]
    title = "Answers after the same text with other ids"
    chart = difference_chart(against, title=title, baseline="redrawn", description=found.sentence)
    return paragraph(note, "note") + facts(pairs.items()) + chart_grid([chart])


def _arms(found: ProbeFindings) -> Markup:
    rows = [
        (
            *(each.arm, found.primary.metric.value(each.value, " "), *each.texts),
            *(f"{each.copies_logp:.2f}".replace("-", "−"), f"{each.exchanged:.0%}", ARMS[each.arm]),
        )
        for each in found.arms
    ]
    columns = ["copies in the thought", found.primary.metric.name, "less redrawn", "95 % interval"]
    columns += ["log p of the gold answer", "log p of the choices", "exchanged", "its choices"]
    return table(columns, rows, range(1, 7))


def _contrasts(found: ProbeFindings) -> Markup:
    rows = [
        (CONTRASTS[name][0], each.metric.difference(each.difference), each.interval, p_text(each.adjusted_p))
        for name, each in found.contrasts.items()
    ]
    note = (
        "Intervals stand each for itself; the p-values are after Holm's correction. The verdict does not rest on them."
    )
    return paragraph(note, "note") + table(("contrast", "difference", "95 % interval", "p"), rows, {1, 2, 3})
