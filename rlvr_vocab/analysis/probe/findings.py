"""Whether the choice among the ids of a text carries meaning: contrasts of arms, a verdict, bits that are used.

One contrast decides, fixed beforehand: redrawn choices against permuted ones, by the metric of the held-out problems.
The others are corrected for their number (Holm), and the verdict does not rest on them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rlvr_vocab.analysis.compare.comparison import ArmResults, Comparison, RunResults, compare_arms, holm, p_text
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.results import ARMS, HeldOutMetric, PermutedThought, ProbeAnswer
from rlvr_vocab.statistics import Interval, mean_interval

ProbeVerdict = Literal["carries meaning", "no sign of meaning", "too few problems to tell", "cannot tell"]
# The contrasts beside the primary one.
CONTRASTS = {
    "harm": "own against redrawn: does redrawing do harm?",
    "transplanted": "redrawn against transplanted",
    "permuted_gold": "redrawn against permuted, log p(gold)",
    "transplanted_gold": "redrawn against transplanted, log p(gold)",
    "donor": "towards the donor's answer, log p",
}
_LEAST_EXCHANGED = 0.1  # share of the choices that the permuted arm must have changed to tell anything
_GOLD_LOGP = HeldOutMetric(is_share=False, grader="log p of the gold answer")  # in nats, as the next
_DONOR_LOGP = HeldOutMetric(is_share=False, grader="log p of the donor's answer")
ValueOf = Callable[[ProbeAnswer], float | None]


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

    Attributes:
        own: of log2 p(gold | own ids) - log2 mean p(gold | permuted ids).
        redrawn: the same with the mean of log2 p(gold | ids) over own and redrawn ids: where redrawing does no harm it
            has the same expectation, with less variance.
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

    Attributes:
        primary: redrawn against permuted choices; higher where places matter.
        contrasts: the others, by their names in `CONTRASTS`; their p-values are adjusted for their number.
    """

    verdict: ProbeVerdict
    sentence: str
    primary: Comparison
    contrasts: Mapping[str, Comparison]
    arms: Sequence[ArmFigures]
    used: UsedBits | None
    telling_effect: float
    metric: HeldOutMetric
    runs: Sequence[str]
    thoughts: int
    without_thought: int


def probe_findings(runs: Sequence[ProbedRun], metric: HeldOutMetric, telling_effect: float) -> ProbeFindings:
    """The verdict and everything beside it; a probe that would have missed `telling_effect` rules nothing out."""

    def results(arm: str, value_of: ValueOf, name: str = "") -> ArmResults:
        found = []
        for run in runs:
            valued = [(each.problem, value_of(each)) for each in run.answers.get(arm, ())]
            known = [(run.problems[problem], value) for problem, value in valued if value is not None]
            found.append(RunResults(run.folder, [problem for problem, _ in known], [value for _, value in known]))
        return ArmResults(name or arm, found)

    def contrast(
        baseline: str, other: str, value_of: ValueOf = _value, by: HeldOutMetric = metric
    ) -> Comparison | None:
        return _compared(results(baseline, value_of), results(other, value_of), by)

    primary = contrast("permuted", "redrawn")
    if primary is None:
        raise UserError("the grader of the run has one score for all answers, or none: no arms can be compared")
    without_donors = results("transplanted", lambda each: each.permuted_donor_logp, name="permuted")
    with_donors = results("transplanted", lambda each: each.donor_logp)
    asked: dict[str, Comparison | None] = {
        "harm": contrast("redrawn", "own"),
        "transplanted": contrast("transplanted", "redrawn"),
        "permuted_gold": contrast("permuted", "redrawn", _gold, _GOLD_LOGP),
        "transplanted_gold": contrast("transplanted", "redrawn", _gold, _GOLD_LOGP),
        "donor": _compared(without_donors, with_donors, _DONOR_LOGP),
    }
    contrasts = {name: found for name, found in asked.items() if found is not None}
    adjusted = holm([found.p for found in contrasts.values()])
    contrasts = {
        name: replace(found, adjusted_p=p) for (name, found), p in zip(contrasts.items(), adjusted, strict=True)
    }
    arms = []
    for arm in ARMS:
        answers = [each for run in runs for each in run.answers.get(arm, ())]
        if any(each.value is not None for each in answers):
            against = None if arm == "redrawn" else contrast("redrawn", arm)
            arms.append(_figures(arm, answers, against))
    exchanged = next(each.exchanged for each in arms if each.arm == "permuted")
    obstacle = _obstacle(primary, contrasts.get("harm"), exchanged, telling_effect)
    verdict = _verdict(primary, obstacle, telling_effect)
    return ProbeFindings(
        verdict=verdict,
        sentence=_sentence(verdict, primary, obstacle),
        primary=primary,
        contrasts=contrasts,
        arms=arms,
        used=_used_bits(runs),
        telling_effect=telling_effect,
        metric=metric,
        runs=[run.folder for run in runs],
        thoughts=sum(len({(each.problem, each.sample) for each in run.answers["own"]}) for run in runs),
        without_thought=sum(run.without_thought for run in runs),
    )


def _obstacle(primary: Comparison, harm: Comparison | None, exchanged: float, telling_effect: float) -> str:
    """Why no number of problems would let this probe rule an effect out; empty where some would."""
    metric, redrawn = primary.metric, float(np.mean(primary.other_scores))
    if exchanged < _LEAST_EXCHANGED:
        return f"dealing them out anew exchanged {exchanged:.0%} of the choices"
    if metric.is_share and redrawn < telling_effect:
        return f"after redrawn choices {metric.value(redrawn)} of the answers are right, and hardly fewer can be"
    if harm is not None and harm.low > 0:
        return (
            f"own choices are better than redrawn ones ({metric.difference(harm.difference)}, 95 % interval "
            f"{harm.interval}): the thought depends on earlier choices, which redrawing breaks"
        )
    return ""


def _verdict(primary: Comparison, obstacle: str, telling_effect: float) -> ProbeVerdict:
    if primary.low > 0:
        return "carries meaning"
    if obstacle:
        return "cannot tell"
    seen = primary.smallest_effect <= telling_effect and primary.high < telling_effect
    return "no sign of meaning" if seen else "too few problems to tell"


def _sentence(verdict: ProbeVerdict, primary: Comparison, obstacle: str) -> str:
    metric = primary.metric
    figures = f"{metric.difference(primary.difference)}, 95 % interval {primary.interval}, {p_text(primary.p)}"
    seen = f"an effect of {metric.difference(primary.smallest_effect, sign=False)} would have been seen"
    dealt = "with the copies dealt out anew over all thoughts, answers are"
    rest = {
        "carries meaning": f"{dealt} worse",
        "no sign of meaning": f"{dealt} {'better' if primary.high < 0 else 'as good'}, and {seen}",
        "too few problems to tell": f"only {seen}",
        "cannot tell": obstacle,
    }
    return f"{verdict.capitalize()}: {rest[verdict]} (redrawn less permuted: {figures})."


def _value(answer: ProbeAnswer) -> float | None:
    return answer.value


def _gold(answer: ProbeAnswer) -> float | None:
    return answer.gold_logp


def _compared(baseline: ArmResults, other: ArmResults, metric: HeldOutMetric) -> Comparison | None:
    """The other arm against the baseline, paired by problem and by run; None where values are missing or all one."""
    scores = [run.scores for each in (baseline, other) for run in each.runs]
    if not all(scores) or not (metric.is_share or len({score for each in scores for score in each}) > 1):
        return None
    return compare_arms(baseline, other, paired=True, metric=metric)


def _figures(arm: str, answers: Sequence[ProbeAnswer], against_redrawn: Comparison | None) -> ArmFigures:
    values = [value for each in answers if (value := each.value) is not None]
    gold = [each.gold_logp for each in answers if each.gold_logp is not None]
    return ArmFigures(
        arm,
        float(np.mean(values)),
        float(np.mean(gold)) if gold else None,
        float(np.mean([each.copies_logp for each in answers])),
        float(np.mean([each.exchanged for each in answers])),
        against_redrawn,
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
