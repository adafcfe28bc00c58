"""Gold answers: real ones equal themselves alone, ambiguous ones are compared as written, unusable ones are found."""

import json
import re
from itertools import islice, permutations

import pytest

from rlvr_vocab.rewards import accuracy
from rlvr_vocab.verify import check_golds, verify
from rlvr_vocab.verify.reader import read, read_gold

AMBIGUOUS = """
    2024-01-05 12-05 3/4/2021 03/04 31.12.1999 1999-2004 2020–21 7-11 0-5 555-1234 +1-555-0100 3-2 21–19 0-0 1.2.3 v2.0
    192.168.0.1 978-3-16-148410-0 221B 12-14 221-B 1.234.567 1'234'567 1.234,56 12,34,567 10-km 5-kg 5-10% 0042 01234 05
    e4 e2-e4 1/2-1/2 H2O CO2 iv xi pp.12-15 12-15,18-20 $5-$10 $1.50-$2.00 $100-200 0xFF 0x1F ff8800 0b1 AB-123 F-16
    1A-2B 12AB34 1920×1080 3×3 1st 22nd 6am 9am-5pm 1-2-3 1/2/3 1-2/3 5'10 km
""".split()  # noqa: SIM905 - a table
SPACED = ["(555) 123-4567", "2 – 1", "6-4, 3-6", "6 pm", "5-10 dollars", "at -5", "N 40 W 74", "5 or 6-7", "1 2 3"]
GOLDS = [*AMBIGUOUS, *SPACED]
TEXT = ["3:45 pm", "12:30:15", "3:4", "temperature -5", "5-year", "XIV", "#ff8800", "40°26′46″ N"]
MATHEMATICS = r"""
    3/4|-5|−5|0.75|1,234|1 234 567|1e-3|1 1/2|2^10|2*3|2+3|5!|50%|$5|5 km|10km|45°|½|x^2+1|2\pi|\frac12|(1,2)|1, 2|[0,3)
    |x=5|n-1|12-p|5-12i|-4-6i|xy|2xy|2mg|2x|2B|R/2|x/y-1/2|(x+1)(x-2)|n(n-1)/2|pi/4|sqrt2|ln 2|f(4 - x)|AB'|3×10^5|2√3
    |2e-05|1.0e-03|1e06|1E+06
    |$7-11$|\(7-11\)|\boxed{7-11}|$2024-1-5$|025|007|1011_2
""".replace("\n", "").split("|")


def wrong_answers(gold):
    """What arithmetic makes of the digits of a gold answer, its parts in another order, and damaged copies."""
    parts = re.findall(r"\d+|\D+", gold)
    numbers = [int(part) for part in parts if part.isdigit()]
    if len(numbers) > 1:
        first, *others = numbers
        yield from map(str, (first - sum(others), first + sum(others), first * others[0], -others[0]))
        yield from ("-".join(map(str, order)) for order in islice(permutations(numbers), 1, 4))
        yield rf"\frac{{{first}}}{{{others[0]}}}"
    yield from (str(numbers[0]), str(numbers[-1])) if numbers else ("5", "6")
    yield from ("".join(reversed(parts)), gold[::-1], gold[1:], gold[:-1])
    yield from (form % gold for form in ("1%s", "0%s", "%s1", "-%s"))
    for digit in islice(re.finditer(r"\d", gold), 4):
        yield f"{gold[: digit.start()]}{(int(digit[0]) + 1) % 10}{gold[digit.end() :]}"
        yield gold[: digit.start()] + gold[digit.end() :]
    yield from (gold.replace(joint, other) for joint in "-/." if joint in gold for other in "+*")
    yield from (f"{gold[:at]}{gold[at + 1]}{gold[at]}{gold[at + 2 :]}" for at in range(len(gold) - 1))


def plain(text):
    return re.sub(r"\s", "", text.translate(str.maketrans("–×", "-*")))


@pytest.mark.parametrize("gold", [*GOLDS, *TEXT])
def test_nothing_but_the_gold_answer_is_right(gold):
    wrong = [answer for answer in wrong_answers(gold) if answer.strip() and plain(answer) != plain(gold)]
    assert len(wrong) >= 10
    verdicts = verify([gold] * len(wrong), wrong)
    assert [answer for answer, verdict in zip(wrong, verdicts, strict=True) if verdict.correct] == []


@pytest.mark.parametrize("form", [r"\boxed{%s}", r"\boxed{\text{%s}}", r"$\boxed{%s}$.", "Answer: %s", "#### %s"])
def test_the_gold_answer_is_right_wherever_it_stands(form):
    scores = accuracy([form % gold for gold in GOLDS], solution=GOLDS, answer_from=["box", "hash", "phrase"])
    assert [gold for gold, score in zip(GOLDS, scores, strict=True) if score != 1.0] == []


TYPESET = {
    "2024-01-05": ("2024–01–05", r"2024\text{-}01\text{-}05", "2024 - 01 - 05"), "1939–1945": ("1939--1945",),
    "12-15, 18-20": ("12-15,18-20",), "$5-$10": (r"\$5-\$10",), "H2O": (r"\text{H}_2\text{O}",),
    "5-10%": (r"5\text{-}10\%",), "1'234'567": ("1’234’567",), "#ff8800": (r"\text{\#ff8800}",), "3:45": ("3{:}45",),
    "3×3": (r"3 \times 3",),
}  # fmt: skip


def test_typesetting_spaces_and_kinds_of_dashes_make_no_difference():
    pairs = [(gold, answer) for gold, answers in TYPESET.items() for answer in answers]
    verdicts = verify([gold for gold, _ in pairs], [answer for _, answer in pairs])
    assert [pair for pair, verdict in zip(pairs, verdicts, strict=True) if not verdict.correct] == []


def test_mathematics_is_read_as_before():
    assert [gold for gold in MATHEMATICS if read_gold(gold) != read(gold)] == []
    right = {"$7-11$": "-4", "3/4": "0.75", "n-1": "-1+n", "2+3": "5", "025": "25", "5-12i": "-12i+5", "1, 2": "2, 1"}
    assert all(verdict.correct for verdict in verify(list(right), list(right.values())))


def test_golds_that_are_unusable_ambiguous_or_only_text_are_found_by_their_index():
    golds = ["42", "", r"\sum_{n=1}^{9} n", "9" * 1_001, "x=f(x)", "Friday", r"[1,\infty)", r"$\boxed{}$", "7-11"]
    found = check_golds(golds)
    assert found.unusable == {1: "empty", 3: "a number of 1001 digits", 7: "empty"}
    assert found.by_text_only.keys() == {2, 4} and r"\sum" in found.by_text_only[2]
    assert found.ambiguous == {8: "a date, a range or a code?"}
    verdicts = verify(golds, ["1"] * len(golds))
    assert {index for index, verdict in enumerate(verdicts) if verdict.correct is None} == found.unusable.keys()
    assert check_golds([*GOLDS, *MATHEMATICS]).ambiguous.keys() == set(range(len(GOLDS)))


@pytest.fixture(
    params=[
        ("deepscaler_aime.json", 975),
        pytest.param(("gsm8k_train.jsonl", 7_473), marks=pytest.mark.slow),
        pytest.param(("deepscaler_math.json", 7_470), marks=pytest.mark.slow),
    ]
)
def golds(request, real_data):
    name, number = request.param
    text = (real_data / name).read_text(encoding="utf-8")
    rows = json.loads(text) if name.endswith(".json") else list(map(json.loads, text.strip().split("\n")))
    answers = [str(row["answer"] or "").rpartition("####")[2].strip() for row in rows]
    found = [answer for answer in answers if answer]
    assert len(found) == number
    return found


def changes(gold):
    """The gold answer with one of its first digits one higher, or with another sign."""
    digits = [
        f"{gold[: digit.start()]}{(int(digit[0]) + 1) % 10}{gold[digit.end() :]}" for digit in re.finditer(r"\d", gold)
    ]
    return [*digits[:3], *([f"-{gold}"] if re.match(r"[0-9\\]", gold) else [])]


def test_a_real_gold_answer_is_right_and_wrong_with_a_digit_or_a_sign_changed(golds):
    assert check_golds(golds).unusable == {}
    assert [gold for gold, verdict in zip(golds, verify(golds, golds), strict=True) if not verdict.correct] == []
    pairs = [(gold, change) for gold in dict.fromkeys(golds) for change in changes(gold)]
    verdicts = verify([gold for gold, _ in pairs], [change for _, change in pairs])
    assert [pair for pair, verdict in zip(pairs, verdicts, strict=True) if verdict.correct] == []
