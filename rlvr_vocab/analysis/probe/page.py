"""The page of a probe: the verdict, every arm, dose and response, the bits that are used."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.ticker import MaxNLocator

from rlvr_vocab.analysis.charts import INK, RC, Chart, Line, as_svg, figure, line_chart, palette
from rlvr_vocab.analysis.compare.comparison import interval_points, p_figure, p_text
from rlvr_vocab.analysis.probe.findings import CONTRASTS, ArmFigures, ProbeFindings
from rlvr_vocab.analysis.report.page import Page, Section, chart_grid, facts, folded, paragraph, preformatted, table
from rlvr_vocab.record.probe import ARMS


def probe_page(found: ProbeFindings, command: str) -> Page:
    """The page as it can be rendered; `command` makes the probe again."""
    drawn = [
        Section("Verdict", _verdict(found), "verdict"),
        Section("Every arm", _arms(found), "arms"),
        Section("Other contrasts", _contrasts(found), "contrasts"),
        Section("How to make it again", preformatted(command), "again"),
    ]
    return Page("What the copies mean", found.sentence, drawn, kind="rlvr-vocab probe")


def _verdict(found: ProbeFindings) -> Markup:
    charts = [_arm_chart(found)]
    doses = _curve(found, "dose", "of the choices exchanged", start="own")
    cuts = _curve(found, "cut", "of the thought kept", end="own")
    charts += [each for each in (doses, cuts) if each is not None]
    note = (
        "A reasoning token reads as its source. Exchanged for it, the ids of a thought change and its text does not; "
        "the answer is sampled again afterwards. Redrawn against permuted choices decides, and was fixed beforehand."
    )
    return paragraph(note, "note") + facts(_facts(found)) + chart_grid(charts)


def _facts(found: ProbeFindings) -> Iterator[tuple[str, str]]:
    primary, measure = found.primary, found.measure
    yield "verdict", found.verdict
    yield "redrawn less permuted", measure.difference(primary.difference)
    yield f"{100 * primary.confidence:g} % interval", f"{interval_points(primary)}{' points' * measure.is_share}"
    yield "p", p_figure(primary.p)
    yield "effect that would have been seen", measure.difference(primary.smallest_effect, sign=False)
    yield "too few to tell above", measure.difference(found.telling_effect, sign=False)
    yield (
        "thoughts",
        f"{found.thoughts:,} on {primary.problems:,} problems, {found.without_thought:,} without an end",
    )
    yield "runs", f"{len(found.runs):,}"
    if found.used is not None:
        yield "bits about the answer in the choices", found.used.in_words()


def _arms(found: ProbeFindings) -> Markup:
    measure = found.measure
    rows = [
        (
            each.arm.replace("_", " "),
            measure.value(each.value, " "),
            *_differences(each),
            "-" if each.gold_logp is None else f"{each.gold_logp:.3f}".replace("-", "−"),
            f"{each.copies_logp:.2f}".replace("-", "−"),
            f"{each.exchanged:.0%}",
        )
        for each in found.arms
    ]
    columns = (
        "copies in the thought",
        measure.name,
        "less redrawn",
        "95 % interval",
        "log p of the gold answer",
        "log p of the choices",
        "exchanged",
    )
    meant = [(each.arm.replace("_", " "), ARMS[each.arm]) for each in found.arms]
    return table(columns, rows, {1, 2, 3, 4, 5, 6}) + folded("What each arm is", table(("arm", "its choices"), meant))


def _differences(each: ArmFigures) -> tuple[str, str]:
    against = each.against_redrawn
    return ("-", "-") if against is None else (against.measure.difference(against.difference), interval_points(against))


def _contrasts(found: ProbeFindings) -> Markup:
    rows = [
        (CONTRASTS[name], each.measure.difference(each.difference), interval_points(each), p_text(each.adjusted_p))
        for name, each in found.contrasts.items()
    ]
    note = (
        "Intervals stand each for itself; the p-values are after Holm's correction. The verdict does not rest on them."
    )
    return paragraph(note, "note") + table(("contrast", "difference", "95 % interval", "p"), rows, {1, 2, 3})


@rc_context(RC)
def _arm_chart(found: ProbeFindings) -> Chart:
    """Each arm less the redrawn one, within its interval."""
    compared = [(each.arm, each.against_redrawn) for each in found.arms if each.against_redrawn is not None]
    compared = [(arm, each) for arm, each in compared if not arm.startswith(("dose", "cut"))]
    chart, axes = figure(height=1.3 + 0.32 * len(compared))
    unit = 100 if found.measure.is_share else 1
    for at, (_, each) in enumerate(reversed(compared)):
        axes.plot(
            [unit * each.low, unit * each.high], [at, at], color=palette[0], linewidth=2.2, solid_capstyle="round"
        )
        axes.plot([unit * each.difference], [at], "o", color=palette[0], markersize=5)
    axes.axvline(0, color=INK, linewidth=0.9)
    axes.set_yticks(range(len(compared)), [arm for arm, _ in reversed(compared)])
    axes.set_ylim(-0.7, len(compared) - 0.3)
    axes.grid(False, axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.set_xlabel(f"{'percentage points' if found.measure.is_share else found.measure.name} above redrawn")
    words = "; ".join(
        f"{arm} {each.measure.difference(each.difference)} ({interval_points(each)})" for arm, each in compared
    )
    return Chart("Answers after the same text with other ids", as_svg(chart, "Arms of the probe", words))


def _curve(found: ProbeFindings, kind: str, x_label: str, start: str = "", end: str = "") -> Chart | None:
    """What is measured over the share of an intervention, with another arm at its start or its end.

    The bars are the intervals of the differences from the redrawn arm.
    """
    by_arm = {each.arm: each for each in found.arms}
    points = [(int(arm.partition("_")[2]), each) for arm, each in by_arm.items() if arm.startswith(f"{kind}_")]
    points += [(0, by_arm[start])] if start in by_arm else []
    points += [(100, by_arm[end])] if end in by_arm else []
    if len(points) < 3:
        return None
    shares, arms = zip(*sorted(points, key=lambda point: point[0]), strict=True)
    redrawn = by_arm["redrawn"].value
    low, high = (
        [redrawn + (0.0 if each.against_redrawn is None else getattr(each.against_redrawn, side)) for each in arms]
        for side in ("low", "high")
    )
    line = Line(found.measure.name, list(shares), [each.value for each in arms], low, high)
    title = {"dose": "Dose and response", "cut": "Thoughts cut short"}[kind]
    percent = found.measure.is_share
    return Chart(title, line_chart([line], y_label=found.measure.name, x_label=f"% {x_label}", percent=percent))
