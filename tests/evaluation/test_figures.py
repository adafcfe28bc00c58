"""Figures of made-up verdicts, against a reference that counts them out."""

import itertools
import random
from collections import Counter
from dataclasses import replace
from statistics import fmean as mean

import pytest

from rlvr_vocab.evaluation.evaluate import accuracy_of
from rlvr_vocab.evaluation.figures import equal_by_verifier, evaluation_figures, figures_by_task, votes_of
from rlvr_vocab.record.results import ProblemResult


def result(problem, sample, score, answer="1", **more):
    plain = {"tokens": 10, "thinking_tokens": 6, "reasoning_tokens": 3, "closed": True, "finished": True}
    return ProblemResult(problem, sample, "p", "s", "c", score, answer=answer, answer_read=True, **{**plain, **more})


def made_up(problems, samples, seed=3):
    draw = random.Random(seed)
    made = []
    for problem in range(problems):
        answers = [draw.choice(("right", "a", "b", None)) for _ in range(samples)]
        scores = [None if problem % 7 == 0 else float(answer == "right") for answer in answers]
        made += [
            result(problem, n, score, answer) for n, (score, answer) in enumerate(zip(scores, answers, strict=True))
        ]
    return made


def counted_majority(group):
    counts = Counter(one.answer for one in group if one.answer is not None)
    winners = [one for one in group if one.answer is not None and counts[one.answer] == max(counts.values())]
    return mean(one.answer == "right" for one in winners) if winners else 0.0


def test_figures_of_a_task_are_those_of_its_problems_alone():
    results = [replace(each, task=("lcm", "sum", "")[each.problem % 3]) for each in made_up(problems=30, samples=2)]
    votes = votes_of(results)
    by_task = figures_by_task(results, votes)
    assert list(by_task) == ["lcm", "sum"]
    for task, figures in by_task.items():
        own = [each for each in results if each.task == task]
        assert figures == evaluation_figures(own, votes_of(own))


def test_accuracies_are_those_of_a_reference_that_counts_out_every_choice():
    results = made_up(problems=40, samples=5)
    random.Random(1).shuffle(results)
    figures = evaluation_figures(results, votes_of(results))
    scored = [[each for each in results if each.problem == problem] for problem in range(40) if problem % 7]
    found = {name: interval.estimate for name, interval in figures.items()}
    assert found["avg@5"] == pytest.approx(mean(mean(one.right for one in group) for group in scored))
    assert found["avg@5"] == pytest.approx(accuracy_of(results))
    assert found["maj@5"] == pytest.approx(mean(map(counted_majority, scored)))
    for k in (1, 2, 4, 5):
        tries = (mean(any(one.right for one in some) for some in itertools.combinations(group, k)) for group in scored)
        assert found[f"pass@{k}"] == pytest.approx(mean(tries))
    assert [name for name in found if name.startswith("pass@")] == ["pass@1", "pass@2", "pass@4", "pass@5"]
    assert {(figures[name].problems, figures[name].samples) for name in ("avg@5", "pass@5")} == {(34, 170)}


def test_answers_without_a_score_are_left_out_one_by_one_and_every_problem_counts_the_same():
    results = [result(0, 0, 1.0), result(0, 1, None), result(1, 0, 0.0), result(1, 1, 0.5), result(2, 0, None)]
    figures = evaluation_figures(results, votes_of(results))
    assert (figures["avg@2"].estimate, figures["avg@2"].problems, figures["avg@2"].samples) == (0.5, 2, 3)
    assert (figures["pass@2"].estimate, figures["pass@2"].problems) == (0.0, 1)  # problem 0 has one score alone
    assert figures["pass@1"].estimate == figures["avg@2"].estimate == accuracy_of(results)
    unscored = evaluation_figures([result(0, 0, None), result(1, 0, None)], [None, None])
    assert not any("@" in name for name in unscored) and unscored["length"].estimate == 10


def test_form_and_length_count_all_answers():
    results = [
        result(0, 0, 1.0, tokens=10, thinking_tokens=8, reasoning_tokens=2),
        result(0, 1, 0.0, tokens=30, thinking_tokens=30, reasoning_tokens=0, closed=False, finished=False, answer=None),
        result(1, 0, 0.0, tokens=20, thinking_tokens=2, reasoning_tokens=2, finished=False),
        result(1, 1, None, tokens=40, thinking_tokens=0, reasoning_tokens=0, closed=False),
    ]
    figures = evaluation_figures(results, votes_of(results))
    found = {name: interval.estimate for name, interval in figures.items()}
    assert (found["length"], found["thinking_length"]) == (25, 10)
    assert (found["cut_off"], found["closed_thinking"]) == (0.5, 0.5)
    assert (found["answered"], found["format"]) == (0.75, 0.25)
    assert found["reasoning_share"] == 4 / 40


def test_answers_of_one_value_are_one_answer_whatever_their_text():
    def results(problem, *answers, right=0):
        return [result(problem, n, float(n < right), answer) for n, answer in enumerate(answers)]

    given = results(0, r"\frac{1}{2}", "0.5", "1/2", "2", None, "x+1", "1+x")
    assert votes_of(given) == [1, 1, 1, 2, None, 3, 3]
    other = results(1, "2", r"\frac{1}{", r"\frac{1}{", "1/2")  # unreadable: its text
    mixed = [each for pair in zip(given, other, strict=False) for each in pair]
    assert votes_of(mixed) == [1, 1, 1, 2, 1, 2, 2, 3]
    assert votes_of(results(0, "4", "8/2", "5", "6", right=2)) == [0, 0, 1, 2]
    assert equal_by_verifier([(r"\frac{1}{", "7"), ("7", "7.0")]) == [False, True] and equal_by_verifier([]) == []


def test_results_whose_answers_nobody_read_have_no_votes_and_are_in_format_without_them():
    unread = replace(result(0, 0, 1.0, None), answer_read=False)
    figures = evaluation_figures([unread], votes_of([unread]))
    assert not {"answered", "maj@1"} & figures.keys()
    assert figures["avg@1"].estimate == figures["format"].estimate == 1


def test_where_nothing_is_right_or_wrong_there_is_a_reward_and_each_of_its_parts():
    scored = [
        replace(result(number, 0, score), threshold=None, answer_read=False, rewards={"style": score, "judge": judge})
        for number, (score, judge) in enumerate([(0.2, None), (0.6, 3.0)])
    ]
    found = evaluation_figures(scored, [None, None])
    assert not {"avg@1", "pass@1", "maj@1"} & found.keys()
    means = {name: found[name].estimate for name in ("score", "rewards/style", "rewards/judge")}
    assert means == pytest.approx({"score": 0.4, "rewards/style": 0.4, "rewards/judge": 3.0})
