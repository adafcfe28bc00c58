"""Gold answers of real problem sets: each is right against itself, and wrong with a digit or a sign changed."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlvr_vocab.rewards import accuracy
from rlvr_vocab.verify import check_golds

REAL_DATA = Path(__file__).parents[2].parent / "shared" / "data"
FILES = {"gsm8k_train.jsonl": 7_473, "deepscaler_math.json": 7_470, "deepscaler_aime.json": 975}
CHANGES_OF_EACH = 4


def golds_of(path: Path) -> list[str]:
    if path.suffix == ".json":
        rows = json.loads(path.read_text(encoding="utf-8"))
    else:
        rows = [json.loads(line) for line in path.open(encoding="utf-8")]
    answers = [str(row["answer"] or "").rpartition("####")[2].strip() for row in rows]
    return [answer for answer in answers if answer]


@pytest.fixture(
    params=["deepscaler_aime.json", *(pytest.param(name, marks=pytest.mark.slow) for name in list(FILES)[:2])]
)
def golds(request: pytest.FixtureRequest) -> list[str]:
    if not (REAL_DATA / request.param).is_file():
        pytest.skip(f"the real problem sets are not at {REAL_DATA}")
    found = golds_of(REAL_DATA / request.param)
    assert len(found) == FILES[request.param]
    return found


def changes(gold: str) -> Iterator[str]:
    """The gold answer with one digit one higher, or one sign turned."""
    for digit in re.finditer(r"[0-9]", gold):
        yield f"{gold[: digit.start()]}{(int(digit[0]) + 1) % 10}{gold[digit.end() :]}"
    for sign in re.finditer(r"[+-]", gold):
        yield f"{gold[: sign.start()]}{'+' if sign[0] == '-' else '-'}{gold[sign.end() :]}"
    if re.match(r"[0-9\\]", gold):
        yield f"-{gold}"


def boxed(answers: list[str]) -> list[str]:
    return [rf"<think>work</think>The answer is $\boxed{{{answer}}}$." for answer in answers]


def test_every_usable_gold_answer_is_right_against_itself(golds: list[str]) -> None:
    assert check_golds(golds).unusable == {}
    scores = accuracy(completions=boxed(golds), solution=golds)
    assert [gold for gold, score in zip(golds, scores, strict=True) if score != 1.0] == []


def test_a_changed_digit_or_sign_is_wrong(golds: list[str]) -> None:
    pairs = [
        (gold, changed)
        for gold in dict.fromkeys(golds)
        for changed in list(changes(gold))[:CHANGES_OF_EACH]
        if changed.count("{") == changed.count("}")
    ]
    scores = accuracy(completions=boxed([changed for _, changed in pairs]), solution=[gold for gold, _ in pairs])
    assert [pair for pair, score in zip(pairs, scores, strict=True) if score != 0.0] == []
