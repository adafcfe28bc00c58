"""Thousands of damaged answers: none raises, none holds up the process that trains."""

import contextlib
import json
import random
import time
from pathlib import Path

import pytest

from rlvr_vocab.verify import algebra
from rlvr_vocab.verify.equality import AlgebraNeeded, NoAlgebra
from rlvr_vocab.verify.reading import read
from rlvr_vocab.verify.reading.scanning import MAX_CHARACTERS
from rlvr_vocab.verify.verifier import judge

pytestmark = pytest.mark.slow

PAIRS = [json.loads(line) for line in Path(__file__).with_name("pairs.jsonl").open(encoding="utf-8")]
FRAGMENTS = r"""
    \frac \sqrt \sqrt[ \pi \le \pm \cup \infty \text{ \text{and} \overline{ ^ _ { } ( ) [ ] \{ \} , . ; : = < > + - * /
    ! ' % \% \$ $ & \\ \, \! ~ i e x X 0 1 9 \left \right \left. \begin{pmatrix} \end{pmatrix} ^\circ ° ² ½ π ∞ ≤
    \mathrm{ \boxed{ \in \approx \mid | \sin \ln( \log_ \cdot \dots ... \over \choose \not \degree \prime \phantom{
    \color{red} ** ` # é − \lfloor \rfloor \binom \langle cm or and C (C) Option million 1/2 _2 \mathbb
""".split()  # noqa: SIM905 - a table


def damaged(text: str, source: random.Random) -> str:
    for _ in range(source.choice((1, 1, 2, 3))):
        begin, end = sorted(source.randrange(len(text) + 1) for _ in range(2))
        end = min(end, begin + 3)
        text = source.choice(
            (
                text[:begin] + text[begin + 1 :],
                text[:begin] + source.choice(FRAGMENTS) + text[begin:],
                text[:begin] + source.choice(FRAGMENTS) + text[end:],
                text[:end] + text[begin:end] + text[end:],
            )
        )
    return text


@pytest.mark.parametrize("seed", [0, 1])
def test_no_damaged_answer_raises(seed: int) -> None:
    source = random.Random(seed)
    for _ in range(1_000):
        pair = source.choice(PAIRS)
        gold, answer = pair["gold"], damaged(pair["answer"], source)
        assert judge(gold, answer, algebra).correct in (True, False), (gold, answer)
        assert judge(answer, gold, algebra).correct in (True, False, None), (answer, gold)


def seconds_to_judge(text: str) -> float:
    """The best of three: what else this process has to clean up must not count."""
    seconds = []
    for _ in range(3):
        read.cache_clear()
        started = time.process_time()
        with contextlib.suppress(AlgebraNeeded):
            judge("42", text, NoAlgebra())
        seconds.append(time.process_time() - started)
    return min(seconds)


@pytest.mark.parametrize("fragment", FRAGMENTS)
def test_no_repetition_holds_up_the_caller(fragment: str) -> None:
    for before, after in (("", ""), ("7", "?"), ("x", "7"), (r"\{", "}")):
        text = (before + fragment * (MAX_CHARACTERS // len(fragment)))[: MAX_CHARACTERS - len(after)] + after
        assert seconds_to_judge(text) < 0.1, text[:80]
