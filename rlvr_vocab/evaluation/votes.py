"""Which samples of a problem give the same answer, by the verifier's word."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rlvr_vocab.record.results import ProblemResult
from rlvr_vocab.verify import verify

# Called with pairs of answers; True where the two of a pair are equal.
Equal = Callable[[Sequence[tuple[str, str]]], list[bool]]
_RIGHT = 0


def equal_by_verifier(pairs: Sequence[tuple[str, str]]) -> list[bool]:
    """Equal in value, as an answer is to a gold answer; one that cannot be read equals only the same text."""
    if not pairs:
        return []
    golds, answers = zip(*pairs, strict=True)
    return [verdict.correct is True for verdict in verify(golds, answers)]


def votes_of(results: Sequence[ProblemResult], equal: Equal = equal_by_verifier) -> list[int | None]:
    """For each result the number of its answer within its problem, the same for equal answers; None for no answer.

    Right answers equal the gold answer, so they are one answer: number 0. Of the others, each new text is compared with
    the first text of every answer so far, all problems at once, so that there are few rounds and few pairs.
    """
    ballots: dict[int, VoteGroup] = defaultdict(VoteGroup)
    for result in results:
        ballot = ballots[result.problem]
        if not result.right and result.answer is not None and result.answer not in ballot.waiting:
            ballot.waiting.append(result.answer)
    while any(ballot.waiting for ballot in ballots.values()):
        _place_next([ballot for ballot in ballots.values() if ballot.waiting], equal)
    return [_vote(result, ballots[result.problem]) for result in results]


@dataclass
class VoteGroup:
    """The wrong answers of one problem: first texts by number - 1, the numbers of placed texts, texts to be placed."""

    firsts: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)


def _place_next(ballots: Sequence[VoteGroup], equal: Equal) -> None:
    """Give the next waiting text of each ballot its number."""
    pairs = [(first, ballot.waiting[0]) for ballot in ballots for first in ballot.firsts]
    verdicts = iter(equal(pairs))
    for ballot in ballots:
        text, same = ballot.waiting.pop(0), [next(verdicts) for _ in ballot.firsts]
        if True not in same:
            ballot.firsts.append(text)
            same.append(True)
        ballot.numbers[text] = _RIGHT + 1 + same.index(True)


def _vote(result: ProblemResult, ballot: VoteGroup) -> int | None:
    if result.right:
        return _RIGHT
    return None if result.answer is None else ballot.numbers[result.answer]
