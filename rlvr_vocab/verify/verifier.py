"""Judges a batch of answers: text and exact numbers in this process, formulas in workers that can be killed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

from rlvr_vocab.verify.parser import parse
from rlvr_vocab.verify.reader import as_written, read, read_gold
from rlvr_vocab.verify.readings import Algebra, NoAlgebra, Written, expressions, same
from rlvr_vocab.verify.scanning import MAX_CHARACTERS, TooLarge, Unreadable
from rlvr_vocab.verify.worker_pool import Outcome, WorkerPool

DEADLINE_SECONDS = 2.0

EQUAL = "equal"
DIFFERENT = "different"
NO_ANSWER = "no answer"
UNPARSEABLE = "unparseable answer"
TOO_LARGE = "too large"
TIMEOUT = "timeout"
FAILED = "failed"
UNUSABLE_GOLD = "unusable gold answer"
_SHOWN = 200
_CACHE_SIZE = 4_096


@dataclass(frozen=True)
class Verdict:
    """The verdict on one answer. `correct` is None without a usable gold answer."""

    correct: bool | None
    reason: str
    gold: str | None = None
    answer: str | None = None
    detail: str = ""

    @property
    def score(self) -> float | None:
        return None if self.correct is None else float(self.correct)

    def __str__(self) -> str:
        if self.reason == DIFFERENT:
            return f"different: {self.answer} is not {self.gold}"
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


def verify(
    golds: Sequence[str | None], answers: Sequence[str | None], deadline: float = DEADLINE_SECONDS
) -> list[Verdict]:
    """Judge each answer against the gold answer at its index. No answer can hang, crash or fill the caller's process.

    Gold answers are bare LaTeX, numbers, letters or words, in `$…$` or in a box; None for one that is not text. Answers
    are as extracted by `final_answer`; None where a turn has none. `deadline` is in seconds for one pair.
    """
    pairs = list(zip(golds, answers, strict=True))
    known = {pair: _cache.get((*pair, deadline)) or _decided_here(*pair) for pair in dict.fromkeys(pairs)}
    decided = {pair: verdict for pair, verdict in known.items() if verdict is not None}
    undecided = [pair for pair in known if pair not in decided]
    outcomes = verifier_pool().run(undecided, deadline) if undecided else []
    decided |= {pair: _verdict_of(outcome) for pair, outcome in zip(undecided, outcomes, strict=True)}
    for (gold, answer), verdict in decided.items():
        if len(_cache) >= _CACHE_SIZE:
            _cache.clear()
        # A loaded machine may be late for a pair, or end its worker, once.
        if verdict.reason not in (TIMEOUT, FAILED) and len(gold or "") + len(answer or "") <= MAX_CHARACTERS:
            _cache[gold, answer, deadline] = verdict
    return [decided[pair] for pair in pairs]


_cache: dict[tuple[str | None, str | None, float], Verdict] = {}


def _decided_here(gold: str | None, answer: str | None) -> Verdict | None:
    try:
        return judge(gold, answer, NoAlgebra())
    except Exception:  # noqa: BLE001 - AlgebraNeeded, or a bug, which occurs again in a worker and is reported
        return None


def _verdict_of(outcome: Outcome) -> Verdict:
    if outcome.failure is None:
        return Verdict(**outcome.value)
    reason = outcome.failure if outcome.failure in (TIMEOUT, TOO_LARGE) else FAILED
    return Verdict(False, reason, detail=outcome.detail)


@cache
def verifier_pool() -> WorkerPool:
    """The workers shared by all verification of this process."""
    return WorkerPool(f"{__name__}:judge_with_algebra", preload=f"{__name__}:warm_up")


def judge_with_algebra(pair: list[str]) -> dict[str, Any]:
    """In a worker: map a gold answer and an answer to the fields of their `Verdict`."""
    import rlvr_vocab.verify.algebra as algebra  # it loads mpmath, which the training process does not need

    gold, answer = pair
    return asdict(judge(gold, answer, algebra))


def warm_up() -> None:
    """Fill mpmath's tables of constants, so that the first comparison does not wait for them."""
    judge_with_algebra([r"\frac{x+\sqrt{2}\pi}{3}", r"\frac{1}{3}(x+2^{1/2}\pi)"])


def judge(gold: str | None, answer: str | None, algebra: Algebra) -> Verdict:
    """Judge an extracted answer; with `NoAlgebra` it may raise `AlgebraNeeded`."""
    sides = _shortened(gold), _shortened(answer)
    try:
        gold_reading = read_gold(gold)
    except (TooLarge, Unreadable) as error:
        return Verdict(None, UNUSABLE_GOLD, *sides, str(error))
    if answer is None:
        return Verdict(False, NO_ANSWER, *sides)
    otherwise = NO_ANSWER
    try:
        answer_reading = as_written(answer) if isinstance(gold_reading, Written) else read(answer)
        otherwise = UNPARSEABLE
        correct = same(gold_reading, answer_reading, algebra)
    except TooLarge as error:
        return Verdict(False, TOO_LARGE, *sides, str(error))
    except (Unreadable, ArithmeticError) as error:
        return Verdict(False, otherwise, *sides, str(error))
    return Verdict(correct, EQUAL if correct else DIFFERENT, *sides)


def _shortened(text: str | None) -> str | None:
    return None if text is None else " ".join(text[:_SHOWN].split())


@dataclass(frozen=True)
class GoldReport:
    """Problems with gold answers, by index.

    `unusable` ones are empty, not text, or too large. Of those `by_text_only`, formulas that algebra cannot evaluate,
    only the same spelling is right. `ambiguous` ones are mathematics, a date or a code, and are compared as text.
    """

    unusable: dict[int, str] = field(default_factory=dict)
    by_text_only: dict[int, str] = field(default_factory=dict)
    ambiguous: dict[int, str] = field(default_factory=dict)


def check_golds(golds: Sequence[str | None], on_progress: Callable[[int, int], object] | None = None) -> GoldReport:
    """Read every gold answer as in training; None is a gold answer that is not text.

    >>> findings = check_golds(["42", "", r"\\sum_{n=1}^{9} n", "2024-01-05"])
    >>> findings.unusable, list(findings.by_text_only), list(findings.ambiguous)
    ({1: 'empty'}, [2], [3])
    """
    findings = GoldReport()
    for index, gold in enumerate(golds):
        found = findings.unusable
        try:
            reading = read_gold(gold)
            if isinstance(reading, Written):
                findings.ambiguous[index] = "a date, a range or a code?"
            found = findings.by_text_only
            for expression in expressions(reading):
                parse(expression)
        except (TooLarge, Unreadable) as error:
            found[index] = str(error)
        if on_progress:
            on_progress(index + 1, len(golds))
    return findings
