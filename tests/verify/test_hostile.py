"""Hostile and damaged answers score 0 in time, raise nothing, and leave nothing broken behind."""

import contextlib
import json
import random
import re
import time
from pathlib import Path

import psutil
import pytest

from rlvr_vocab.rewards import accuracy
from rlvr_vocab.verify import algebra
from rlvr_vocab.verify.reader import read
from rlvr_vocab.verify.readings import AlgebraNeeded, NoAlgebra
from rlvr_vocab.verify.scanning import MAX_CHARACTERS
from rlvr_vocab.verify.verifier import DEADLINE_SECONDS, judge

from .hostile import GOLDS, hostile_completions

PATIENCE = DEADLINE_SECONDS + 0.5
HOSTILE = hostile_completions()
ORDINARY = (r"\boxed{1+x^2}", r"<think>\boxed{7}</think>\boxed{\sqrt{12}}", r"\boxed{41}")


@pytest.mark.parametrize("each", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_hostile_completions_score_0_in_time_and_ordinary_ones_as_before(each):
    too_slow, rewarded = {}, {}
    for name, completion in HOSTILE[::each]:
        started = time.monotonic()
        scores = accuracy(completions=[completion] * 7, solution=list(GOLDS))
        seconds = time.monotonic() - started
        if seconds > PATIENCE:
            too_slow[name] = seconds
        if scores != [0.0] * len(GOLDS):
            rewarded[name] = scores
    assert (too_slow, rewarded) == ({}, {})
    assert accuracy(completions=list(ORDINARY), solution=["x^2+1", r"2\sqrt{3}", "42"]) == [1.0, 1.0, 0.0]


@pytest.mark.slow
def test_a_batch_of_all_of_them_takes_no_worker_beyond_a_gigabyte():
    completions = [completion for _, completion in HOSTILE]
    for gold in ("42", "x^2+1"):
        assert accuracy(completions=completions, solution=[gold] * len(completions)) == [0.0] * len(completions)
    status = [Path(f"/proc/{process.pid}/status") for process in psutil.Process().children(recursive=True)]
    peaks = [int(re.findall(r"VmHWM:\s+(\d+) kB", path.read_text())[0]) for path in status if path.exists()]
    assert status and all(peak < 1e6 for peak in peaks)


PAIRS = [json.loads(line) for line in Path(__file__).with_name("pairs.jsonl").open(encoding="utf-8")]
FRAGMENTS = r"""
    \frac \sqrt \sqrt[ \pi \le \pm \cup \infty \text{ \text{and} \overline{ ^ _ { } ( ) [ ] \{ \} , . ; : = < > + - * /
    ! ' % \% \$ $ & \\ \, \! ~ i e x X 0 1 9 \left \right \left. \begin{pmatrix} \end{pmatrix} ^\circ ° ² ½ π ∞ ≤
    \mathrm{ \boxed{ \in \approx \mid | \sin \ln( \log_ \cdot \dots ... \over \choose \not \degree \prime \phantom{
    \color{red} ** ` # é − \lfloor \rfloor \binom \langle cm or and C (C) Option million 1/2 _2 \mathbb
""".split()  # noqa: SIM905 - a table


def damaged(text, source):
    for _ in range(source.choice((1, 1, 2, 3))):
        begin, end = sorted(source.randrange(len(text) + 1) for _ in range(2))
        end = min(end, begin + 3)
        inserted = source.choice(("", source.choice(FRAGMENTS), text[begin:end]))
        text = text[:begin] + inserted + text[source.choice((begin, begin + 1, end)) :]
    return text


@pytest.mark.parametrize("rounds", [200, pytest.param(2_000, marks=pytest.mark.slow)])
def test_no_damaged_answer_raises(rounds):
    source = random.Random(0)
    for _ in range(rounds):
        pair = source.choice(PAIRS)
        gold, answer = pair["gold"], damaged(pair["answer"], source)
        assert judge(gold, answer, algebra).correct in (True, False), (gold, answer)
        assert judge(answer, gold, algebra).correct in (True, False, None), (answer, gold)


def seconds_to_judge(text):
    """The best of three: a collection of garbage must not count."""
    seconds = []
    for _ in range(3):
        read.cache_clear()
        started = time.process_time()
        with contextlib.suppress(AlgebraNeeded):
            judge("42", text, NoAlgebra())
        seconds.append(time.process_time() - started)
    return min(seconds)


@pytest.mark.slow
@pytest.mark.parametrize("fragment", FRAGMENTS)
def test_no_repetition_holds_up_the_caller(fragment):
    for before, after in (("", ""), ("7", "?"), ("x", "7"), (r"\{", "}")):
        text = (before + fragment * (MAX_CHARACTERS // len(fragment)))[: MAX_CHARACTERS - len(after)] + after
        assert seconds_to_judge(text) < 0.1, text[:80]
