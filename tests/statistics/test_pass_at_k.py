"""pass@k counted out over every choice of k samples."""

import itertools
import math
from fractions import Fraction

import pytest

from rlvr_vocab.statistics import pass_at_k, passes_at_k, usual_ks


@pytest.mark.parametrize("samples", range(1, 9))
def test_it_is_the_share_of_all_choices_that_hold_a_right_sample(samples: int) -> None:
    for right, k in itertools.product(range(samples + 1), range(1, samples + 1)):
        verdicts = [True] * right + [False] * (samples - right)
        choices = list(itertools.combinations(verdicts, k))
        assert pass_at_k(samples, right, k) == pytest.approx(sum(map(any, choices)) / len(choices), abs=1e-12)


@pytest.mark.parametrize(("samples", "right", "k"), [(1000, 1, 500), (10_000, 3, 100), (1000, 999, 1), (200, 2, 199)])
def test_large_numbers_neither_overflow_nor_cancel(samples: int, right: int, k: int) -> None:
    exact = 1 - Fraction(math.comb(samples - right, k), math.comb(samples, k))
    assert pass_at_k(samples, right, k) == pytest.approx(float(exact), rel=1e-10)


def test_at_one_it_is_the_share_of_right_samples_and_it_never_falls_with_k() -> None:
    assert pass_at_k(16, 5, 1) == pytest.approx(5 / 16)
    curve = [pass_at_k(16, 5, k) for k in range(1, 17)]
    assert curve == sorted(curve) and curve[-1] == 1.0


def test_its_expectation_is_the_chance_that_one_of_k_draws_is_right() -> None:
    chance, samples, k = 0.3, 6, 4
    weights = [math.comb(samples, c) * chance**c * (1 - chance) ** (samples - c) for c in range(samples + 1)]
    expected = sum(weight * pass_at_k(samples, c, k) for c, weight in enumerate(weights))
    assert expected == pytest.approx(1 - (1 - chance) ** k)


def test_a_problem_with_fewer_samples_than_k_is_left_out() -> None:
    assert passes_at_k([4, 1, 2], [1, 1, 0], 2) == [0.5, 0.0]


@pytest.mark.parametrize(("samples", "right", "k"), [(3, 1, 4), (3, 4, 2), (3, 1, 0), (3, -1, 1)])
def test_what_cannot_be_is_refused(samples: int, right: int, k: int) -> None:
    with pytest.raises(ValueError, match=f"pass@{k} of {right} right out of {samples}"):
        pass_at_k(samples, right, k)


def test_ks_double_up_to_the_number_of_samples() -> None:
    assert [list(usual_ks(samples)) for samples in (1, 2, 8, 12)] == [[1], [1, 2], [1, 2, 4, 8], [1, 2, 4, 8, 12]]
