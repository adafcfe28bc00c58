"""Statistics over problems against other ways to the same figure: scipy, simulation, and counting every case."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from rlvr_vocab.bounds import reaches
from rlvr_vocab.statistics import (
    BOOTSTRAP,
    ONE_VALUE,
    STUDENT,
    WILSON,
    Interval,
    difference_interval,
    majority_share,
    mean_interval,
    passes_at_k,
    ratio_interval,
    share_interval,
)

RNG = np.random.default_rng(7)


def ends(interval):
    assert interval is not None
    return interval.low, interval.high


@pytest.mark.parametrize(("right", "problems"), [(0, 1), (0, 50), (1, 10), (7, 30), (150, 200), (1000, 1000)])
def test_with_one_sample_per_problem_a_share_has_wilsons_interval(right, problems):
    found = share_interval([1.0] * right + [0.0] * (problems - right))
    expected = stats.binomtest(right, problems).proportion_ci(0.95, method="wilson")
    assert ends(found) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert found is not None and found.method == WILSON


def test_with_many_problems_it_is_the_bootstrap_that_draws_problems():
    values = RNG.binomial(8, RNG.beta(0.5, 0.8, size=400)) / 8
    drawn = RNG.choice(values, size=(5_000, 400)).mean(axis=1)
    found = share_interval(values, samples=3200)
    expected = tuple(np.quantile(drawn, [0.025, 0.975]))
    assert ends(found) == pytest.approx(expected, abs=0.05 * (expected[1] - expected[0]))
    assert found == Interval(values.mean(), *ends(found), 0.95, BOOTSTRAP, 400, 3200)


def test_the_estimate_lies_inside_and_all_wrong_or_all_right_leave_room_on_one_side():
    for values in ([0.0005] * 40, [0.9995] * 40, [0.5], [0.02] * 3, RNG.random(5)):
        found = share_interval(values)
        assert found is not None and 0 <= found.low <= found.estimate <= found.high <= 1 and found.low < found.high
    for problems in (1, 2, 30, 500):
        low, high = ends(share_interval([0.0] * problems))
        assert low == 0.0 and 1 / (problems + 1) < high < min(1.0, 4 / problems)
        assert ends(share_interval([1.0] * problems)) == pytest.approx((1 - high, 1.0))


def test_no_problems_have_no_interval():
    assert share_interval([]) is difference_interval([]) is mean_interval([]) is ratio_interval([], []) is None
    assert ratio_interval([0.0, 0.0], [0.0, 0.0]) is None


def test_a_mean_and_a_difference_have_students_interval():
    values = RNG.normal(200, 50, size=25)
    expected = stats.t.interval(0.95, 24, loc=values.mean(), scale=stats.sem(values))
    assert ends(mean_interval(values)) == pytest.approx(expected)
    differences = RNG.choice([-0.5, 0.0, 0.25], size=40)
    expected = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert ends(difference_interval(differences)) == pytest.approx((expected.low, expected.high))


def test_a_ratio_agrees_with_the_bootstrap_of_pairs():
    below = RNG.integers(50, 400, size=300).astype(float)
    above = RNG.binomial(below.astype(int), RNG.beta(4, 6, size=300)).astype(float)
    drawn = RNG.integers(0, 300, size=(4_000, 300))
    expected = np.quantile(above[drawn].sum(axis=1) / below[drawn].sum(axis=1), [0.025, 0.975])
    found = ratio_interval(above, below)
    assert found is not None and found.estimate == pytest.approx(above.sum() / below.sum()) and found.method == STUDENT
    assert ends(found) == pytest.approx(tuple(expected), abs=0.1 * (expected[1] - expected[0]))


def test_without_any_spread_a_difference_still_has_a_width_and_a_length_says_so():
    same = difference_interval([0.0] * 50)
    assert same is not None and same.method == BOOTSTRAP and same.low == -same.high
    assert same.estimate == 0 and 0.01 < same.high < 0.06
    certain = difference_interval([1.0] * 50)
    assert certain is not None and 0.9 < certain.low < certain.high == 1.0
    assert ends(difference_interval([-1.0] * 50)) == (-certain.high, -certain.low)
    length = mean_interval([24.0] * 10)
    assert length is not None and (*ends(length), length.method) == (24.0, 24.0, ONE_VALUE)


def test_an_interval_ends_where_nothing_can_be():
    """Of [1, 1, 70] Student's t reaches 23 ± 99, and of a share of 0.9 on two unlike problems past 0 and 1."""
    assert ends(mean_interval([1.0, 1.0, 70.0]))[0] < -70 and ends(mean_interval([1.0, 1.0, 70.0], least=0))[0] == 0
    assert ends(ratio_interval([10.0, 0.0], [10.0, 2.0], ends=(0, 1))) == (0, 1)


# --- majority ---


def counted_out(votes, gold):
    """Break ties in favour of each voter in turn who gave one of the most frequent answers: all are as likely."""
    counts = Counter(vote for vote in votes if vote is not None)
    most = max(counts.values(), default=0)
    winners = [vote for vote in votes if vote is not None and counts[vote] == most]
    return sum(vote == gold for vote in winners) / len(winners) if winners else 0.0


@pytest.mark.parametrize("samples", [0, 1, 2, 4])
def test_the_majority_of_every_ballot_of_three_answers_and_no_answer(samples):
    for votes in itertools.product(("right", "wrong", "other", None), repeat=samples):
        found = majority_share(votes, [vote == "right" for vote in votes])
        assert found == pytest.approx(counted_out(votes, "right"))
    assert majority_share(["a", "a", "b"], [True, False, False]) == 0.5  # one answer with two verdicts


# --- pass@k ---


@pytest.mark.parametrize("samples", [1, 2, 6])
def test_pass_at_k_is_the_share_of_all_choices_that_hold_a_right_sample(samples):
    for right, k in itertools.product(range(samples + 1), range(1, samples + 1)):
        verdicts = [True] * right + [False] * (samples - right)
        choices = list(itertools.combinations(verdicts, k))
        assert passes_at_k([samples], [right], k) == pytest.approx([sum(map(any, choices)) / len(choices)], abs=1e-12)


@pytest.mark.parametrize(("samples", "right", "k"), [(1000, 1, 500), (10_000, 3, 100), (1000, 999, 1), (200, 2, 199)])
def test_large_numbers_neither_overflow_nor_cancel(samples, right, k):
    exact = 1 - Fraction(math.comb(samples - right, k), math.comb(samples, k))
    assert passes_at_k([samples], [right], k) == pytest.approx([float(exact)], rel=1e-10)


# --- marks ---


@pytest.mark.parametrize("mark", [0.8, 2 / 3, 100.1, -0.3])
def test_a_score_that_was_summed_or_stored_in_float32_reaches_its_mark(mark):
    for score in (mark, mark - 1e-12, float(np.float32(mark)), mark + 1):
        assert reaches(score, mark)
    assert not reaches(mark - 0.001, mark) and not reaches(math.nan, mark)
