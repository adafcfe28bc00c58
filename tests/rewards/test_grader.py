"""What grades held-out answers: which of a run's rewards, from which score one is right, and what is in format."""

from dataclasses import replace

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.record.results import grader_text, same_grader
from rlvr_vocab.rewards.build import RewardContext
from rlvr_vocab.rewards.grader import Grader, grader_spec
from rlvr_vocab.rewards.reward import THINK_TAGS, RewardSpec

CONTEXT = RewardContext(think_tags=THINK_TAGS, max_completion_length=100)
OWN = r"""
from rlvr_vocab.rewards import reward

@reward(grades=True)
def correctness_reward(prompts, completions, answer, **kwargs):
    said = [turn[0]["content"].split("<answer>")[-1].split("</answer>")[0].strip() for turn in completions]
    return [2.0 if one == other else 0.0 for one, other in zip(said, answer)]

@reward(is_format=True, full_mark=0.5)
def soft_format_reward(completions, **kwargs):
    tags = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")
    return [sum(0.125 for tag in tags if tag in turn[0]["content"]) for turn in completions]

@reward(is_format=True, full_mark=0.8)
def in_two_parts(completions, **kwargs):
    return [0.1 + 0.7 * ("<answer>" in turn[0]["content"]) for turn in completions]

def shouts(completions, **kwargs):
    return [None if not turn[0]["content"] else float(turn[0]["content"].isupper()) for turn in completions]

@reward(grades=True, full_mark=3)
def stars(completions, **kwargs):
    return [turn[0]["content"].count("*") for turn in completions]
"""
RIGHT = "<reasoning>6 * 7</reasoning>\n<answer>42</answer>"


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    file = tmp_path_factory.mktemp("own") / "own.py"
    file.write_text(OWN)
    return lambda name, **more: RewardSpec(f"{file}:{name}", **more)


def graded(spec, *turns):
    row = {"prompt": [{"role": "user", "content": "6 * 7"}], "solution": "42", "answer": "42"}
    return Grader(spec, CONTEXT).grades([row] * len(turns), turns, [[0] * len(turn) for turn in turns])


def test_a_transcript_is_graded_by_its_last_turn():
    said, tool = {"role": "assistant", "content": "\\boxed{42}"}, {"role": "tool", "content": "\\boxed{42}"}
    right, wrong = graded(grader_spec([RewardSpec("accuracy")]), [tool, said], [said, tool])
    assert (right.score, right.answer, wrong.score, wrong.answer) == (1.0, "42", 0.0, None)


@pytest.mark.parametrize(
    ("names", "grader", "threshold"),
    [
        ([], "accuracy", 1.0),
        (["boxed", "accuracy", "numeric"], "accuracy", 1.0),
        (["cosine_length", "numeric"], "numeric", 1.0),
        (["think_format", "boxed"], "think_format + boxed", None),
    ],
)
def test_the_first_reward_that_grades_being_right_grades_else_their_sum(names, grader, threshold):
    spec = grader_spec([RewardSpec(name) for name in names])
    assert (spec.name, spec.threshold) == (grader, threshold)


def test_functions_of_ones_own_grade_where_they_or_the_user_say_so(own):
    rewards = [own("soft_format_reward"), own("correctness_reward"), own("stars"), own("shouts")]
    assert (grader_spec(rewards).name, grader_spec(rewards).threshold) == ("correctness_reward", 1.0)
    assert (grader_spec(rewards[2:]).name, grader_spec(rewards[2:]).threshold) == ("stars", 3)
    assert [each.score for each in graded(grader_spec(rewards[2:]), "***", "*")] == [3, 1]
    unmarked = grader_spec([own("shouts", weight=2.0), RewardSpec("boxed", weight=0.5), RewardSpec("length", weight=0)])
    assert (unmarked.name, unmarked.threshold) == ("2 × shouts + 0.5 × boxed", None)
    asked = grader_spec([own("stars"), own("shouts", full_mark=0.5)], [RewardSpec("shouts")])
    assert (asked.name, asked.threshold) == ("shouts", 0.5)


def test_a_sum_is_weighted_and_passes_over_what_has_no_score(own):
    spec = grader_spec([own("shouts", weight=2.0), RewardSpec("boxed", weight=0.5)])
    first, second, third = graded(spec, "YES", "", r"\boxed{1}")
    assert (first.score, second.score, third.score) == (2.0, 0.0, 0.5)
    assert second.rewards == {"shouts": None, "boxed": 0.0}
    # One alone counts with its weight and sign too, unless it calls answers right.
    assert graded(grader_spec([own("shouts", weight=-2.0)]), "YES")[0].score == -2.0
    assert graded(grader_spec([own("shouts", weight=-2.0)], threshold=1.0), "YES")[0].score == 1.0


def test_what_is_asked_for_grades_with_the_settings_that_the_run_gives_it():
    answer_tag = RewardSpec("accuracy", weight=2.0, params={"answer_from": ["answer_tag"]})
    asked = grader_spec([RewardSpec("boxed"), answer_tag], [RewardSpec("accuracy")])
    assert asked.functions == (replace(answer_tag, weight=1.0),) and graded(asked, RIGHT)[0].score == 1.0
    other = grader_spec([answer_tag], [RewardSpec("accuracy", params={"answer_from": ["box"]})])
    assert graded(other, RIGHT)[0].score == 0.0
    assert grader_spec([answer_tag], [RewardSpec("boxed")]).threshold is None
    assert grader_spec([answer_tag], [RewardSpec("boxed")], threshold=0.5).threshold == 0.5
    for nothing in ([], [RewardSpec("boxed", weight=0.0)]):
        with pytest.raises(UserError, match="the list of graders is empty, or all their weights are 0"):
            grader_spec([answer_tag], nothing)


def test_the_answer_is_read_where_accuracy_grades_alone():
    box = r"so it is \boxed{42}"
    assert [each.answer for each in graded(grader_spec([RewardSpec("accuracy")]), box, "no")] == ["42", None]
    assert not Grader(grader_spec([RewardSpec("numeric")]), CONTEXT).reads_answers


def test_in_format_is_what_the_run_s_format_reward_gives_its_full_mark(own):
    def in_format(spec):
        return [each.in_format for each in graded(grader_spec([spec]), RIGHT, "<reasoning>42", "42")]

    for spec in (own("soft_format_reward"), RewardSpec("xml_tags"), own("in_two_parts")):  # 0.1 + 0.7 < 0.8 as floats
        assert in_format(spec) == [True, False, False]
    assert in_format(own("shouts")) == [None, None, None]
    assert grader_spec([RewardSpec("xml_tags"), RewardSpec("xml_format")]).form == RewardSpec("xml_format")


def test_what_is_recorded_tells_graders_apart_that_differ_and_no_others(own, tmp_path):
    def plain(*rewards, **asked):
        return grader_spec(rewards, **asked).record()

    assert same_grader(plain(RewardSpec("accuracy")), plain(RewardSpec("accuracy_reward", weight=2.0)))
    assert not same_grader(plain(own("shouts")), None) and not same_grader(None, plain(RewardSpec("numeric")))
    different = [
        plain(own("shouts")),
        plain(own("shouts"), threshold=1.0),
        plain(own("shouts", weight=-1.0)),
        plain(RewardSpec("accuracy")),
        plain(RewardSpec("accuracy", params={"answer_from": ["hash"]})),
        plain(RewardSpec("code_tests"), threshold=0.5),
        plain(own("shouts"), RewardSpec("boxed")),
        plain(own("shouts", weight=2.0), RewardSpec("boxed")),
    ]
    for place, one in enumerate(different):
        assert not any(same_grader(one, other) for other in different[:place])
        assert len({grader_text(each) for each in different[: place + 1]}) == place + 1
    assert "/" not in str(plain(own("shouts")))  # the folder of a run may be moved
    for version in (tmp_path / "1", tmp_path / "2"):
        version.mkdir()
        (version / "own.py").write_text(f"def fn(completions): return [{version.name}.0]\n")
    assert not same_grader(*(plain(RewardSpec(f"{tmp_path}/{version}/own.py:fn")) for version in "12"))
