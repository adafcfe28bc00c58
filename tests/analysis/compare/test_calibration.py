"""What `compare` promises, on simulated arms: false claims, power at the smallest effect, coverage.

The expected shares are those that the words promise; 300 simulations tell 5 % from 10 % and 80 % from 65 %.
"""

from functools import cache

import numpy as np
import pytest

from rlvr_vocab.analysis.compare.comparison import ArmResults, RunResults, compare_arms

SIMULATIONS = 300
PROBLEMS = 120


def simulated(generator, design, seeds, luck, effect, suits=0.0):
    """Two arms whose chances differ by `effect`, with luck of seeds, and problems that suit one arm better."""
    sets = seeds if design == "own" else 1
    hardness = generator.uniform(0.3, 0.7, (sets, PROBLEMS))
    arms = []
    for number in range(2):
        chances = hardness + generator.normal(0, suits / np.sqrt(2), hardness.shape) + effect * (number - 0.5)
        runs = []
        for seed, shift in enumerate(generator.normal(0, luck, seeds)):
            of_set = seed if design == "own" else 0
            scores = generator.random(PROBLEMS) < np.clip(chances[of_set] + shift, 0, 1)
            name = f"{number}-{seed}" if design == "apart" else seed
            runs.append(RunResults(name, [(of_set, each) for each in range(PROBLEMS)], scores))
        arms.append(ArmResults(f"arm {number}", runs))
    return compare_arms(*arms)


@cache
def without_a_difference(design, seeds, luck, suits):
    generator = np.random.default_rng(5)
    return [simulated(generator, design, seeds, luck, 0.0, suits) for _ in range(SIMULATIONS)]


SLOW = (("own", 3, 0.05, 0.0), ("apart", 3, 0.05, 0.0), ("fixed", 5, 0.02, 0.2))
KINDS = [("fixed", 3, 0.05, 0.0), *(pytest.param(*kind, marks=pytest.mark.slow) for kind in SLOW)]


@pytest.mark.parametrize(("design", "seeds", "luck", "suits"), KINDS)
def test_without_a_difference_one_in_twenty_is_claimed_at_most(design, seeds, luck, suits):
    found = without_a_difference(design, seeds, luck, suits)
    claimed = sum(each.verdict != "not distinguishable" for each in found)
    assert claimed <= 0.075 * SIMULATIONS  # 5 % and two standard errors
    assert {each.paired for each in found} == {design != "apart"}


@pytest.mark.parametrize(("design", "seeds", "luck", "suits"), KINDS)
def test_the_smallest_effect_is_found_as_often_as_it_says(design, seeds, luck, suits):
    generator = np.random.default_rng(6)
    effect = float(np.mean([each.smallest_effect for each in without_a_difference(design, seeds, luck, suits)]))
    there = [simulated(generator, design, seeds, luck, effect, suits) for _ in range(SIMULATIONS)]
    power = np.mean([each.verdict == "higher" for each in there])
    assert 0.73 <= power <= 0.93
    assert np.mean([each.low <= effect <= each.high for each in there]) >= 0.93
