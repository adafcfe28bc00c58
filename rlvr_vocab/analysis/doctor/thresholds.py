"""Every threshold of the doctor, with the reason for it; `docs/doctor.md` shows this table."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple


class Threshold(NamedTuple):
    """One row of the table."""

    name: str
    value: float
    unit: str
    reason: str
    source: str


def _of(value: float, unit: str, reason: str, source: str) -> Any:
    return field(default=value, metadata={"unit": unit, "reason": reason, "source": source})


_GUIDE = "docs/guide.md, What to watch"
_QUICKSTART = "measured: healthy quickstart runs, see docs/doctor.md"
_SIMULATED = "simulated: healthy quickstart rewards in batches of 16 to 128, see docs/doctor.md"
_JUDGEMENT = "judgement"


@dataclass(frozen=True)
class Thresholds:
    """What separates healthy from sick; the metadata of each field says why."""

    window: float = _of(
        10, "steps", "a step's figures follow the luck of a few problems; the median of ten does not", _GUIDE
    )
    fewest_rows: float = _of(
        3, "rows", "fewer have no median worth the name, however many steps a row holds", _JUDGEMENT
    )
    fewest_sampled: float = _of(
        5, "rows", "the same where not every row has figures of completions: such a row holds one batch", _JUDGEMENT
    )
    fewest_completions: float = _of(
        100, "completions", "a window of fewer is made longer: shares and rewards of fewer are luck", _JUDGEMENT
    )
    fewest_tokens: float = _of(
        100, "tokens", "fewer in a window have no share and no entropy worth the name", _JUDGEMENT
    )
    groups_alike: float = _of(
        0.9, "share of completions", "`frac_reward_zero_std`: nine of ten groups teach nothing", _GUIDE
    )
    reward_std: float = _of(
        0.1, "× the largest weight", "`reward_std`: the rewards hardly differ over the batch", _GUIDE
    )
    within: float = _of(
        0.1,
        "× `reward_std`",
        "`groups/reward_std`: the rewards differ between problems and hardly within a group; healthy runs have 0.9",
        _JUDGEMENT,
    )
    nearly_none: float = _of(
        0.1, "× the full reward", "below it no group of eight has much chance of two right answers", _JUDGEMENT
    )
    nearly_all: float = _of(0.9, "× the full reward", "above it there is little left to gain", _JUDGEMENT)
    flat_least: float = _of(20, "steps", "after the warm-up of the learning rate; a gain takes a while", _JUDGEMENT)
    flat_window: float = _of(
        50, "steps", "the first and the last so many are compared; the reward rises within 50 to 100 steps", _GUIDE
    )
    flat_long: float = _of(0.1, "× `reward_std`", "after 100 steps: a gain above it is excluded", _SIMULATED)
    flat_short: float = _of(0.06, "× `reward_std`", "before: healthy rewards may rest for 50 steps", _SIMULATED)
    flat_chance: float = _of(0.2, "× `reward_std`", "where the reward follows chance, see the next row", _SIMULATED)
    chance: float = _of(
        0.95,
        "× what equal problems would give",
        "`groups/reward_std` over `reward_std`, two standard errors above it: a reward that differs as much within a "
        "group as between groups knows nothing of the problem; healthy runs have 0.9",
        _SIMULATED,
    )
    flat_still: float = _of(
        0.5, "× `reward_std`", "where the policy has hardly left the initial model, see the next two rows", _JUDGEMENT
    )
    kl_none: float = _of(
        0.001, "nats per token", "too low a learning rate looks like nothing", "docs/guide.md, Learning rate"
    )
    rate_none: float = _of(
        1e-8, "learning rate", "a hundredth of the lowest that is usual, 1e-6", "docs/guide.md, Learning rate"
    )
    risen: float = _of(3, "standard errors", "a window that lies so far above the first has risen", _SIMULATED)
    beginning: float = _of(
        3, "steps", "the first so many tell where a run began; at a rate that is far too high, ten do not", _JUDGEMENT
    )
    collapse: float = _of(0.5, "× the best window", "half of what had been learned is lost", _JUDGEMENT)
    collapse_errors: float = _of(4, "standard errors", "the best of many windows is partly luck", _JUDGEMENT)
    held_out_fall: float = _of(0.03, "accuracy", "smaller falls are not worth a word", _JUDGEMENT)
    held_out_errors: float = _of(2, "standard errors", "of the difference, at this number of problems", _JUDGEMENT)
    kl: float = _of(0.5, "nats per token", "further from the initial model, words change and not only odds", _GUIDE)
    kl_explosion: float = _of(5.0, "nats per token", "ten times the limit: another model", _JUDGEMENT)
    entropy_low: float = _of(
        0.2,
        "× the beginning",
        "healthy runs end at 0.5 × or more; below a fifth nothing else is tried",
        _QUICKSTART,
    )
    entropy_low_nats: float = _of(0.1, "nats per token", "above it, one token in fifty is still another", _JUDGEMENT)
    entropy_none: float = _of(
        0.01, "nats per token", "every completion of a group is the same, from the start", _JUDGEMENT
    )
    entropy_high: float = _of(2, "× the beginning", "entropy falls in a healthy run", _GUIDE)
    entropy_rise: float = _of(0.5, "nats per token", "from near 0, twice as much is still little", _JUDGEMENT)
    clipped: float = _of(0.3, "share of completions", "`completions/clipped_ratio`: cut off, they cannot score", _GUIDE)
    closed: float = _of(0.5, "share of completions", "`thinking/closed`: healthy above 0.9, doubtful below 0.7", _GUIDE)
    duplicates: float = _of(
        0.85,
        "of what a group can have",
        "a healthy group of eight has 5 of its 7 possible repeats at most",
        _QUICKSTART,
    )
    shared: float = _of(0.5, "share of completions", "half of the texts do not depend on the problem", _QUICKSTART)
    dominance: float = _of(
        20, "× in weight × std", "the other one decides less than a twentieth of an advantage", _JUDGEMENT
    )
    drowned_std: float = _of(
        0.15, "std of the drowned reward", "a reward that hardly varies, being met, has nothing to say", _QUICKSTART
    )
    unscored: float = _of(0.05, "share of rows", "one row in twenty sampled for nothing", _JUDGEMENT)
    left_out: float = _of(0.1, "share of problems", "the rest may be another set than the one meant", _JUDGEMENT)
    recurring: float = _of(
        0.3, "share of rows logged", "once is an accident, three times in ten is a habit", _JUDGEMENT
    )
    grad_norm: float = _of(
        5,
        "× `max_grad_norm`",
        "healthy runs have medians of 1.0 to 1.4 ×, single norms reach 3.3 ×; AdamW forgives a constant factor",
        _QUICKSTART,
    )
    logp_gap: float = _of(
        0.05, "nats per token", "`sampling/logp_gap`: rounding makes 1e-6 in float32 and 0.02 in bfloat16", "design"
    )
    logp_gap_vllm: float = _of(0.1, "nats per token", "another engine with other kernels, in bfloat16", "TRL's guides")
    reasoning_share: float = _of(
        0.02,
        "× the share at even odds",
        "`thinking/reasoning_share`: below it copies are no longer sampled",
        _JUDGEMENT,
    )
    standard_share: float = _of(
        0.1, "× the share at even odds", "the same for the standard tokens, which `expand` keeps open", _JUDGEMENT
    )
    moved: float = _of(
        0.01, "share of values", "`weights/moved`: AdamW moves every value that has a gradient", "design"
    )
    rounded: float = _of(
        0.5, "share of values", "most updates are smaller than the type can hold", "design, bf16 weights"
    )
    rate_judged: float = _of(
        0.1, "× `training.learning_rate`", "the ends of a warm-up and of a decay may round away", _JUDGEMENT
    )
    slowdown: float = _of(2, "× per token", "twice as long for the same tokens", _JUDGEMENT)
    slowdown_cpu: float = _of(
        5, "× per token", "on a CPU where all parts grew: any other process takes half of it, or more", _QUICKSTART
    )
    slowdown_others: float = _of(
        1.5, "× per token", "where the rest of a step grew less, one part is slow, and not the machine", _JUDGEMENT
    )
    slowdown_seconds: float = _of(
        1, "seconds per step", "less is not worth mending, and any other process makes it", _JUDGEMENT
    )
    rewards_part: float = _of(0.3, "share of a step", "the device waits so long; healthy runs have 0.01", _QUICKSTART)
    rewards_seconds: float = _of(0.1, "seconds per step", "the steps of toy models take less than that", _JUDGEMENT)


LIMITS = Thresholds()


def table() -> list[Threshold]:
    """The thresholds as they apply, in order."""
    return [Threshold(each.name, getattr(LIMITS, each.name), **each.metadata) for each in fields(LIMITS)]
