"""What a worker process does for the verifier: everything that needs algebra."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rlvr_vocab.verify import algebra
from rlvr_vocab.verify.judge import judge


def work(pair: list[str]) -> dict[str, Any]:
    """A gold answer and an answer to the fields of their `Verdict`."""
    gold, answer = pair
    return asdict(judge(gold, answer, algebra))


def warm_up() -> None:
    """Fill mpmath's tables of constants, which the first comparison would wait for."""
    algebra.equal(r"\frac{x+\sqrt{2}\pi}{3}", r"\frac{1}{3}(x+2^{1/2}\pi)")
