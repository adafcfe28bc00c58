"""The majority's answer, with ties broken by lot: every way to break them counted out."""

import itertools
from collections import Counter

import pytest

from rlvr_vocab.statistics import majority_share


def counted_out(votes: tuple[str | None, ...], gold: str) -> float:
    """Break ties in favour of each voter in turn who gave one of the most frequent answers: all are as likely."""
    counts = Counter(vote for vote in votes if vote is not None)
    most = max(counts.values(), default=0)
    winners = [vote for vote in votes if vote is not None and counts[vote] == most]
    return sum(vote == gold for vote in winners) / len(winners) if winners else 0.0


@pytest.mark.parametrize("samples", [1, 2, 3, 4, 5])
def test_every_ballot_of_three_answers_and_no_answer(samples: int) -> None:
    for votes in itertools.product(("right", "wrong", "other", None), repeat=samples):
        found = majority_share(votes, [vote == "right" for vote in votes])
        assert found == pytest.approx(counted_out(votes, "right"))


def test_of_one_answer_with_two_verdicts_the_share_counts() -> None:
    assert majority_share(["a", "a", "b"], [True, False, False]) == 0.5


def test_nobody_votes() -> None:
    assert majority_share([], []) == majority_share([None, None], [False, False]) == 0.0
