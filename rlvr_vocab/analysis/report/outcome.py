"""What a run came to, in a sentence or two: what is not there, or shows nothing, is said first."""

from __future__ import annotations

from dataclasses import dataclass

from rlvr_vocab.analysis.record import RunRecord
from rlvr_vocab.analysis.report.held_out import HeldOut, accuracy, is_right
from rlvr_vocab.statistics.intervals import difference_interval

# Of the logged steps, from which the reward at the beginning and at the end is taken where nothing was held out.
_AT_EACH_END = 10


@dataclass(frozen=True)
class Change:
    """Accuracy before and after on the same problems, and the interval of their paired difference."""

    before: float
    after: float
    low: float
    high: float
    problems: int

    @property
    def is_seen(self) -> bool:
        """Whether so many problems can tell it from none."""
        return self.low > 0 or self.high < 0


def change(held_out: HeldOut) -> Change | None:
    """None where it was not measured at both ends."""
    pairs = held_out.pairs()
    if len(pairs) < 2:
        return None
    before, after = ([float(is_right(answer)) for answer in side] for side in zip(*pairs, strict=True))
    found = difference_interval([late - early for early, late in zip(before, after, strict=True)])
    assert found is not None  # there are pairs
    return Change(sum(before) / len(pairs), sum(after) / len(pairs), found.low, found.high, len(pairs))


def sentence(record: RunRecord, held_out: HeldOut) -> str:
    """The outcome of a run, finished or not."""
    if not record.rows:
        return _beginning(record) + "It has logged no step yet, so there is nothing to draw."
    found = change(held_out)
    parts = [_progress(record)] if not is_finished(record) else []
    if found is not None:
        parts.append(_accuracy_words(found, record))
    elif is_finished(record):
        parts.append(f"Trained {_steps(record)}; nothing was held out, so accuracy was not measured. {_reward(record)}")
    else:
        parts.append(f"{_measured_so_far(record, held_out)} {_reward(record)}")
    if without_signal(record):
        parts.append(
            "No step had a group whose rewards differed, so there was nothing to learn from: any change is chance."
        )
    return " ".join(parts)


def is_finished(record: RunRecord) -> bool:
    return record.summary is not None and bool(record.summary.get("finished"))


def without_signal(record: RunRecord) -> bool:
    _, shares = record.series("frac_reward_zero_std")
    return bool(shares) and all(share == 1 for share in shares)


def last_step(record: RunRecord) -> int:
    return int(record.rows[-1]["step"]) if record.rows else 0


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _accuracy_words(found: Change, record: RunRecord) -> str:
    how = "rose" if found.after > found.before else "fell" if found.after < found.before else "stayed"
    moved = f"{how} from {percent(found.before)} to {percent(found.after)}"
    if how == "stayed":
        moved = f"stayed at {percent(found.after)}"
    words = (
        f"Held-out accuracy {moved} on {found.problems:,} problems in {_steps(record)}: "
        f"{_points(found.after - found.before)} points, 95 % interval {_points(found.low)} to {_points(found.high)}, "
        "paired by problem."
    )
    return (
        words if found.is_seen else f"{words} The interval includes 0: so many problems cannot tell it from no change."
    )


def _points(share: float) -> str:
    return f"{100 * share:+.1f}".replace("-", "−")


def _beginning(record: RunRecord) -> str:
    return "" if is_finished(record) else "This run is unfinished. "


def _progress(record: RunRecord) -> str:
    total = "" if record.facts.max_steps is None else f" of {record.facts.max_steps:,}"
    return f"This run is unfinished: it has logged {last_step(record):,}{total} steps."


def _steps(record: RunRecord) -> str:
    steps = last_step(record) if record.summary is None else int(record.summary["steps"])
    return f"{steps:,} step{'s' * (steps != 1)}"


def _measured_so_far(record: RunRecord, held_out: HeldOut) -> str:
    right, judged = accuracy(held_out.before)
    if not judged:
        return "Nothing was measured on held-out problems so far."
    words = f"Held-out accuracy was {percent(right / judged)} before GRPO, on {judged:,} problems"
    steps, values = record.series("eval/accuracy")
    return f"{words}, and {percent(values[-1])} after step {steps[-1]:,}." if steps else f"{words}."


def _reward(record: RunRecord) -> str:
    """Without held-out problems it is all there is; it says how the model does on what it trains on."""
    _, values = record.series("reward")
    if len(values) < 2:
        return ""
    width = min(_AT_EACH_END, len(values) // 2)
    first, last = sum(values[:width]) / width, sum(values[-width:]) / width
    return f"Mean reward went from {first:.3g} over the first {width} logged steps to {last:.3g} over the last {width}."
