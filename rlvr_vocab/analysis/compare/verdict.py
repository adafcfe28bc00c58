"""What a comparison comes to, in words."""

from __future__ import annotations

from rlvr_vocab.analysis.compare.comparison import Comparison
from rlvr_vocab.counted import counted

_KNOWS_ITS_LUCK = 5  # runs of an arm
ROUGH_EFFECT = (
    "With so few runs the smallest effect is itself a rough estimate: the same experiment with other seeds may report "
    "one that differs by a factor of two."
)


def verdict_sentence(found: Comparison) -> str:
    """One sentence: the verdict, the figures that it rests on, and what could have been seen."""
    if found.verdict == "one run each":
        return _of_models(found)
    figures = f"difference {points(found.difference)}, {interval_words(found)}, {p_words(found.adjusted_p)}"
    figures += f" after Holm's correction for {found.comparisons} comparisons" * (found.comparisons > 1)
    if found.verdict == "not distinguishable":
        return (
            f"{found.other} and {found.baseline} are not distinguishable ({figures}; the smallest effect that could "
            f"have been shown with {sample_words(found)} is {effect_words(found)}"
            f"{', itself a rough estimate' if is_rough(found) else ''})."
        )
    return f"{found.other} is {found.verdict} than {found.baseline} ({figures}; {sample_words(found)})."


def _of_models(found: Comparison) -> str:
    zero_outside = found.low > 0 or found.high < 0
    models = "The single models" if found.counts == (1, 1) else "The models that were trained"
    apart = "differ on problems like these" if zero_outside else "are not distinguishable on problems like these"
    return (
        f"One run of an arm cannot tell the arms apart: the luck of a seed is not seen. {models} {apart} "
        f"(difference {points(found.difference)} for {found.other}, {interval_words(found)}, {sample_words(found)}). "
        "Train each arm with three seeds or more."
    )


def sample_words(found: Comparison) -> str:
    """How many seeds and problems a comparison rests on."""
    counts = found.counts
    on = f"on {counted(found.problems, 'problem')}"
    if found.paired:
        return f"{counted(counts[0], 'pair')} of runs {on}"
    return f"{counts[0]} against {counted(counts[1], 'run')} {on}"


def points(share: float, sign: bool = True) -> str:
    """A difference of shares in percentage points."""
    number = f"{100 * share:+.1f}" if sign else f"{100 * share:.1f}"
    return f"{number.replace('-', '−')} points"


def effect_words(found: Comparison) -> str:
    """The smallest effect; a difference of two shares is at most 100 points."""
    return points(found.smallest_effect, sign=False) if found.smallest_effect < 1 else "more than there can be"


def is_rough(found: Comparison) -> bool:
    """Whether the smallest effect is an estimate from very few runs."""
    return min(found.counts) < _KNOWS_ITS_LUCK and found.smallest_effect < 1


def p_words(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def interval_words(found: Comparison) -> str:
    return f"{100 * found.confidence:g} % interval {ends(found)}"


def ends(found: Comparison) -> str:
    """Of the interval, in percentage points."""
    return " to ".join(f"{100 * end:+.1f}".replace("-", "−") for end in (found.low, found.high))
