"""Verdicts of a probe on answers that are made up, so that the truth is known."""

import re
from dataclasses import asdict, replace

import numpy as np
import pytest

from rlvr_vocab.analysis.probe.findings import ProbedRun, probe_findings
from rlvr_vocab.analysis.probe.page import probe_page
from rlvr_vocab.analysis.report.page import render
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.results import ARMS, HeldOutMetric, PermutedThought, ProbeAnswer

DRAWS, PERMUTATIONS = 4, 8
TELLING = 0.05


def made_up(effect=0.0, problems=500, seed=0, coupled=0.9, folder="run", draws=DRAWS, arms=tuple(ARMS)):
    """A run of 70 % right answers, less `effect` of them where choices are not the model's own.

    coupled: how often an arm answers as the own one, by the same random numbers.
    """
    random = np.random.default_rng(seed)
    ease = random.beta(2, 1, problems)
    of_own = random.random((problems, draws))
    answers = {}
    for arm in arms:
        of_arm = np.where(random.random((problems, draws)) < coupled, of_own, random.random((problems, draws)))
        change = effect if arm in ("permuted", "transplanted") else 0.0
        chance = ease * (1 - change)
        answers[arm] = [
            ProbeAnswer(
                problem=problem,
                sample=0,
                draw=draw,
                score=float(of_arm[problem, draw] < chance[problem]),
                right=bool(of_arm[problem, draw] < chance[problem]),
                gold_logp=float(np.log(chance[problem])),
                donor_logp=-9.0 - ease[problem] if arm == "transplanted" else None,
                permuted_donor_logp=-9.0 - ease[problem] if arm == "transplanted" else None,
                donor=None,
                copies_logp=-4.0,
                exchanged=0.0 if arm == "own" else 0.5,
                answer="7",
            )
            for problem in range(problems)
            for draw in range(draws)
        ]
    permuted = [
        PermutedThought(number, 0, [float(np.log(chance))] * PERMUTATIONS) for number, chance in enumerate(ease)
    ]
    return ProbedRun(folder, [f"problem {number}" for number in range(problems)], answers, permuted, 3)


def findings(*runs):
    return probe_findings(runs, HeldOutMetric(), TELLING)


def test_a_large_effect_of_place_carries_meaning():
    found = findings(made_up(0.3))
    assert found.verdict == "carries meaning"
    assert found.primary.difference == pytest.approx(0.2, abs=0.04)  # 0.3 of the 2/3 that are right
    assert found.sentence.startswith("Carries meaning: ")


def test_without_one_many_problems_show_no_sign_and_few_cannot_tell():
    assert findings(made_up(0.0)).verdict == "no sign of meaning"
    found = findings(made_up(0.0, problems=25, coupled=0.3))
    assert found.verdict == "too few problems to tell" and found.primary.smallest_effect > TELLING
    found = findings(made_up(-0.3, problems=25, coupled=0.3))  # so few show none, even where permuting is better
    assert found.verdict == "too few problems to tell" and found.primary.high < TELLING


def test_answers_that_never_differ_are_no_sign_and_nothing_is_nan():
    run = made_up()
    own = [replace(each, exchanged=0.5) for each in run.answers["own"]]
    alike = {arm: list(own) for arm in ARMS}
    found = findings(replace(run, answers=alike))
    assert found.verdict == "no sign of meaning" and found.primary.difference == 0
    assert "nan" not in str(asdict(found)).lower()


def test_where_hardly_any_answer_is_right_or_any_choice_exchanged_nothing_could_be_seen():
    run = made_up()
    wrong = {arm: [replace(each, right=False, score=0.0) for each in rows] for arm, rows in run.answers.items()}
    found = findings(replace(run, answers=wrong))
    assert found.verdict == "cannot tell" and "0.0% of the answers are right" in found.sentence
    kept = [replace(each, exchanged=0.02) for each in run.answers["permuted"]]
    found = findings(replace(run, answers={**run.answers, "permuted": kept}))
    assert found.verdict == "cannot tell" and "exchanged 2% of the choices" in found.sentence


def test_where_redrawing_does_harm_permuting_cannot_show_more():
    run = made_up(0.3)
    found = findings(replace(run, answers={**run.answers, "redrawn": run.answers["permuted"]}))
    assert found.verdict == "cannot tell" and "own choices are better than redrawn ones" in found.sentence


def test_scores_that_never_differ_are_refused_in_a_sentence():
    run = made_up(problems=50)
    alike = {arm: [replace(each, right=None, score=0.5) for each in rows] for arm, rows in run.answers.items()}
    with pytest.raises(UserError, match="one score for all answers, or none"):
        probe_findings([replace(run, answers=alike)], HeldOutMetric(is_share=False, grader="mine"), TELLING)


def test_the_bias_that_is_told_is_that_of_the_logarithm_of_a_mean():
    random, problems = np.random.default_rng(0), 4000
    run = made_up(problems=problems)
    drawn = random.choice([0.9, 0.3], size=(problems, PERMUTATIONS))
    permuted = [PermutedThought(number, 0, np.log(row).tolist()) for number, row in enumerate(drawn)]
    own = [replace(each, gold_logp=float(np.log(0.6))) for each in run.answers["own"]]
    used = findings(replace(run, permuted=permuted, answers={**run.answers, "own": own})).used
    assert used.bias > 0.02 and used.own.estimate == pytest.approx(used.bias, abs=0.01)
    assert used.permutations == PERMUTATIONS


def test_a_channel_of_known_bits_is_told_within_a_tenth_by_redrawn_draws():
    error, problems, draws, permutations = 0.2145, 500, 16, 32  # a quarter of a bit
    told = 1 + error * np.log2(error) + (1 - error) * np.log2(1 - error)
    random, run = np.random.default_rng(0), made_up(problems=problems, draws=draws)
    right = np.log(np.where(random.random((problems, draws + 1)) < error, error, 1 - error))
    permuted = np.log(random.choice([error, 1 - error], size=(problems, permutations)))
    logp_of = {
        "own": lambda problem, draw: right[problem, draws],
        "redrawn": lambda problem, draw: right[problem, draw],
    }
    answers = {
        arm: [replace(each, gold_logp=float(logp(each.problem, each.draw))) for each in run.answers[arm]]
        for arm, logp in logp_of.items()
    }
    dealt = [PermutedThought(number, 0, row.tolist()) for number, row in enumerate(permuted)]
    used = findings(replace(run, answers={**run.answers, **answers}, permuted=dealt)).used
    widths = [each.high - each.low for each in (used.own, used.redrawn)]
    assert used.redrawn.estimate - used.bias == pytest.approx(told, rel=0.1)
    assert used.redrawn.low - used.bias < told < used.redrawn.high - used.bias
    assert widths[0] > 0.5 * told and widths[1] < 0.2 * told


def test_the_page_escapes_what_it_shows_and_leaves_out_arms_without_answers():
    run = made_up(folder="<b>run</b>")
    found = findings(replace(run, answers={arm: run.answers[arm] for arm in ("own", "redrawn", "permuted")}))
    assert [each.arm for each in found.arms] == ["own", "redrawn", "permuted"]
    page = render(probe_page(found, "rlvr-vocab probe run='<b>'"))
    assert not re.search(r"<b>(run|\?|&lt;|<)|'<b>'", page.partition("</style>")[2])
