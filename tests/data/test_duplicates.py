"""Problems that stand in a set more than once, and those that two sets share."""

import json

import pytest

from rlvr_vocab.data.duplicates import repeated_problems, shared_problems
from rlvr_vocab.data.rows import Problem


def repeats(*rows):
    """The rows of each repeated problem, and those of its different answers; every tenth row number."""
    sets = [Problem(text, answer, {}, 10 * number) for number, (text, answer) in enumerate(rows, start=1)]
    found = repeated_problems(sets)
    return [([one.row_number for one in each.rows], [one.row_number for one in each.answers]) for each in found]


def test_repeats_are_grouped_over_white_space_case_and_punctuation():
    rows = [("What is 1+1?", "2"), ("other", "5"), ("what is  1 + 1", "2"), ("What is 1+1?", "2")]
    assert repeats(*rows) == [([10, 30, 40], [10])]
    assert repeats(("4+9=", "13"), ("49=", "49"), ("9+4=", "13")) == []


def test_answers_that_differ_contradict_and_those_that_the_verifier_equates_do_not():
    rows = [("p", "0.5"), ("p", "2"), ("p", "1/2"), ("p", "3"), ("p", "2")]
    assert repeats(*rows) == [([10, 20, 30, 40, 50], [10, 20, 40])]
    golds = [{"a": [1]}, {"a": [1]}, [2, "x"], None]  # compared as their JSON
    assert repeats(*(("p", gold) for gold in golds)) == [([10, 20, 30, 40], [10, 30])]


def test_a_measured_problem_is_found_in_all_rows_of_training_that_ask_it():
    trained = [Problem(text, None, {}, number) for number, text in enumerate(["What is 1+1?", "x", "what is  1 + 1"])]
    measured = [Problem(text, None, {}, 10 + number) for number, text in enumerate(["y", "What is 1 + 1 ?"])]
    [(problem, rows)] = shared_problems(trained, measured)
    assert problem.row_number == 11 and [row.row_number for row in rows] == [0, 2]


@pytest.mark.slow
def test_the_288_problems_that_two_real_sets_share_are_found(real_data):
    aime, math = (
        [row["problem"] for row in json.loads((real_data / name).read_text(encoding="utf-8"))]
        for name in ("deepscaler_aime.json", "deepscaler_math.json")
    )
    in_math = {" ".join(text.split()) for text in math}
    verbatim = {key for key, text in enumerate(aime) if " ".join(text.split()) in in_math}
    measured, trained = ([Problem(text, None, {}, n) for n, text in enumerate(texts)] for texts in (aime, math))
    same = {problem.row_number for problem, _ in shared_problems(trained, measured)}
    assert len(verbatim) == 288 and verbatim <= same
    assert len(same) == 326  # 38 more differ in case, punctuation or LaTeX alone
