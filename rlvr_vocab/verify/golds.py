"""What the verifier can do with the gold answers of a data set, found out before anything is trained on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rlvr_vocab.verify.limits import TooLarge, Unreadable
from rlvr_vocab.verify.reading import read_gold
from rlvr_vocab.verify.reading.parser import parse
from rlvr_vocab.verify.reading.readings import Reading, Written, expressions

# Said of the ambiguous ones, behind their number.
COMPARED_AS_TEXT = "compared as text, for want of a sign of mathematics: write what is mathematics as $…$"


@dataclass(frozen=True)
class GoldReport:
    """What is wrong with gold answers, by their index.

    Attributes:
        unusable: nothing can be compared with them: empty, no text, or larger than an answer can be.
        by_text_only: formulas that algebra cannot evaluate; an answer is right only when it is written alike.
        ambiguous: what does not say whether it is mathematics, a date or a code; compared as text.
    """

    unusable: dict[int, str] = field(default_factory=dict)
    by_text_only: dict[int, str] = field(default_factory=dict)
    ambiguous: dict[int, str] = field(default_factory=dict)


def check_golds(golds: Sequence[str | None], on_progress: Callable[[int, int], object] | None = None) -> GoldReport:
    """Read every gold answer as training will.

    Args:
        golds: gold answers: bare, in `$…$` or in a box; None for one that is no text.
        on_progress: called with the number of gold answers that have been read, and that have to be read.

    >>> findings = check_golds(["42", "", r"\\sum_{n=1}^{9} n", "2024-01-05"])
    >>> findings.unusable, list(findings.by_text_only), list(findings.ambiguous)
    ({1: 'empty'}, [2], [3])
    """
    findings = GoldReport()
    for index, gold in enumerate(golds):
        try:
            reading = read_gold(gold)
        except (TooLarge, Unreadable) as error:
            findings.unusable[index] = str(error)
        else:
            if isinstance(reading, Written):
                findings.ambiguous[index] = "a date, a range or a code?"
            elif why := _unread_formula(reading):
                findings.by_text_only[index] = why
        if on_progress:
            on_progress(index + 1, len(golds))
    return findings


def _unread_formula(reading: Reading) -> str | None:
    """Why one of the formulas in a reading cannot be evaluated, None where all can."""
    try:
        for expression in expressions(reading):
            parse(expression)
    except (TooLarge, Unreadable) as error:
        return str(error)
    return None
