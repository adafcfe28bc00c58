"""Verdicts for a batch of answers: what text and exact numbers decide here, the rest in workers that may be killed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

from rlvr_vocab.verify.judge import FAILED, TIMEOUT, TOO_LARGE, AlgebraNeeded, NoAlgebra, Verdict, judge
from rlvr_vocab.verify.limits import MAX_CHARACTERS
from rlvr_vocab.verify.worker_pool import Outcome, WorkerPool

DEADLINE_SECONDS = 2.0

_REASONS = {"timeout": TIMEOUT, "too large": TOO_LARGE}
_MOST_REMEMBERED = 4_096

_Key = tuple[str | None, str | None, float]
_remembered: dict[_Key, Verdict] = {}


def verify(
    golds: Sequence[str | None],
    answers: Sequence[str | None],
    deadline: float = DEADLINE_SECONDS,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[Verdict]:
    """Judge each answer against the gold answer at its place.

    Pairs that are the same are judged once, over several calls too, as long as they are among the last few thousand.
    No answer can hang, crash or fill the caller: whatever needs algebra is done in workers with a deadline and a
    memory limit.

    Args:
        golds: gold answers: bare LaTeX, numbers, letters or words, in `$…$` or in a box; None for one that is no
            text.
        answers: final answers as `final_answer` extracts them; None where a turn has none.
        deadline: seconds for one pair.
        on_progress: called with the number of pairs that workers have judged, and that they have to judge.
    """
    pairs = list(zip(golds, answers, strict=True))
    here = {pair: _remembered.get((*pair, deadline)) or _decided_here(*pair) for pair in dict.fromkeys(pairs)}
    decided = {pair: verdict for pair, verdict in here.items() if verdict is not None}
    undecided = [pair for pair in here if pair not in decided]
    outcomes = verifier_pool().run(undecided, deadline, on_progress) if undecided else []
    decided |= {pair: _verdict_of(outcome) for pair, outcome in zip(undecided, outcomes, strict=True)}
    _remember({(*pair, deadline): verdict for pair, verdict in decided.items()})
    return [decided[pair] for pair in pairs]


@cache
def verifier_pool() -> WorkerPool:
    """The workers that all verification of this process shares."""
    return WorkerPool(f"{__name__}:judge_with_algebra", preload=(f"{__name__}:warm_up",))


def judge_with_algebra(pair: list[str]) -> dict[str, Any]:
    """What a worker does: a gold answer and an answer to the fields of their `Verdict`."""
    from rlvr_vocab.verify.algebra import comparison  # it loads mpmath, which the process that trains does without

    gold, answer = pair
    return asdict(judge(gold, answer, comparison))


def warm_up() -> None:
    """Fill mpmath's tables of constants, which the first comparison would wait for."""
    from rlvr_vocab.verify.algebra import comparison

    comparison.equal(r"\frac{x+\sqrt{2}\pi}{3}", r"\frac{1}{3}(x+2^{1/2}\pi)")


def _decided_here(gold: str | None, answer: str | None) -> Verdict | None:
    try:
        return judge(gold, answer, NoAlgebra())
    except AlgebraNeeded:
        return None
    except Exception:  # noqa: BLE001 - a fault of ours: a worker meets it again, and reports it in the verdict
        return None


def _remember(decided: dict[_Key, Verdict]) -> None:
    for (gold, answer, deadline), verdict in decided.items():
        if len(_remembered) >= _MOST_REMEMBERED:
            _remembered.clear()
        if len(gold or "") + len(answer or "") <= MAX_CHARACTERS:
            _remembered[gold, answer, deadline] = verdict


def _verdict_of(outcome: Outcome) -> Verdict:
    if outcome.failure is None:
        return Verdict(**outcome.value)
    reason = _REASONS.get(outcome.failure, FAILED)
    return Verdict(False, reason, detail=outcome.detail, milliseconds=outcome.milliseconds)
