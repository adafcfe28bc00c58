"""Answers of a probe that are made up, so that the truth is known."""

import numpy as np

from rlvr_vocab.analysis.probe.findings import ProbedRun, probe_findings
from rlvr_vocab.record.results import ARMS, HeldOutMetric, PermutedThought, ProbeAnswer

DRAWS, PERMUTATIONS = 4, 8
TELLING = 0.05


def made_up(effect=0.0, problems=500, seed=0, coupled=0.9, folder="run", draws=DRAWS, arms=tuple(ARMS)):
    """A run of 70 % right answers, less `effect` of them where choices are not the model's own.

    coupled: how often an arm answers as the own one, by the same random numbers.
    """
    random = np.random.default_rng(seed)
    ease = random.beta(2, 1, problems)
    of_own = random.random((problems, draws))
    answers = {}
    for arm in arms:
        of_arm = np.where(random.random((problems, draws)) < coupled, of_own, random.random((problems, draws)))
        change = effect if arm in ("permuted", "transplanted", "coin") else 0.0
        chance = ease * (1 - change)
        answers[arm] = [
            ProbeAnswer(
                problem=problem,
                sample=0,
                draw=draw,
                score=float(of_arm[problem, draw] < chance[problem]),
                right=bool(of_arm[problem, draw] < chance[problem]),
                gold_logp=float(np.log(chance[problem])),
                donor_logp=-9.0 - ease[problem] if arm == "transplanted" else None,
                permuted_donor_logp=-9.0 - ease[problem] if arm == "transplanted" else None,
                donor=None,
                copies_logp=-4.0,
                exchanged=0.0 if arm == "own" else 0.5,
                answer="7",
            )
            for problem in range(problems)
            for draw in range(draws)
        ]
    permuted = [
        PermutedThought(number, 0, [float(np.log(chance))] * PERMUTATIONS) for number, chance in enumerate(ease)
    ]
    return ProbedRun(folder, [f"problem {number}" for number in range(problems)], answers, permuted, 3)


def findings(*runs):
    return probe_findings(runs, HeldOutMetric(), TELLING)
