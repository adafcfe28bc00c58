"""Problems are divided by seed, held-out ones first, with none in common."""

import pytest

from rlvr_vocab.data.load import partition
from rlvr_vocab.data.source import Split

KEYS = [f"problem {number}" for number in range(100)]


@pytest.mark.parametrize(
    ("fraction", "cap", "held_out", "train"),
    [
        (0.0, None, 0, 100),
        (0.25, 7, 7, 75),
        (0.001, None, 1, 99),
        (0.5, 0, 0, 50),
        (0.1, 50, 10, 90),
    ],
)
def test_a_fraction_leaves_training_and_up_to_the_cap_is_measured_on(
    fraction: float, cap: int | None, held_out: int, train: int
) -> None:
    parts = partition(KEYS, None, Split(eval_fraction=fraction, max_eval_samples=cap))
    assert (len(parts.held_out), len(parts.train)) == (held_out, train)
    assert len(parts.reserved) == 100 - train
    assert len({*parts.held_out, *parts.train}) == held_out + train


@pytest.mark.parametrize("eval_keys", [None, [f"problem {number}" for number in range(50, 130)]])
def test_a_larger_cap_later_meets_only_problems_that_a_capped_run_never_trained_on(
    eval_keys: list[str] | None,
) -> None:
    fraction = 0.0 if eval_keys else 0.3
    capped = partition(KEYS, eval_keys, Split(eval_fraction=fraction, max_eval_samples=7))
    uncapped = partition(KEYS, eval_keys, Split(eval_fraction=fraction))
    keys = [*KEYS, *(eval_keys or [])]
    trained = {keys[index] for index in capped.train}
    assert trained.isdisjoint(keys[index] for index in uncapped.held_out)
    assert capped.train == uncapped.train
    assert capped.held_out == uncapped.held_out[:7]
    assert capped.reserved == uncapped.reserved


def test_more_training_problems_extend_the_same_list_and_leave_the_held_out_ones() -> None:
    few = partition(KEYS, None, Split(eval_fraction=0.2, max_train_samples=5))
    many = partition(KEYS, None, Split(eval_fraction=0.2, max_train_samples=50))
    assert (len(few.train), len(many.train)) == (5, 50)
    assert few.train == many.train[:5]
    assert few.held_out == many.held_out


def test_repeats_of_a_held_out_problem_leave_training_before_it_is_cut() -> None:
    keys = [f"problem {number % 10}" for number in range(40)]
    parts = partition(keys, None, Split(eval_fraction=0.2, max_train_samples=10))
    held_out_keys = {keys[index] for index in parts.held_out}
    assert held_out_keys.isdisjoint(keys[index] for index in parts.train)
    assert len(parts.train) == 10
    assert len(parts.held_out) == len(held_out_keys) == 2  # a fifth of ten problems, not of forty rows
    assert parts.removed == 6
