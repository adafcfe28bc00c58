"""maj@k: how often the answer that most of the k samples of a problem give is right."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence


def majority_share(votes: Sequence[Hashable | None], right: Sequence[bool]) -> float:
    """How likely the majority's answer is right when ties are broken by lot (Wang et al. 2022, self-consistency).

    Args:
        votes: for each sample what names its answer, the same for answers that are equal; None does not vote.
        right: whether the sample is right. Where samples with one answer differ in that, their share counts.

    Returns:
        The mean over the answers with most votes; 0 where nobody votes.

    Example:
        >>> majority_share(["42", "42", "41", "41", None], [True, True, False, False, False])
        0.5
    """
    ballots: dict[Hashable, list[bool]] = defaultdict(list)
    for vote, is_right in zip(votes, right, strict=True):
        if vote is not None:
            ballots[vote].append(is_right)
    most = max(map(len, ballots.values()), default=0)
    winners = [sum(marks) / len(marks) for marks in ballots.values() if len(marks) == most]
    return sum(winners) / len(winners) if winners else 0.0
