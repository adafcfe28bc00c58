"""Curves of the arms: at each step the mean over the seeds of one, within the band of lowest and highest."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from markupsafe import Markup

from rlvr_vocab.analysis.charts import Line, line_chart
from rlvr_vocab.analysis.compare.pictures import labels
from rlvr_vocab.analysis.compare.stories import ArmStory, RunStory
from rlvr_vocab.analysis.report.blocks import Picture
from rlvr_vocab.record.metrics import series_of

# Caption, words at the axis, metric, whether it is a share.
_CURVES = (
    ("Held-out accuracy during training", "accuracy", "eval/accuracy", True),
    ("Reward", "reward", "reward", False),
    ("Right among the problems trained on", "accuracy", "rewards/accuracy/mean", True),
    ("Groups without spread", "share of completions", "frac_reward_zero_std", True),
    ("Length of completions", "tokens", "completions/mean_length", False),
    ("Length of thinking", "tokens", "thinking/mean_length", False),
    ("Cut off at the length limit", "share of completions", "completions/clipped_ratio", True),
    ("Thinking closed", "share of completions", "thinking/closed", True),
    ("Entropy while answering", "nats", "entropy/answering", False),
    ("Entropy while thinking", "nats", "entropy/thinking", False),
    ("Reasoning tokens", "share while thinking", "thinking/reasoning_share", True),
    ("KL to the initial model", "nats per token", "kl", False),
    ("Time per step", "seconds", "step_time", False),
)


def arm_curves(arms: Sequence[ArmStory]) -> list[Picture]:
    """A picture of each metric that some arm has logged and that is not the same throughout."""
    pictures, names = [], labels([arm.name for arm in arms])
    for caption, label, metric, percent in _CURVES:
        lines = [line for arm, name in zip(arms, names, strict=True) if (line := _line(arm, name, metric)).steps]
        values = {value for line in lines for value in line.values}
        if len(values) > 1:
            svg = line_chart(lines, y_label=label, percent=percent, title=caption)
            pictures.append(Picture(caption, Markup(svg)))
    return pictures


def _line(arm: ArmStory, name: str, metric: str) -> Line:
    """The steps that all runs of the arm have which logged the metric at all."""
    logged = [points for run in arm.runs if (points := _points(run, metric))]
    steps = sorted(set.intersection(*(set(points) for points in logged))) if logged else []
    at = [[points[step] for points in logged] for step in steps]
    if len(logged) < 2:
        return Line(name, steps, [mean(values) for values in at])
    return Line(name, steps, [*map(mean, at)], [*map(min, at)], [*map(max, at)])


def _points(run: RunStory, metric: str) -> dict[int, float]:
    rows = run.evaluations if metric.startswith("eval/") else run.rows
    return dict(zip(*series_of(rows, metric), strict=True))
