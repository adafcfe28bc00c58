"""The outcome of a run: its answers to held-out problems, their figure over the steps, a sentence or two that sum up.

What is missing, or shows nothing, is said first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

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

# Of the logged steps, from which the reward at the beginning and at the end is taken where nothing was held out.
_AT_EACH_END = 10
# Of a task, beyond which they are no kinds of problems.
_MOST_DIFFICULTIES = 12


@dataclass(frozen=True)
class HeldOutAnswers:
    """The answers before GRPO and after it; empty where they were not measured (yet), or not kept whole.

    Attributes:
        damage: a line for each damaged file, which is left out.
        measure: what they are measured by.
    """

    before: Sequence[ProblemResult] = ()
    after: Sequence[ProblemResult] = ()
    damage: Sequence[str] = ()
    measure: HeldOutMetric = ACCURACY

    def pairs(self) -> list[tuple[ProblemResult, ProblemResult]]:
        """The first answers before and after, for each problem that was graded both times."""
        return [(early[0], late[0]) for early, late in self._of_a_problem()]

    def values(self) -> list[tuple[float, float]]:
        """The mean value of the answers before and after, for each problem that was graded both times."""
        return [(_mean_value(early), _mean_value(late)) for early, late in self._of_a_problem()]

    def _of_a_problem(self) -> list[tuple[list[ProblemResult], list[ProblemResult]]]:
        before, after = _by_problem(self.before), _by_problem(self.after)
        return [(answers, after[problem]) for problem, answers in before.items() if problem in after]


def problem_values(answers: Sequence[ProblemResult]) -> list[float]:
    """The mean value of the answers to each problem that can be judged: 1 for right, 0 for wrong, else their scores."""
    return list(map(_mean_value, _by_problem(answers).values()))


def _by_problem(answers: Sequence[ProblemResult]) -> dict[tuple[int, str], list[ProblemResult]]:
    """The answers that can be judged."""
    found: dict[tuple[int, str], list[ProblemResult]] = {}
    for answer in answers:
        if answer.score is not None:
            found.setdefault((answer.problem, answer.prompt), []).append(answer)
    return found


def _mean_value(answers: Sequence[ProblemResult]) -> float:
    values = [answer.value for answer in answers if answer.value is not None]
    return sum(values) / len(values)


def held_out_line(record: RunRecord, held_out: HeldOutAnswers) -> Line | None:
    """Accuracy, or reward, over the steps, before and after among them, with its interval; None: nothing measured."""
    interval = share_interval if held_out.measure.is_share else mean_interval
    measured = [(0, interval(problem_values(held_out.before)))]
    measured += [(int(row["step"]), _of_row(row, held_out.measure)) for row in record.evaluations]
    end, last = last_step(record), interval(problem_values(held_out.after))
    if last is not None:
        measured = [*((step, found) for step, found in measured if step < end), (end, last)]
    known = [(step, found) for step, found in measured if found is not None]
    if not known:
        return None
    return Line(
        "held-out problems",
        [step for step, _ in known],
        [found.estimate for _, found in known],
        [found.low for _, found in known],
        [found.high for _, found in known],
    )


def _of_row(row: Row, measure: HeldOutMetric) -> Interval | None:
    """What was measured during training; None where the row lacks a figure of it."""
    value, problems = row.get(f"eval/{measure.name}"), row.get("eval/problems")
    if not is_number(value) or not is_number(problems):
        return None
    if measure.is_share:
        right = round(value * problems)
        return share_interval([1.0] * right + [0.0] * (int(problems) - right))
    spread = row.get("eval/reward_std")
    return mean_interval_from(value, spread if is_number(spread) else 0.0, int(problems))


@dataclass(frozen=True)
class Change:
    """Accuracy, or reward, before and after on the same problems, and the interval of their paired difference."""

    before: float
    after: float
    low: float
    high: float
    problems: int
    measure: HeldOutMetric

    @property
    def is_seen(self) -> bool:
        """Whether so many problems can tell it from none."""
        return self.low > 0 or self.high < 0


def change(held_out: HeldOutAnswers) -> Change | None:
    """The change of accuracy, or of reward; None where it was not measured both before and after."""
    values, measure = held_out.values(), held_out.measure
    interval = difference_interval if measure.is_share else mean_interval
    found = interval([late - early for early, late in values])
    if found is None:
        return None
    before, after = (sum(side) / len(values) for side in zip(*values, strict=True))
    return Change(before, after, found.low, found.high, len(values), measure)


def changes_by_kind(held_out: HeldOutAnswers) -> list[tuple[str, str, Change]]:
    """The change of each task, and of each of its difficulties where there are few; none for problems without tasks."""
    kinds: dict[str, dict[str, None]] = {}
    for answer in held_out.before:
        kinds.setdefault(answer.task, {})[answer.difficulty] = None
    found = []
    for task in sorted(filter(None, kinds)):
        difficulties = sorted(kinds[task]) if 1 < len(kinds[task]) <= _MOST_DIFFICULTIES else []
        for difficulty in ("", *difficulties):
            of_kind = [
                [each for each in answers if each.task == task and difficulty in ("", each.difficulty)]
                for answers in (held_out.before, held_out.after)
            ]
            changed = change(replace(held_out, before=of_kind[0], after=of_kind[1]))
            if changed is not None:
                found.append((task, difficulty, changed))
    return found


def outcome_sentence(record: RunRecord, held_out: HeldOutAnswers) -> str:
    """The outcome of a run, finished or not."""
    if not record.rows:
        beginning = "" if record.is_finished else "This run is unfinished. "
        return f"{beginning}It has logged no step yet, so there is nothing to draw."
    found = change(held_out)
    parts = [_progress(record)] if not record.is_finished else []
    parts += [f"{line}: the file is damaged and left out." for line in held_out.damage]
    if found is not None:
        parts.append(_change_words(found, record))
    elif record.is_finished:
        parts.append(f"Trained {_steps(record)}; {_why_no_change(record, held_out)} {_reward(record)}")
    else:
        parts.append(f"{_measured_so_far(record, held_out)} {_reward(record)}")
    _, without_spread = record.series("frac_reward_zero_std")
    if without_spread and set(without_spread) == {1.0}:
        parts.append(
            "No step had a group whose rewards differed, so there was nothing to learn from: any change is chance."
        )
    return " ".join(parts)


def last_step(record: RunRecord) -> int:
    return int(record.rows[-1]["step"]) if record.rows else 0


def _change_words(found: Change, record: RunRecord) -> str:
    how = "rose" if found.after > found.before else "fell" if found.after < found.before else "stayed"
    measure = found.measure
    moved = f"{how} from {measure.value(found.before, ' ')} to {measure.value(found.after, ' ')}"
    if how == "stayed":
        moved = f"stayed at {measure.value(found.after, ' ')}"
    low, high = (measure.difference(end).removesuffix(" points") for end in (found.low, found.high))
    words = (
        f"Held-out {measure.name}{measure.by} {moved} on {_problems(found.problems, record)} in {_steps(record)}: "
        f"{measure.difference(found.after - found.before)}, 95 % interval {low} to {high}, paired by problem."
    )
    return (
        words if found.is_seen else f"{words} The interval includes 0: so many problems cannot tell it from no change."
    )


def _problems(judged: int, record: RunRecord) -> str:
    """The number of graded problems, and of how many where that is not all."""
    held_out = _of_summary(record, "held_out_problems")
    return (
        pluralize(judged, "problem")
        if held_out in (None, judged)
        else f"{judged:,} of {pluralize(held_out, 'problem')}"
    )


def _why_no_change(record: RunRecord, held_out: HeldOutAnswers) -> str:
    """Why a finished run has no problem that was graded both before and after."""
    problems = _of_summary(record, "held_out_problems")
    measure = held_out.measure
    before, after = measure.of_run(record.summary or {})
    if not problems and not held_out.before and not held_out.damage:
        return "nothing was held out, so accuracy was not measured."
    if (held_out.before and held_out.after) or not is_number(before) or not is_number(after):
        return "no held-out problem was judged both before and after, so there is no accuracy to tell."
    return (
        f"its summary has a held-out {measure.name} of {measure.value(before, ' ')} before and "
        f"{measure.value(after, ' ')} after on {pluralize(problems, 'problem')}, whose answers evaluation/ does not "
        "hold whole: there is no interval to tell."
    )


def _of_summary(record: RunRecord, name: str) -> Any:
    """A figure of the summary; None where it has none."""
    found = (record.summary or {}).get(name)
    return found if is_number(found) else None


def _progress(record: RunRecord) -> str:
    steps, planned = last_step(record), record.facts.max_steps
    logged = pluralize(steps, "step") if planned is None else f"{steps:,} of {pluralize(planned, 'step')}"
    return f"This run is unfinished: it has logged {logged}."


def _steps(record: RunRecord) -> str:
    steps = int((record.summary or {}).get("steps", last_step(record)))
    return pluralize(steps, "step")


def _measured_so_far(record: RunRecord, held_out: HeldOutAnswers) -> str:
    before, measure = problem_values(held_out.before), held_out.measure
    if not before:
        return "Nothing was measured on held-out problems so far." if not held_out.damage else ""
    mean = measure.value(sum(before) / len(before), " ")
    words = f"Held-out {measure.name}{measure.by} was {mean} before GRPO, on {pluralize(len(before), 'problem')}"
    steps, values = record.series(f"eval/{measure.name}")
    return f"{words}, and {measure.value(values[-1], ' ')} after step {steps[-1]:,}." if steps else f"{words}."


def _reward(record: RunRecord) -> str:
    """Without held-out problems it is all there is; it says how the model does on what it trains on."""
    _, values = record.series("reward")
    if len(values) < 2:
        return ""
    width = min(_AT_EACH_END, len(values) // 2)
    first, last = sum(values[:width]) / width, sum(values[-width:]) / width
    over = pluralize(width, "logged step")
    return f"Mean reward went from {first:.3g} over the first {over} to {last:.3g} over the last {width}."
