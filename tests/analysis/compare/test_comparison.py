"""The figures of a comparison against other ways to them: scipy's tests, brute force, by hand, and simulated arms."""

import itertools
from functools import cache

import numpy as np
import pytest
from scipy import stats

from rlvr_vocab.analysis.compare.comparison import (
    ArmResults,
    RunResults,
    adjust_verdicts,
    compare_arms,
    holm,
    match_scores,
)
from rlvr_vocab.analysis.compare.interval import CAUTION, DifferenceVariance, SeedVariance
from rlvr_vocab.errors import UserError


def arm(name, runs):
    return ArmResults(name, [RunResults(seed, list(run), list(run.values())) for seed, run in runs.items()])


def table(scores, seeds=None, own=False):
    """Runs from a table of shape (runs, problems)."""
    named = seeds or list(range(len(scores)))
    return {
        seed: {(seed if own else "all", each): value for each, value in enumerate(row)}
        for seed, row in zip(named, scores, strict=True)
    }


def test_where_each_seed_has_its_own_problems_it_is_the_paired_t_test_of_the_run_means():
    generator = np.random.default_rng(0)
    one, two = generator.random((2, 4, 60))
    two += np.array([[0.0], [0.2], [0.3], [0.5]])  # far more luck of seeds than of problems
    found = compare_arms(arm("a", table(one, own=True)), arm("b", table(two, own=True)))
    expected = stats.ttest_rel(two.mean(1), one.mean(1))
    assert found.p == pytest.approx(expected.pvalue / CAUTION)
    interval = expected.confidence_interval(1 - CAUTION * 0.05)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_runs_that_are_not_pairs_are_compared_as_welch_does():
    generator = np.random.default_rng(1)
    one = generator.normal(0.3, 0.02, (3, 1)) + np.zeros((3, 400))
    two = generator.normal(0.6, 0.08, (3, 1)) + np.zeros((3, 400))
    found = compare_arms(arm("a", table(one)), arm("b", table(two, [7, 8, 9])))
    expected = stats.ttest_ind(two.mean(1), one.mean(1), equal_var=False)
    assert not found.paired
    [seeds] = found.variance.seeds
    assert seeds.df == pytest.approx(expected.df)
    assert found.p == pytest.approx(expected.pvalue / CAUTION, rel=0.02)


def test_arms_with_unequal_numbers_of_runs_keep_their_own_degrees_of_freedom():
    generator = np.random.default_rng(1)
    one = generator.normal(0.3, 0.08, (2, 1)) + np.zeros((2, 400))
    two = generator.normal(0.6, 0.04, (5, 1)) + np.zeros((5, 400))
    found = compare_arms(arm("a", table(one)), arm("b", table(two)), confidence=0.7)
    variances = one[:, 0].var(ddof=1) / 2, two[:, 0].var(ddof=1) / 5
    quantiles = [stats.t.isf(CAUTION * 0.3 / 2, df) for df in (1, 4)]
    half = np.dot(variances, quantiles) / np.sqrt(sum(variances))  # Cochran and Cox
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.01)


def claims(seeds, problems, draws):
    """How often the rule claims at 5 % where there is nothing, over normal luck of known size.

    `seeds` are (variance, what of it is the problems', degrees of freedom) of each part.
    """
    true = sum(variance for variance, _, _ in seeds) + problems
    both = sum(part for _, part, _ in seeds)
    shares = (np.arange(draws) + 0.5) / draws
    seen = [[variance * share / df for share in stats.chi2.ppf(shares, df)] for variance, _, df in seeds]
    halves = [
        DifferenceVariance(
            problems + both, 1e6, tuple(SeedVariance(v, p, df) for v, (_, p, df) in zip(each, seeds, strict=True))
        ).half_width(0.05)
        for each in itertools.product(*seen)
    ]
    return float(2 * stats.norm.sf(np.array(halves) / np.sqrt(true)).mean())


@pytest.mark.parametrize(
    ("seeds", "problems", "draws", "least"),
    [
        ([(101.0, 1.0, 1)], 3.0, 500, 0.04),  # two pairs
        ([(1 / 2, 0.0, 1), (0.3**2 / 10, 0.0, 9)], 0.0, 40, 0.035),  # two runs against ten
    ],
)
def test_the_rule_is_cautious_enough_where_it_claims_most(seeds, problems, draws, least, monkeypatch):
    assert least < claims(seeds, problems, draws) < 0.05
    monkeypatch.setattr("rlvr_vocab.analysis.compare.interval.CAUTION", 1.0)
    assert claims(seeds, problems, draws) > 0.055


def test_the_p_value_is_the_error_whose_interval_ends_at_zero():
    luck = DifferenceVariance(problems=0.0004, problems_df=199, seeds=(SeedVariance(0.0008, 0.0002, 2),))
    for error in (0.5, 0.05, 0.001):
        assert luck.p_value(luck.half_width(error)) == pytest.approx(error)
    assert luck.p_value(0.0) == 1.0
    # An interval is never narrower than that of the problems alone.
    agreeing = DifferenceVariance(problems=0.0004, problems_df=499, seeds=(SeedVariance(1e-9, 0.0004, 2),))
    assert agreeing.half_width(0.05) == pytest.approx(stats.t.isf(CAUTION * 0.025, 499) * 0.02)


def test_arms_that_are_alike_in_every_answer_are_not_known_exactly():
    alike = arm("a", table(np.zeros((3, 50))))
    found = compare_arms(alike, ArmResults("b", alike.runs))
    assert found.verdict == "not distinguishable"
    assert found.high > 0.03 and found.smallest_effect > 0.03


def test_samples_of_a_problem_are_one_problem_and_problems_are_matched_by_what_they_are():
    generator = np.random.default_rng(4)
    once = generator.integers(0, 2, (6, 80)).astype(float)
    single = [arm(name, table(half)) for name, half in (("a", once[:3]), ("b", once[3:]))]
    repeated = [
        ArmResults(each.name, [RunResults(r.seed, [*r.problems] * 5, [*r.scores] * 5) for r in each.runs])
        for each in single
    ]
    assert compare_arms(*repeated) == compare_arms(*single)
    one = arm("a", {0: {"x": 1.0, "y": 0.0, "z": 1.0}})
    scores = match_scores(one, arm("b", {0: {"z": 1.0, "w": 1.0, "y": 1.0}}))
    assert (sorted(scores.other[0] - scores.baseline[0]), scores.left_out) == ([0.0, 1.0], 2)


def test_how_runs_are_matched():
    four = np.zeros((4, 10))
    assert match_scores(arm("a", table(four)), arm("b", table(four))).paired
    other_seeds = match_scores(arm("a", table(four)), arm("b", table(four[:3], [4, 5, 6])))
    assert not other_seeds.paired and other_seeds.other.shape == (3, 10)
    assert not match_scores(arm("a", table(four)), arm("b", table(four[:3]))).paired
    own = match_scores(arm("a", table(four, own=True)), arm("b", table(four[:3], own=True)))
    assert own.paired and own.other.shape == (3, 30)
    assert not match_scores(arm("a", table(four)), arm("b", table(four)), paired=False).paired


@pytest.mark.parametrize(
    ("one", "two", "words"),
    [
        (arm("a", {0: {"x": 1.0}}), arm("b", {0: {"y": 1.0}}), "no held-out problem in common"),
        (arm("a", {0: {"x": 1.0}}), arm("b", {1: {"y": 1.0}}), "no seed in common"),
        (arm("a", {0: {"x": 1.0}}), arm("b", {}), "b has no results"),
        (ArmResults("a", [RunResults(0, ["x"], [1.0])] * 2), arm("b", {0: {"x": 1.0}}), "two runs with seed 0"),
    ],
)
def test_arms_that_cannot_be_compared_are_refused(one, two, words):
    with pytest.raises(UserError, match=words):
        compare_arms(one, two)


def test_several_arms_are_judged_more_strictly_than_one():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.7, 0.9]) == [1.0, 1.0]
    generator = np.random.default_rng(9)
    baseline, *others = (arm(name, table(generator.random((3, 200)))) for name in "abcd")
    together = adjust_verdicts([compare_arms(baseline, other, comparisons=len(others)) for other in others])
    assert together[0].smallest_effect > compare_arms(baseline, others[0]).smallest_effect
    assert [each.adjusted_p for each in together] == pytest.approx(holm([each.p for each in together]))


def test_the_verdict_has_the_sign_of_the_difference_and_needs_two_runs():
    generator = np.random.default_rng(10)
    plain, alike = (arm(name, table((generator.random((5, 300)) < 0.4).astype(float))) for name in ("n=0", "n=1"))
    scores = (generator.random((5, 300)) < 0.7).astype(float)
    better = arm("n=9", table(scores))
    found = [compare_arms(plain, better), compare_arms(better, plain), compare_arms(plain, alike)]
    assert [each.verdict for each in found] == ["higher", "lower", "not distinguishable"]
    assert f"is {100 * found[2].smallest_effect:.1f} points" in found[2].sentence
    single = compare_arms(arm("n=0", table(np.zeros((1, 9)))), arm("n=9", table(scores[:1, :9])))
    assert single.verdict == "one run each"


# --- false claims, power and coverage ---


SIMULATIONS = 300  # which tell 5 % from 10 % and 80 % from 65 %
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
