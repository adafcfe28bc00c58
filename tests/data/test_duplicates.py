"""Problems that stand in a set more than once, and those that two sets share."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from rlvr_vocab.data.duplicates import SharedProblem, find_overlap, repeated_problems
from rlvr_vocab.data.problem_key import words_of
from rlvr_vocab.data.rows import Problem

LONG = " ".join(f"w{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")  # 26 words: 19 runs of 8
END = "Remember to put your final answer on its own line after the word Answer and to write nothing behind it"


def overlap_of(trained: list[str], measured: list[str]) -> tuple[list[SharedProblem], int]:
    sets = [[Problem(text, None, {}, number) for number, text in enumerate(texts)] for texts in (trained, measured)]
    return find_overlap(*sets)


def matches(found: tuple[list[SharedProblem], int]) -> list[tuple[int, int, float]]:
    return [(each.measured.row_number, each.trained.row_number, each.contained) for each in found[0]]


def repeats(*rows: tuple[str, Any]) -> list[tuple[list[int], list[int]]]:
    """The rows of each repeated problem, and those of its different answers; every tenth row number."""
    sets = [Problem(text, answer, {}, 10 * number) for number, (text, answer) in enumerate(rows, start=1)]
    found = repeated_problems(sets)
    return [([one.row_number for one in each.rows], [one.row_number for one in each.answers]) for each in found]


def test_repeats_are_grouped_over_white_space_case_and_punctuation() -> None:
    rows = [("What is 1+1?", "2"), ("other", "5"), ("what is  1 + 1", "2"), ("What is 1+1?", "2")]
    assert repeats(*rows) == [([10, 30, 40], [10])]
    assert repeats(("4+9=", "13"), ("49=", "49"), ("9+4=", "13")) == []


def test_answers_that_differ_contradict_and_those_that_the_verifier_equates_do_not() -> None:
    rows = [("p", "0.5"), ("p", "2"), ("p", "1/2"), ("p", "3"), ("p", "2")]
    assert repeats(*rows) == [([10, 20, 30, 40, 50], [10, 20, 40])]
    golds = [{"a": [1]}, {"a": [1]}, [2, "x"], None]  # compared as their JSON
    assert repeats(*(("p", gold) for gold in golds)) == [([10, 20, 30, 40], [10, 30])]


@pytest.mark.parametrize(
    ("changed", "contained"),
    # A change in the first word touches 1 of 19 runs of 8 words, one in the third 3, one in the fourth 4, in the
    # middle 8: 18/19, 16/19 = 0.842, 15/19 = 0.789.
    [(0, 18 / 19), (2, 16 / 19), (3, None), (12, None)],
)
def test_a_long_problem_is_nearly_the_same_from_80_percent_of_its_runs_of_eight_words(
    changed: int, contained: float | None
) -> None:
    words = LONG.split()
    words[changed] = "changed"
    found = overlap_of(["x " + " ".join(words) + " y z"], [LONG])
    assert matches(found) == ([] if contained is None else [(0, 0, pytest.approx(contained))])


def test_a_shorter_problem_is_compared_by_runs_of_five_words_and_a_short_one_as_a_whole() -> None:
    ten = LONG.split()[:10]  # 6 runs of 5 words; without the first, 5/6 = 0.833; without two, 4/6
    assert matches(overlap_of([f"begin {' '.join(ten[1:])}"], [" ".join(ten)])) == [(0, 0, pytest.approx(5 / 6))]
    assert matches(overlap_of([f"begin {' '.join(ten[2:])}"], [" ".join(ten)])) == []
    assert matches(overlap_of([f"begin {' '.join(ten[:7])}"], [" ".join(ten[:7])])) == []  # 3 runs are too few


def test_with_other_numbers_it_is_another_problem() -> None:
    text = f"{LONG} there are {{}} apples"
    assert overlap_of([text.format(7)], [f"Now {text.format(8)}", text.format(9)]) == ([], 0)
    assert matches(overlap_of([text.format(7)], [f"Now {text.format(7)}"])) == [(0, 0, pytest.approx(23 / 24))]


def test_the_closest_of_several_matches_counts_and_all_of_training_are_counted() -> None:
    nearly = "changed " + LONG.split(" ", 1)[1]
    found = overlap_of([nearly, LONG, f"{nearly} more", "nothing"], [LONG])
    assert matches(found) == [(0, 1, 1.0)] and found[1] == 3


def test_phrases_that_many_problems_share_make_no_two_of_them_alike() -> None:
    begin = "Solve the following math problem step by step and take all the time that you need for it"
    asked = [f"{begin}. {problem}. {END}" for problem in ("a b c", "d e f", "g h i", "j k l", "m n o", "p q r")]
    found = overlap_of([f"{begin}. s t u. {END}", "s t u v w", f"{begin}. j k l. {END}"], asked)
    assert matches(found) == [(3, 2, 1.0)]
    assert overlap_of(["one two three four five six seven eight nine"], [*asked, f"{begin} {asked[0]}"])[0] == []


def runs(words: tuple[str, ...], length: int) -> set[tuple[str, ...]]:
    return {words[start : start + length] for start in range(len(words) - length + 1)}


def compared_one_by_one(trained: list[str], measured: list[str]) -> dict[int, float]:
    """Measured problem -> the best share of its runs of words in any one trained problem, from 0.8 on."""
    found = {}
    for key, text in enumerate(measured):
        words = words_of(text)
        if len(words) < 8:
            continue
        length = 8 if len(words) >= 16 else 5
        wanted = runs(words, length)
        best = max(len(wanted & runs(words_of(other), length)) / len(wanted) for other in trained)
        if best >= 0.8:
            found[key] = best
    return found


def test_nothing_is_missed_that_a_comparison_one_by_one_finds() -> None:
    generator = random.Random(0)
    base = [[generator.choice("abcdefgh") * 2 for _ in range(generator.randint(8, 40))] for _ in range(60)]

    def varied(words: list[str]) -> str:
        return " ".join("zz" if generator.random() < 0.02 else word for word in words)

    trained = [varied(words) for words in base for _ in range(2)]
    measured = [varied(words) for words in base]
    expected = compared_one_by_one(trained, measured)
    assert 20 < len(expected) < 60
    found = overlap_of(trained, measured)
    assert {measured: contained for measured, _, contained in matches(found)} == pytest.approx(expected)


@pytest.mark.slow
def test_the_288_problems_that_two_real_sets_share_are_found(real_data: Path) -> None:
    aime, math = (
        [row["problem"] for row in json.loads((real_data / name).read_text(encoding="utf-8"))]
        for name in ("deepscaler_aime.json", "deepscaler_math.json")
    )
    in_math = {" ".join(text.split()) for text in math}
    verbatim = {key for key, text in enumerate(aime) if " ".join(text.split()) in in_math}
    same = {each.measured.row_number for each in overlap_of(math, aime)[0] if each.contained == 1}
    assert len(verbatim) == 288 and verbatim <= same
    assert len(same) == 326  # 38 more differ in case, punctuation or LaTeX alone
