"""The page of a probe: the verdict, every arm, dose and response, the bits that are used."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from rlvr_vocab.analysis.charts import Chart, IntervalRow, Line, interval_chart, line_chart
from rlvr_vocab.analysis.compare.comparison import p_text
from rlvr_vocab.analysis.probe.findings import CONTRASTS, ProbeFindings
from rlvr_vocab.analysis.report.page import Page, Section, chart_grid, facts, folded, paragraph, preformatted, table
from rlvr_vocab.record.probe import ARMS


def probe_page(found: ProbeFindings, command: str) -> Page:
    """The page as it can be rendered; `command` repeats the probe."""
    sections = [
        Section("Verdict", _verdict(found), "verdict"),
        Section("Every arm", _arms(found), "arms"),
        Section("Other contrasts", _contrasts(found), "contrasts"),
        Section("Reproduce", preformatted(command), "again"),
    ]
    return Page("What the copies mean", found.sentence, sections, kind="rlvr-vocab probe")


def _verdict(found: ProbeFindings) -> Markup:
    doses = _curve(found, "dose", "of the choices exchanged", start="own")
    cuts = _curve(found, "cut", "of the thought kept", end="own")
    charts = [each for each in (_arm_chart(found), doses, cuts) if each is not None]
    note = (
        "A reasoning token reads as its source. Exchanged for it, the ids of a thought change and its text does not; "
        "the answer is sampled again afterwards. Redrawn against permuted choices decides, and was fixed beforehand."
    )
    return paragraph(note, "note") + facts(_facts(found)) + chart_grid(charts)


def _facts(found: ProbeFindings) -> Iterator[tuple[str, str]]:
    primary, metric = found.primary, found.metric
    yield "verdict", found.verdict
    yield "redrawn less permuted", metric.difference(primary.difference)
    yield f"{100 * primary.confidence:g} % interval", f"{primary.interval}{' points' * metric.is_share}"
    yield "p", p_text(primary.p)
    yield "effect that would have been seen", metric.difference(primary.smallest_effect, sign=False)
    yield "too few to tell above", metric.difference(found.telling_effect, sign=False)
    ended = f"{found.thoughts:,} on {primary.problems:,} problems, {found.without_thought:,} without an end"
    yield "thoughts", ended
    yield "runs", f"{len(found.runs):,}"
    if found.used is not None:
        yield "bits about the answer in the choices", found.used.text()


def _arms(found: ProbeFindings) -> Markup:
    rows = []
    for each in found.arms:
        logp = f"{each.copies_logp:.2f}".replace("-", "−")
        name = each.arm.replace("_", " ")
        rows.append((name, found.metric.value(each.value, " "), *each.texts, logp, f"{each.exchanged:.0%}"))
    columns = ["copies in the thought", found.metric.name, "less redrawn", "95 % interval"]
    columns += ["log p of the gold answer", "log p of the choices", "exchanged"]
    meant = [(each.arm.replace("_", " "), ARMS[each.arm]) for each in found.arms]
    return table(columns, rows, range(1, 7)) + folded("What each arm is", table(("arm", "its choices"), meant))


def _contrasts(found: ProbeFindings) -> Markup:
    rows = [
        (CONTRASTS[name], each.metric.difference(each.difference), each.interval, p_text(each.adjusted_p))
        for name, each in found.contrasts.items()
    ]
    note = (
        "Intervals stand each for itself; the p-values are after Holm's correction. The verdict does not rest on them."
    )
    return paragraph(note, "note") + table(("contrast", "difference", "95 % interval", "p"), rows, {1, 2, 3})


def _arm_chart(found: ProbeFindings) -> Chart:
    """Each arm less the redrawn one, within its interval."""
    unit, rows = 100 if found.metric.is_share else 1, []
    for each in found.arms:
        against = each.against_redrawn
        if against is not None and not each.arm.startswith(("dose", "cut")):
            rows.append(IntervalRow(each.arm, unit * against.difference, unit * against.low, unit * against.high))
    label = f"{'percentage points' if found.metric.is_share else found.metric.name} above redrawn"
    svg = interval_chart(rows, x_label=label, title="Arms of the probe", description=found.sentence)
    return Chart("Answers after the same text with other ids", svg)


def _curve(found: ProbeFindings, kind: str, x_label: str, start: str = "", end: str = "") -> Chart | None:
    """The metric over the share of an intervention, with another arm at its start or its end.

    The bars are the intervals of the differences from the redrawn arm.
    """
    by_arm = {each.arm: each for each in found.arms}
    points = {int(arm.partition("_")[2]): each for arm, each in by_arm.items() if arm.startswith(f"{kind}_")}
    points |= {0: by_arm[start]} if start in by_arm else {}
    points |= {100: by_arm[end]} if end in by_arm else {}
    if len(points) < 3:
        return None
    shares = sorted(points)
    arms, redrawn = [points[share] for share in shares], by_arm["redrawn"].value
    low, high = (
        [redrawn + (0.0 if each.against_redrawn is None else getattr(each.against_redrawn, side)) for each in arms]
        for side in ("low", "high")
    )
    name, title = found.metric.name, {"dose": "Dose and response", "cut": "Thoughts cut short"}[kind]
    line = Line(name, shares, [each.value for each in arms], low, high)
    return Chart(title, line_chart([line], y_label=name, x_label=f"% {x_label}", percent=found.metric.is_share))
