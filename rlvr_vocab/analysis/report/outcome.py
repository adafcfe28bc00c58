"""The outcome of a run: its answers to held-out problems, their metric over the steps, a summary in a few sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlvr_vocab.analysis.charts import Line
from rlvr_vocab.record.metrics import RunRecord
from rlvr_vocab.record.results import ACCURACY, HeldOutMetric, ProblemResult, problem_means
from rlvr_vocab.statistics import difference_interval, mean_interval, share_interval
from rlvr_vocab.text import pluralize


@dataclass(frozen=True)
class HeldOutAnswers:
    """The answers before GRPO and after it; empty where they were not measured."""

    before: Sequence[ProblemResult] = ()
    after: Sequence[ProblemResult] = ()
    metric: HeldOutMetric = ACCURACY

    def means(self) -> tuple[dict[int, float], dict[int, float]]:
        """By its number the mean value of each problem that was graded: 1 for right, 0 for wrong, else its score."""
        before, after = (problem_means(answers, lambda each: each.value) for answers in (self.before, self.after))
        return before, after


def held_out_line(record: RunRecord, held_out: HeldOutAnswers) -> Line | None:
    """The metric over the steps, with its interval before and after; None where nothing was measured."""
    interval = share_interval if held_out.metric.is_share else mean_interval
    ends = [interval([*values.values()]) for values in held_out.means()]
    measured = [
        (step, each.estimate, each.low, each.high)
        for step, each in zip((0, record.last_step), ends, strict=True)
        if each is not None
    ]
    known = {step for step, *_ in measured}
    steps, values = record.series(f"eval/{held_out.metric.name}")
    measured += [(step, value, value, value) for step, value in zip(steps, values, strict=True) if step not in known]
    columns = ([*column] for column in zip(*sorted(measured), strict=True))
    return Line("held-out problems", *columns) if measured else None


def outcome_sentence(record: RunRecord, held_out: HeldOutAnswers) -> str:
    """The outcome of a run, finished or not, in a few sentences."""
    steps, planned = record.steps, record.facts.max_steps
    parts = list[str]()
    if not record.is_finished:
        logged = pluralize(steps, "step") if planned is None else f"{steps:,} of {pluralize(planned, 'step')}"
        parts.append(f"This run is unfinished: it has logged {logged if record.rows else 'no step yet'}.")
    if record.facts.trainer:
        parts.append(f"Trained by {record.facts.trainer}.")
    if change := _change(held_out, steps):
        parts.append(change)
    elif record.is_finished and not (record.summary or {}).get("held_out_problems"):
        parts.append("Nothing was held out, so accuracy was not measured.")
    elif record.is_finished:
        parts.append("No held-out problem was graded both before and after.")
    return " ".join(parts)


def _change(held_out: HeldOutAnswers, steps: int) -> str:
    """The metric before and after on the same problems, with the interval; empty where both were not measured."""
    (early, late), metric = held_out.means(), held_out.metric
    values = [(value, late[problem]) for problem, value in early.items() if problem in late]
    found = (difference_interval if metric.is_share else mean_interval)([now - then for then, now in values])
    if found is None:
        return ""
    before, after = (sum(side) / len(values) for side in zip(*values, strict=True))
    moved = f"stayed at {metric.value(after, ' ')}"
    if after != before:
        how = "rose" if after > before else "fell"
        moved = f"{how} from {metric.value(before, ' ')} to {metric.value(after, ' ')}"
    sentence = (
        f"Held-out {metric.name}{metric.by} {moved} on {pluralize(len(values), 'problem')} in "
        f"{pluralize(steps, 'step')}: {metric.difference(after - before)}, 95 % interval "
        f"{metric.interval(found.low, found.high)}, paired by problem."
    )
    excludes_zero = found.low > 0 or found.high < 0
    return sentence if excludes_zero else f"{sentence} The interval includes 0: it may be no change."
