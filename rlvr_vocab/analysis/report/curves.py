"""The curves of a run: which metrics share a chart, and what its words say. Only what was logged is drawn."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup

from rlvr_vocab.analysis.charts import Band, Chart, Line, line_chart
from rlvr_vocab.analysis.report.page import chart_grid, facts, paragraph
from rlvr_vocab.record.metrics import PHASES, RunRecord
from rlvr_vocab.record.results import HeldOutMetric

_SEEN = 0.005  # what is less of all seconds is not drawn
_PER_FUNCTION_CHARTS = {
    "mean": ("Each reward by itself", "mean score", "Before its weight."),
    "weight": ("Weights that adapt", "weight", ""),
    "failures": ("Completions on which a reward function failed", "rows", ""),
    "timeouts": ("Comparisons that ran into their deadline", "rows", ""),
    "unscored": ("Completions without a score", "share", ""),
}
_PER_FUNCTION = re.compile(rf"rewards/(?P<name>.+)/(?P<what>{'|'.join(_PER_FUNCTION_CHARTS)})")


@dataclass(frozen=True)
class CurveSpec:
    """Which metrics share a chart, each under a name of its own; `spread` are the metrics that bound the first one."""

    caption: str
    y_label: str
    metrics: tuple[tuple[str, str], ...]
    percent: bool = False
    note: str = ""
    spread: tuple[str, str] | None = None


CURVES = (
    CurveSpec(
        "Groups without spread",
        "share of completions",
        (("frac_reward_zero_std", ""),),
        percent=True,
        note="In groups whose rewards are all equal: they teach nothing.",
    ),
    CurveSpec(
        "Length of completions",
        "tokens",
        (
            ("completions/mean_length", "whole"),
            ("thinking/mean_length", "thinking"),
            ("answering/mean_length", "answering"),
        ),
        note="Means; the band spans the shortest and the longest completion of a step.",
        spread=("completions/min_length", "completions/max_length"),
    ),
    CurveSpec(
        "Cut off at the length limit", "share of completions", (("completions/clipped_ratio", ""),), percent=True
    ),
    CurveSpec(
        "Thinking closed",
        "share of completions",
        (("thinking/closed", ""),),
        percent=True,
        note="Completions that thought and ended outside the thinking.",
    ),
    CurveSpec(
        "Reasoning tokens",
        "share while thinking",
        (("thinking/reasoning_share", ""),),
        percent=True,
        note="Among the tokens chosen while thinking.",
    ),
    CurveSpec(
        "Entropy per token",
        "nats",
        (("entropy/thinking", "thinking"), ("entropy/answering", "answering"), ("entropy/copies", "copies")),
        note="Of the text; copies: what the choice between a token and its copies adds while thinking.",
    ),
    CurveSpec(
        "Hidden channel",
        "bits per thinking token",
        (("hidden/bound", "bound"), ("hidden/capacity", "capacity")),
        note="What each choice between a token and its copies can tell at most of the problem, given what stands "
        "before it, and no reader of the text sees: log2 of the open ids less the choice's entropy; 0 at chance.",
    ),
    CurveSpec(
        "Held-out answers",
        "share of answers",
        (("eval/format", "well formed"), ("eval/clipped_ratio", "cut off")),
        percent=True,
        note="Well formed: by the run's format reward; without one, it closed its thinking, ended, and answered.",
    ),
    CurveSpec(
        "KL to the initial model",
        "nats per token",
        (("kl", "kl"), ("kl/ids", "kl/ids")),
        note="k3 estimate, mean per token; kl/ids counts the choice between a token and its copies too.",
    ),
    CurveSpec("Gradient norm", "norm before clipping", (("grad_norm", ""),)),
    CurveSpec("Learning rate", "learning rate", (("learning_rate", ""),)),
    CurveSpec(
        "Clipped importance ratios",
        "share of tokens",
        (("clip_ratio/low_mean", "below"), ("clip_ratio/high_mean", "above"), ("cispo_clip_ratio", "weight cut off")),
        percent=True,
    ),
    CurveSpec(
        "Repeated completions",
        "share of completions",
        (("completions/duplicates", "within the group"), ("completions/shared", "over prompts")),
        percent=True,
    ),
    CurveSpec(
        "Sampler against trainer",
        "nats per token",
        (("sampling/logp_gap", ""),),
        note="Mean absolute difference of log-probabilities before the first update on a batch.",
    ),
    CurveSpec("Weights that moved", "share of a sample", (("weights/moved", ""),), percent=True),
    CurveSpec(
        "Tokens per second",
        "tokens per second",
        (("time/sampled_tokens_per_second", "sampled"), ("time/trained_tokens_per_second", "trained")),
        note="Of completions: sampled, per second of generation; trained, per second of forward, backward, optimizer.",
    ),
)


def curves(record: RunRecord, held_out: Line | None, measure: HeldOutMetric) -> Markup:
    """All charts that there is data for, and below them in words what never changed.

    Args:
        held_out: the measure over the steps, before and after among them; None where nothing was measured.
    """
    bands = stages_of(record)
    drawn, constant = [_reward(record, bands)], []
    if held_out is not None:
        drawn.insert(0, _held_out(record, held_out, measure, bands))
    for spec in (*_per_function(record), *CURVES):
        lines = [line for line in _lines(record, spec) if len(line.values) > 1 or len(record.rows) == 1]
        if lines and all(len(set(line.values)) == 1 for line in lines) and spec.spread is None:
            for line in lines:
                name, value = f"{spec.caption}: {line.name}".removesuffix(": "), line.values[0]
                constant.append((name, f"{100 * value:.3g} %" if spec.percent else f"{value:.3g}"))
        elif lines:
            svg = line_chart(lines, y_label=spec.y_label, percent=spec.percent, title=spec.caption, bands=bands)
            drawn.append(Chart(spec.caption, svg, spec.note))
    drawn.append(_seconds(record, bands))
    grid = chart_grid([chart for chart in drawn if chart is not None])
    if not constant:
        return grid
    return grid + paragraph("The same at every logged step, so not drawn:", "note") + facts(constant)


def stages_of(record: RunRecord) -> list[Band]:
    """The range of steps of each stage; none in a run without stages."""
    named = [(row["stage"], row["step"]) for row in record.rows if row.get("stage")]
    spans = [(name, [step for _, step in rows]) for name, rows in groupby(named, key=lambda row: row[0])]
    return [Band(str(name), min(steps), max(steps)) for name, steps in spans]


def _reward(record: RunRecord, bands: Sequence[Band]) -> Chart | None:
    """The mean, and around it the mean spread within groups, without which nothing is learned."""
    spread = dict(zip(*record.series("groups/reward_std"), strict=True))
    steps, values = record.series("reward")
    if not steps:
        return None
    if all(step in spread for step in steps):
        low = [value - spread[step] for step, value in zip(steps, values, strict=True)]
        high = [value + spread[step] for step, value in zip(steps, values, strict=True)]
        line = Line("reward", steps, values, low, high)
        note = "Mean over the batch; the band is one mean standard deviation within groups to each side."
    else:
        line, note = Line("reward", steps, values), "Mean over the batch. The spread within groups was not logged."
    return Chart("Reward", line_chart([line], y_label="reward", title="Reward", bands=bands), note)


def _held_out(record: RunRecord, held_out: Line, measure: HeldOutMetric, bands: Sequence[Band]) -> Chart:
    """The measure on held-out problems beside that on those trained on: the two should rise together."""
    lines, title = [held_out], "Accuracy" if measure.is_share else "Held-out reward"
    steps, values = record.series(f"rewards/{measure.grader}/mean" if measure.is_share else "reward")
    if steps and (not measure.is_share or all(0 <= value <= 1 for value in values)):
        lines.append(Line("problems trained on", steps, values))
    svg = line_chart(lines, y_label=measure.name, percent=measure.is_share, title=title, bands=bands)
    by = f" Graded{measure.by}." if measure.by else ""
    return Chart(title, svg, f"One sample a problem; bars are 95 % intervals.{by}")


def _seconds(record: RunRecord, bands: Sequence[Band]) -> Chart | None:
    """The seconds of each step by phase, which add up to all of them."""
    steps, whole = record.series("step_time")
    layers = []
    for name in PHASES:
        seconds = dict(zip(*record.series(name), strict=True))
        layers.append(Line(name.removeprefix("time/"), steps, [seconds.get(step, 0.0) for step in steps]))
    drawn = [layer for layer in layers if sum(layer.values) > _SEEN * sum(whole)]
    if not drawn:
        return None
    title = "Where the seconds of a step go"
    return Chart(title, line_chart(drawn, y_label="seconds", title=title, bands=bands))


def _per_function(record: RunRecord) -> Iterator[CurveSpec]:
    names = sorted({name for row in record.rows for name in row})
    found: dict[str, list[tuple[str, str]]] = {}
    for metric in names:
        match = _PER_FUNCTION.fullmatch(metric)
        if match is not None:
            found.setdefault(match["what"], []).append((metric, match["name"]))
    if len(found.get("mean", ())) == 1:  # which is the reward
        del found["mean"]
    for what, (caption, y_label, note) in _PER_FUNCTION_CHARTS.items():
        if what in found:
            yield CurveSpec(caption, y_label, tuple(found[what]), percent=what == "unscored", note=note)


def _lines(record: RunRecord, spec: CurveSpec) -> list[Line]:
    lines = []
    for metric, name in spec.metrics:
        steps, values = record.series(metric)
        if steps:
            lines.append(Line(name, steps, values))
    if spec.spread is None or not lines:
        return lines
    (low_at, low), (high_at, high) = (record.series(metric) for metric in spec.spread)
    first = lines[0]
    if list(first.steps) == low_at == high_at:
        lines[0] = Line(first.name, first.steps, first.values, low, high)
    return lines
