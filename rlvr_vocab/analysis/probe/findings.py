"""Whether the choice among the ids of a text carries meaning: contrasts of arms, a verdict, bits that are used.

One contrast decides, fixed beforehand: redrawn choices against permuted ones, by the metric of the held-out problems.
The others are corrected for their number (Holm), and the verdict does not rest on them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rlvr_vocab.analysis.compare.comparison import (
    ArmResults,
    Comparison,
    RunResults,
    adjust_verdicts,
    compare_arms,
    p_text,
)
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.results import ARMS, HeldOutMetric, PermutedThought, ProbeAnswer
from rlvr_vocab.statistics import Interval, mean_interval

ProbeVerdict = Literal["carries meaning", "no sign of meaning", "too few problems to tell", "cannot tell"]
# An arm, and the field of its answers that is compared.
Measured = tuple[str, Literal["value", "gold_logp", "donor_logp", "permuted_donor_logp"]]
_PRIMARY: tuple[Measured, Measured] = ("permuted", "value"), ("redrawn", "value")
# The contrasts beside the primary one: what they compare, the baseline, and the other.
CONTRASTS: dict[str, tuple[str, Measured, Measured]] = {
    "harm": ("own against redrawn: does redrawing do harm?", ("redrawn", "value"), ("own", "value")),
    "transplanted": ("redrawn against transplanted", ("transplanted", "value"), ("redrawn", "value")),
    "permuted_gold": ("redrawn against permuted, log p(gold)", ("permuted", "gold_logp"), ("redrawn", "gold_logp")),
    "transplanted_gold": (
        "redrawn against transplanted, log p(gold)",
        ("transplanted", "gold_logp"),
        ("redrawn", "gold_logp"),
    ),
    "donor": (
        "towards the donor's answer, log p",
        ("transplanted", "permuted_donor_logp"),
        ("transplanted", "donor_logp"),
    ),
}
_LEAST_EXCHANGED = 0.1  # share of the choices that the permuted arm must have changed to tell anything
_LOGPS = {  # in nats
    "gold_logp": HeldOutMetric(is_share=False, grader="log p of the gold answer"),
    "donor_logp": HeldOutMetric(is_share=False, grader="log p of the donor's answer"),
}


@dataclass(frozen=True)
class ProbedRun:
    """The answers of one run by arm, the text of each problem by its number, gold answers after many permutations."""

    folder: str
    problems: Sequence[str]
    answers: Mapping[str, Sequence[ProbeAnswer]]
    permuted: Sequence[PermutedThought]
    without_thought: int


@dataclass(frozen=True)
class ArmFigures:
    """The means of an arm; `value` is accuracy, or the score; `exchanged` the share of choices that are not the own."""

    arm: str
    value: float
    gold_logp: float | None
    copies_logp: float
    exchanged: float
    against_redrawn: Comparison | None

    @property
    def texts(self) -> tuple[str, str, str]:
        """Difference from the redrawn arm, its interval, and log p of the gold answer."""
        against = self.against_redrawn
        difference = "-" if against is None else against.metric.difference(against.difference)
        gold = "-" if self.gold_logp is None else f"{self.gold_logp:.3f}".replace("-", "−")
        return difference, "-" if against is None else against.interval, gold


@dataclass(frozen=True)
class UsedBits:
    """Bits about the gold answer that the model's choices hold beyond permuted ones, over problems.

    own: of log2 p(gold | own ids) - log2 mean p(gold | permuted ids).
    redrawn: the same with the mean of log2 p(gold | ids) over own and redrawn ids: where redrawing does no harm it has
    the same expectation, with less variance.
    bias: of both, to first order, by the logarithm of a mean over so few permutations.
    """

    own: Interval
    redrawn: Interval
    bias: float
    permutations: int

    def text(self) -> str:
        """Both figures less the bias."""
        own, redrawn = (
            f"{each.estimate - self.bias:+.3f} ({each.low - self.bias:+.3f} to {each.high - self.bias:+.3f})"
            for each in (self.own, self.redrawn)
        )
        return (
            f"{own} by own ids; {redrawn} by own and redrawn ids, the same where redrawing does no harm; "
            f"less about {self.bias:.3f} of bias by {self.permutations} permutations"
        )


@dataclass(frozen=True)
class ProbeFindings:
    """The findings of a probe.

    primary: redrawn against permuted choices; higher where places matter.
    contrasts: the others, by their names in `CONTRASTS`, with p-values adjusted for their number.
    """

    verdict: ProbeVerdict
    sentence: str
    primary: Comparison
    contrasts: Mapping[str, Comparison]
    arms: Sequence[ArmFigures]
    used: UsedBits | None
    telling_effect: float
    runs: Sequence[str]
    thoughts: int
    without_thought: int


def probe_findings(runs: Sequence[ProbedRun], metric: HeldOutMetric, telling_effect: float) -> ProbeFindings:
    """The verdict and everything beside it; a probe that would have missed `telling_effect` rules nothing out."""
    primary = _contrast(runs, *_PRIMARY, metric)
    if primary is None:
        raise UserError("the grader of the run has one score for all answers, or none: no arms can be compared")
    asked = {name: _contrast(runs, one, other, metric) for name, (_, one, other) in CONTRASTS.items()}
    contrasts = {name: found for name, found in asked.items() if found is not None}
    contrasts = dict(zip(contrasts, adjust_verdicts([*contrasts.values()]), strict=True))
    arms = [found for arm in ARMS if (found := _figures(runs, arm, metric)) is not None]
    exchanged = next(each.exchanged for each in arms if each.arm == "permuted")
    verdict, reason = _verdict(primary, contrasts.get("harm"), exchanged, telling_effect)
    figures = f"{metric.difference(primary.difference)}, 95 % interval {primary.interval}, {p_text(primary.p)}"
    return ProbeFindings(
        verdict=verdict,
        sentence=f"{verdict.capitalize()}: {reason} (redrawn less permuted: {figures}).",
        primary=primary,
        contrasts=contrasts,
        arms=arms,
        used=_used_bits(runs),
        telling_effect=telling_effect,
        runs=[run.folder for run in runs],
        thoughts=sum(len({(each.problem, each.sample) for each in run.answers["own"]}) for run in runs),
        without_thought=sum(run.without_thought for run in runs),
    )


def _verdict(
    primary: Comparison, harm: Comparison | None, exchanged: float, telling_effect: float
) -> tuple[ProbeVerdict, str]:
    """The verdict and its reason; `cannot tell` where no number of problems would let this probe rule an effect out."""
    metric, redrawn = primary.metric, float(np.mean(primary.other_scores))
    seen = f"an effect of {metric.difference(primary.smallest_effect, sign=False)} would have been seen"
    dealt = "with the copies dealt out anew over all thoughts, answers are"
    if primary.low > 0:
        return "carries meaning", f"{dealt} worse"
    if exchanged < _LEAST_EXCHANGED:
        return "cannot tell", f"dealing them out anew exchanged {exchanged:.0%} of the choices"
    if metric.is_share and redrawn < telling_effect:
        right = f"after redrawn choices {metric.value(redrawn)} of the answers are right"
        return "cannot tell", f"{right}, and hardly fewer can be"
    if harm is not None and harm.low > 0:
        better = f"{metric.difference(harm.difference)}, 95 % interval {harm.interval}"
        return "cannot tell", (
            f"own choices are better than redrawn ones ({better}): the thought depends on earlier choices, which "
            "redrawing breaks"
        )
    if primary.smallest_effect <= telling_effect and primary.high < telling_effect:
        return "no sign of meaning", f"{dealt} {'better' if primary.high < 0 else 'as good'}, and {seen}"
    return "too few problems to tell", f"only {seen}"


def _contrast(
    runs: Sequence[ProbedRun], baseline: Measured, other: Measured, metric: HeldOutMetric
) -> Comparison | None:
    """The other arm against the baseline, paired by problem and by run; None where values are missing or all one."""
    first, second, metric = _results(runs, *baseline), _results(runs, *other), _LOGPS.get(other[1], metric)
    scores = [run.scores for arm in (first, second) for run in arm.runs]
    if not all(scores) or not (metric.is_share or len({score for each in scores for score in each}) > 1):
        return None
    return compare_arms(first, second, paired=True, metric=metric)


def _results(runs: Sequence[ProbedRun], arm: str, field: str) -> ArmResults:
    found = []
    for run in runs:
        valued = [(run.problems[each.problem], getattr(each, field)) for each in run.answers.get(arm, ())]
        known = [(problem, value) for problem, value in valued if value is not None]
        found.append(RunResults(run.folder, [problem for problem, _ in known], [value for _, value in known]))
    return ArmResults(arm if field == "value" else f"{arm}, {field}", found)


def _figures(runs: Sequence[ProbedRun], arm: str, metric: HeldOutMetric) -> ArmFigures | None:
    answers = [each for run in runs for each in run.answers.get(arm, ())]
    values = [each.value for each in answers if each.value is not None]
    gold = [each.gold_logp for each in answers if each.gold_logp is not None]
    if not values:
        return None
    return ArmFigures(
        arm,
        float(np.mean(values)),
        float(np.mean(gold)) if gold else None,
        float(np.mean([each.copies_logp for each in answers])),
        float(np.mean([each.exchanged for each in answers])),
        None if arm == "redrawn" else _contrast(runs, ("redrawn", "value"), (arm, "value"), metric),
    )


def _used_bits(runs: Sequence[ProbedRun]) -> UsedBits | None:
    """None where fewer than two problems have a log-probability of their gold answer."""
    by_problem: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    permutations = 0
    for run in runs:
        golds: dict[tuple[str, int, int], list[float]] = defaultdict(list)  # log2 p(gold)
        for arm in ("own", "redrawn"):
            for each in run.answers[arm]:
                if each.gold_logp is not None:
                    golds[arm, each.problem, each.sample].append(each.gold_logp / math.log(2))
        for thought in run.permuted:
            own, *_ = golds["own", thought.problem, thought.sample]  # all draws of a thought have the same own ids
            drawn = float(np.mean([own, *golds["redrawn", thought.problem, thought.sample]]))
            permuted, bias = _mean_in_bits(np.array(thought.gold_logps))
            by_problem[run.problems[thought.problem]].append((own - permuted, drawn - permuted, bias))
            permutations = len(thought.gold_logps)
    if len(by_problem) < 2:
        return None
    by_own, by_redrawn, biases = np.array([np.mean(each, axis=0) for each in by_problem.values()]).T
    own_interval, redrawn_interval = mean_interval(by_own), mean_interval(by_redrawn)
    assert own_interval is not None and redrawn_interval is not None
    return UsedBits(own_interval, redrawn_interval, float(biases.mean()), permutations)


def _mean_in_bits(logps: np.ndarray) -> tuple[float, float]:
    """log2 of the mean of p, and by how much it is too small, to first order."""
    share = np.exp(logps - logps.max())  # of the likeliest
    variance = share.var(ddof=1) if len(share) > 1 else 0.0
    bits = (logps.max() + np.log(share.mean())) / np.log(2)
    return float(bits), float(variance / (2 * len(share) * share.mean() ** 2) / np.log(2))
