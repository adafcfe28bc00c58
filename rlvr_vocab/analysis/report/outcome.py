"""The outcome of a run: its answers to held-out problems, their metric over the steps, a summary in a few sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rlvr_vocab.analysis.charts import Line
from rlvr_vocab.record.metrics import Row, RunRecord, is_number
from rlvr_vocab.record.results import ACCURACY, HeldOutMetric, ProblemResult
from rlvr_vocab.statistics import (
    Interval,
    difference_interval,
    mean_interval,
    mean_interval_from,
    share_interval,
)
from rlvr_vocab.text import pluralize

_AT_EACH_END = 10  # logged steps, for the reward at the beginning and at the end
_MOST_DIFFICULTIES = 12  # of a task, beyond which they are no kinds of problems


@dataclass(frozen=True)
class HeldOutAnswers:
    """The answers before GRPO and after it; empty where they were not measured."""

    before: Sequence[ProblemResult] = ()
    after: Sequence[ProblemResult] = ()
    metric: HeldOutMetric = ACCURACY

    def by_problem(self) -> list[tuple[list[ProblemResult], list[ProblemResult]]]:
        """The answers before and after to each problem that was graded both times."""
        before, after = _by_problem(self.before), _by_problem(self.after)
        return [(answers, after[problem]) for problem, answers in before.items() if problem in after]


def _by_problem(answers: Sequence[ProblemResult]) -> dict[tuple[int, str], list[ProblemResult]]:
    """The graded answers."""
    found: dict[tuple[int, str], list[ProblemResult]] = {}
    for answer in answers:
        if answer.score is not None:
            found.setdefault((answer.problem, answer.prompt), []).append(answer)
    return found


def _mean_value(answers: Sequence[ProblemResult]) -> float:
    values = [answer.value for answer in answers if answer.value is not None]
    return sum(values) / len(values)


def problem_values(answers: Sequence[ProblemResult]) -> list[float]:
    """The mean value of the graded answers to each problem: 1 for right, 0 for wrong, else their scores."""
    return list(map(_mean_value, _by_problem(answers).values()))


def held_out_line(record: RunRecord, held_out: HeldOutAnswers) -> Line | None:
    """The metric over the steps, before and after among them, with its interval; None where nothing was measured."""
    interval = share_interval if held_out.metric.is_share else mean_interval
    measured = [(0, interval(problem_values(held_out.before)))]
    measured += [(int(row["step"]), _of_row(row, held_out.metric)) for row in record.evaluations]
    end, last = last_step(record), interval(problem_values(held_out.after))
    if last is not None:
        measured = [*((step, found) for step, found in measured if step < end), (end, last)]
    known = [(step, found.estimate, found.low, found.high) for step, found in measured if found is not None]
    if not known:
        return None
    return Line("held-out problems", *([*column] for column in zip(*known, strict=True)))


def _of_row(row: Row, metric: HeldOutMetric) -> Interval | None:
    """The measurement of a row; None where it lacks a figure."""
    value, problems = row.get(f"eval/{metric.name}"), row.get("eval/problems")
    if not is_number(value) or not is_number(problems):
        return None
    if metric.is_share:
        right = round(value * problems)
        return share_interval([1.0] * right + [0.0] * (int(problems) - right))
    spread = row.get("eval/reward_std")
    return mean_interval_from(value, spread if is_number(spread) else 0.0, int(problems))


@dataclass(frozen=True)
class Change:
    """The metric before and after on the same problems, and the interval of their paired difference."""

    before: float
    after: float
    low: float
    high: float
    problems: int


def change(held_out: HeldOutAnswers) -> Change | None:
    """None where it was not measured both before and after."""
    values = [(_mean_value(early), _mean_value(late)) for early, late in held_out.by_problem()]
    interval = difference_interval if held_out.metric.is_share else mean_interval
    found = interval([late - early for early, late in values])
    if found is None:
        return None
    before, after = (sum(side) / len(values) for side in zip(*values, strict=True))
    return Change(before, after, found.low, found.high, len(values))


def changes_by_kind(held_out: HeldOutAnswers) -> list[tuple[str, str, Change]]:
    """The change of each task, and of each of its difficulties where there are few; none for problems without tasks."""
    kinds: dict[str, set[str]] = {}
    for answer in held_out.before:
        kinds.setdefault(answer.task, set()).add(answer.difficulty)
    found = []
    for task in sorted(filter(None, kinds)):
        for difficulty in ("", *(sorted(kinds[task]) if 1 < len(kinds[task]) <= _MOST_DIFFICULTIES else ())):
            before, after = (
                [each for each in answers if each.task == task and difficulty in ("", each.difficulty)]
                for answers in (held_out.before, held_out.after)
            )
            changed = change(replace(held_out, before=before, after=after))
            if changed is not None:
                found.append((task, difficulty, changed))
    return found


def last_step(record: RunRecord) -> int:
    return int(record.rows[-1]["step"]) if record.rows else 0


def outcome_sentence(record: RunRecord, held_out: HeldOutAnswers) -> str:
    """The outcome of a run, finished or not."""
    if not record.rows:
        return f"{'' if record.is_finished else 'This run is unfinished. '}It has logged no step yet."
    parts: list[str] = []
    steps, planned = int((record.summary or {}).get("steps", last_step(record))), record.facts.max_steps
    if not record.is_finished:
        logged = pluralize(steps, "step") if planned is None else f"{steps:,} of {pluralize(planned, 'step')}"
        parts.insert(0, f"This run is unfinished: it has logged {logged}.")
    found = change(held_out)
    if found is not None:
        parts.append(_change_sentence(found, held_out.metric, steps))
    elif record.is_finished:
        parts += [f"Trained {pluralize(steps, 'step')}; {_why_no_change(record, held_out)}", *_reward(record)]
    else:
        parts += [*_measured_so_far(record, held_out), *_reward(record)]
    _, without_spread = record.series("frac_reward_zero_std")
    if without_spread and set(without_spread) == {1.0}:
        parts.append("No group had rewards that differ, so there was nothing to learn from: any change is chance.")
    return " ".join(parts)


def _change_sentence(found: Change, metric: HeldOutMetric, steps: int) -> str:
    moved = f"stayed at {metric.value(found.after, ' ')}"
    if found.after != found.before:
        how = "rose" if found.after > found.before else "fell"
        moved = f"{how} from {metric.value(found.before, ' ')} to {metric.value(found.after, ' ')}"
    sentence = (
        f"Held-out {metric.name}{metric.by} {moved} on {pluralize(found.problems, 'problem')} in "
        f"{pluralize(steps, 'step')}: {metric.difference(found.after - found.before)}, 95 % interval "
        f"{metric.interval(found.low, found.high)}, paired by problem."
    )
    excludes_zero = found.low > 0 or found.high < 0
    return sentence if excludes_zero else f"{sentence} The interval includes 0: it may be no change."


def _why_no_change(record: RunRecord, held_out: HeldOutAnswers) -> str:
    """Why a finished run has no problem that was graded both before and after."""
    summary, metric = record.summary or {}, held_out.metric
    problems, (before, after) = summary.get("held_out_problems"), metric.of_run(summary)
    if not problems:
        return "nothing was held out, so accuracy was not measured."
    if (held_out.before and held_out.after) or before is None or after is None:
        return "no held-out problem was graded both before and after."
    return (
        f"its summary has a held-out {metric.name} of {metric.value(before, ' ')} before and "
        f"{metric.value(after, ' ')} after on {pluralize(problems, 'problem')}; without their answers in evaluation/ "
        "there is no interval."
    )


def _measured_so_far(record: RunRecord, held_out: HeldOutAnswers) -> list[str]:
    before, metric = problem_values(held_out.before), held_out.metric
    if not before:
        return ["Nothing was measured on held-out problems so far."]
    mean = metric.value(sum(before) / len(before), " ")
    measured = f"Held-out {metric.name}{metric.by} was {mean} before GRPO, on {pluralize(len(before), 'problem')}"
    steps, values = record.series(f"eval/{metric.name}")
    return [f"{measured}, and {metric.value(values[-1], ' ')} after step {steps[-1]:,}." if steps else f"{measured}."]


def _reward(record: RunRecord) -> list[str]:
    """The reward in training, which is all there is without held-out problems."""
    _, values = record.series("reward")
    if len(values) < 2:
        return []
    width = min(_AT_EACH_END, len(values) // 2)
    first, last = sum(values[:width]) / width, sum(values[-width:]) / width
    over = pluralize(width, "logged step")
    return [f"Mean reward went from {first:.3g} over the first {over} to {last:.3g} over the last {width}."]
