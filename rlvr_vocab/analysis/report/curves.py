"""The curves of a run: which metrics share a chart. Only logged metrics are drawn."""

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

_SEEN = 0.005  # share of all seconds from which a phase is drawn


@dataclass(frozen=True)
class CurveSpec:
    """Which metrics share a chart, each under a name of its own."""

    caption: str
    y_label: str
    metrics: tuple[tuple[str, str], ...]
    note: str = ""

    @property
    def percent(self) -> bool:
        return self.y_label.startswith("share")


CURVES = (
    CurveSpec(
        "Groups without spread",
        "share of completions",
        (("frac_reward_zero_std", ""),),
        "In groups whose rewards are all equal: they teach nothing.",
    ),
    CurveSpec(
        "Length of completions",
        "tokens",
        (
            ("completions/mean_length", "whole"),
            ("thinking/mean_length", "thinking"),
            ("answering/mean_length", "answering"),
        ),
        "Means; the band spans the shortest and the longest completion of a step.",
    ),
    CurveSpec("Cut off at the length limit", "share of completions", (("completions/clipped_ratio", ""),)),
    CurveSpec(
        "Thinking closed",
        "share of completions",
        (("thinking/closed", ""),),
        "Completions that thought and ended outside the thinking.",
    ),
    CurveSpec("Reasoning tokens", "share while thinking", (("thinking/reasoning_share", ""),)),
    CurveSpec(
        "Entropy per token",
        "nats",
        (("entropy/thinking", "thinking"), ("entropy/answering", "answering"), ("entropy/copies", "copies")),
        "Of the text; copies: of the choice between a token and its copies while thinking.",
    ),
    CurveSpec(
        "Hidden channel",
        "bits per thinking token",
        (("hidden/bound", "bound"), ("hidden/capacity", "capacity")),
        "The most that a choice between a token and its copies can tell about the problem, which no reader of the "
        "text sees: log2 of the open ids less the choice's entropy; 0 at chance.",
    ),
    CurveSpec(
        "Held-out answers",
        "share of answers",
        (("eval/format", "well formed"), ("eval/clipped_ratio", "cut off")),
        "Well formed: by the run's format reward; without one, it closed its thinking, ended, and answered.",
    ),
    CurveSpec(
        "KL to the initial model",
        "nats per token",
        (("kl", "kl"), ("kl/ids", "kl/ids")),
        "k3 estimate, mean per token; kl/ids counts the choice between a token and its copies too.",
    ),
    CurveSpec("Gradient norm", "norm before clipping", (("grad_norm", ""),)),
    CurveSpec("Learning rate", "learning rate", (("learning_rate", ""),)),
    CurveSpec(
        "Clipped importance ratios",
        "share of tokens",
        (("clip_ratio/low_mean", "below"), ("clip_ratio/high_mean", "above"), ("cispo_clip_ratio", "weight cut off")),
    ),
    CurveSpec(
        "Repeated completions",
        "share of completions",
        (("completions/duplicates", "within the group"), ("completions/shared", "over prompts")),
    ),
    CurveSpec(
        "Sampler against trainer",
        "nats per token",
        (("sampling/logp_gap", ""),),
        "Mean absolute difference of log-probabilities before the first update on a batch.",
    ),
    CurveSpec("Weights that moved", "share of a sample", (("weights/moved", ""),)),
    CurveSpec(
        "Tokens per second",
        "tokens per second",
        (("time/sampled_tokens_per_second", "sampled"), ("time/trained_tokens_per_second", "trained")),
        "Sampled: per second of generation; trained: per second of forward, backward and optimizer.",
    ),
)
# A chart with a line for each reward function: caption, label of the axis.
_PER_FUNCTION = {
    "mean": ("Each reward by itself", "mean score before its weight"),
    "weight": ("Weights that adapt", "weight"),
    "failures": ("Completions on which a reward function failed", "rows"),
    "timeouts": ("Comparisons that ran into their deadline", "rows"),
    "unscored": ("Completions without a score", "share"),
}


def curves(record: RunRecord, held_out: Line | None, metric: HeldOutMetric) -> Markup:
    """All charts that there is data for, and below them the metrics that never changed.

    Args:
        held_out: the metric over the steps, before and after among them; None where nothing was measured.
    """
    bands, constant = stages_of(record), []
    drawn = [] if held_out is None else [_held_out(record, held_out, metric, bands)]
    drawn += _reward(record, bands)
    for spec in (*_per_function(record), *CURVES, *_seconds(record)):
        lines = [line for line in _lines(record, spec) if len(line.values) > 1 or len(record.rows) == 1]
        if lines and any(len(set(line.values)) > 1 or line.low is not None for line in lines):
            svg = line_chart(lines, y_label=spec.y_label, percent=spec.percent, title=spec.caption, bands=bands)
            drawn.append(Chart(spec.caption, svg, spec.note))
            continue
        for line in lines:
            name, value = f"{spec.caption}: {line.name}".removesuffix(": "), line.values[0]
            constant.append((name, f"{100 * value:.3g} %" if spec.percent else f"{value:.3g}"))
    note = paragraph("The same at every logged step, so not drawn:", "note") + facts(constant)
    return chart_grid(drawn) + (note if constant else "")


def stages_of(record: RunRecord) -> list[Band]:
    """The range of steps of each stage; none in a run without stages."""
    named = [(row["stage"], row["step"]) for row in record.rows if row.get("stage")]
    spans = [(name, [step for _, step in rows]) for name, rows in groupby(named, key=lambda row: row[0])]
    return [Band(str(name), min(steps), max(steps)) for name, steps in spans]


def _reward(record: RunRecord, bands: Sequence[Band]) -> list[Chart]:
    """The mean, and around it the mean spread within groups, without which nothing is learned."""
    spread = dict(zip(*record.series("groups/reward_std"), strict=True))
    steps, values = record.series("reward")
    if not steps:
        return []
    line, note = Line("reward", steps, values), "Mean over the batch."
    if all(step in spread for step in steps):
        low = [value - spread[step] for step, value in zip(steps, values, strict=True)]
        high = [value + spread[step] for step, value in zip(steps, values, strict=True)]
        line = Line("reward", steps, values, low, high)
        note += " The band is one mean standard deviation within groups to each side."
    return [Chart("Reward", line_chart([line], y_label="reward", title="Reward", bands=bands), note)]


def _held_out(record: RunRecord, held_out: Line, metric: HeldOutMetric, bands: Sequence[Band]) -> Chart:
    """The metric on held-out problems beside that on the problems trained on."""
    lines, title = [held_out], "Accuracy" if metric.is_share else "Held-out reward"
    steps, values = record.series(f"rewards/{metric.grader}/mean" if metric.is_share else "reward")
    if steps and (not metric.is_share or all(0 <= value <= 1 for value in values)):
        lines.append(Line("problems trained on", steps, values))
    svg = line_chart(lines, y_label=metric.name, percent=metric.is_share, title=title, bands=bands)
    return Chart(title, svg, f"One sample a problem{metric.by and f', graded{metric.by}'}; bars are 95 % intervals.")


def _seconds(record: RunRecord) -> Iterator[CurveSpec]:
    """The seconds of each step by phase."""
    whole = sum(record.series("step_time")[1])
    phases = [name for name in PHASES if sum(record.series(name)[1]) > _SEEN * whole]
    if phases:
        metrics = tuple((name, name.removeprefix("time/")) for name in phases)
        yield CurveSpec("Where the seconds of a step go", "seconds", metrics)


def _per_function(record: RunRecord) -> Iterator[CurveSpec]:
    metrics = sorted({name for row in record.rows for name in row})
    for what, (caption, y_label) in _PER_FUNCTION.items():
        found = [(match[0], match[1]) for name in metrics if (match := re.fullmatch(rf"rewards/(.+)/{what}", name))]
        if len(found) > (what == "mean"):  # the only one is the reward
            yield CurveSpec(caption, y_label, tuple(found))


def _lines(record: RunRecord, spec: CurveSpec) -> list[Line]:
    lines = [Line(name, *record.series(metric)) for metric, name in spec.metrics if record.series(metric)[0]]
    (low_at, low), (high_at, high) = (record.series(f"completions/{end}_length") for end in ("min", "max"))
    if lines and spec.caption == "Length of completions" and list(lines[0].steps) == low_at == high_at:
        lines[0] = Line(lines[0].name, lines[0].steps, lines[0].values, low, high)
    return lines
