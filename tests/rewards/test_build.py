"""Named rewards become the functions and weights of a run."""

import pytest

from rlvr_vocab.config.values import read
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.adaptive import Adaptation
from rlvr_vocab.rewards.build import RewardContext, build_rewards, required_columns
from rlvr_vocab.rewards.reward import RewardSpec, Score

CONTEXT = RewardContext(("[r]", "[/r]"), 100, 90, 91, 64)
SOURCE = """
import functools
from rlvr_vocab.rewards.reward import Score, reward

def only(completions): return [1.0] * len(completions)
def keyword_only(*, completions, solution): return [float(gold == "3") for gold in solution]
def with_level(completions, level=None): return [level] * len(completions) if not isinstance(level, list) else level
def everything(**columns): return [float(len(columns))] * len(columns["completions"])
def tags(completions, think_tags, max_completion_length): return [think_tags[0] == "[r]" and max_completion_length] * 2
def greedy(completions, words): return [words.pop() and float(len(words)) for _ in completions]
half = functools.partial(with_level, level=0.5)
fixed = lambda completions: [0.25] * len(completions)
@reward(full_mark=2.0)
def reasoned(completions, **columns): return [Score(2.0, "because") for _ in completions]
"""


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return lambda function: f"{path}:{function}"


def built(name, context=CONTEXT, **fields):
    [reward] = build_rewards([RewardSpec(name, **fields)], context)
    return reward


def scores(reward, solution=("3", "4"), **columns):
    return reward(completions=["a", "b"], prompts=["p", "p"], solution=list(solution), **columns)


def test_a_reward_has_its_name_its_weight_and_the_tags_of_the_run():
    rewards = build_rewards([RewardSpec("accuracy", 0.5), RewardSpec("boxed", 2.0)], CONTEXT)
    assert [(reward.name, reward.weight) for reward in rewards] == [("accuracy", 0.5), ("boxed", 2.0)]
    assert [reward.__name__ for reward in rewards] == ["accuracy", "boxed"]
    turns = ["[r]x[/r]\\boxed{3}", "[r]\\boxed{3}", "<think>\\boxed{3}"]
    assert rewards[0](completions=turns, solution=["3"] * 3, prompts=[""] * 3) == [1.0, 0.0, 1.0]


def test_the_same_function_twice_is_logged_under_two_names(mine):
    names = ["accuracy", "accuracy", "boxed", mine("only"), mine("only"), "accuracy"]
    rewards = build_rewards([RewardSpec(name) for name in names], CONTEXT)
    assert [reward.name for reward in rewards] == ["accuracy", "accuracy_2", "boxed", "only", "only_2", "accuracy_3"]


def test_a_name_of_the_library_is_that_of_its_function_whatever_a_user_calls_one(tmp_path, mine):
    (tmp_path / "my clash.py").write_text("def accuracy(completions): return [0.5] * len(completions)\n")
    theirs = f"{tmp_path}/my clash.py:accuracy"
    rewards = build_rewards([RewardSpec(name) for name in (theirs, "accuracy", theirs, mine("only"))], CONTEXT)
    assert [reward.name for reward in rewards] == ["my_clash_accuracy", "accuracy", "my_clash_accuracy_2", "only"]
    assert scores(rewards[0]) == [0.5, 0.5] and scores(rewards[1]) == [0.0, 0.0]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("only", [1.0, 1.0]),
        ("keyword_only", [1.0, 0.0]),
        ("everything", [4.0, 4.0]),  # completions, prompts, solution and level
        ("half", [0.5, 0.5]),
        ("fixed", [0.25, 0.25]),
        ("tags", [64.0, 64.0]),
    ],
)
def test_functions_of_any_signature_get_what_they_ask_for(mine, function, expected):
    assert scores(built(mine(function), params={}), **({} if function == "half" else {"level": [1, 2]})) == expected


def test_parameters_come_before_columns_and_columns_before_defaults(mine):
    assert scores(built(mine("with_level")), level=[1, 2]) == [1.0, 2.0]
    assert scores(built(mine("with_level"), params={"level": 0.5}), level=[1, 2]) == [0.5, 0.5]


def test_a_column_called_like_a_parameter_of_the_library_is_no_value_for_it():
    assert scores(built("accuracy"), solution=("3", "4"), deadline=[1, 2]) == [0.0, 0.0]
    assert scores(built("length", params={"longest": 3, "unit": "words"}), unit=["cm", "m"]) == [1.0, 1.0]


def test_the_full_mark_is_the_one_given_else_that_of_the_function_else_one(mine):
    assert built("xml_tags").full_mark == 0.5
    assert built(mine("reasoned")).full_mark == 2.0
    assert built(mine("only")).full_mark == 1.0
    assert built(mine("reasoned"), full_mark=1.5).full_mark == 1.5


def test_scores_have_the_reasons_of_library_and_users_alike(mine):
    [score, other] = built("boxed").explain(completions=["\\boxed{1}", "1"], solution=["1", "1"])
    assert score == Score(1.0, "one box") and other == Score(0.0, "no box")
    assert built(mine("reasoned")).explain(completions=["a"]) == [Score(2.0, "because")]
    assert built(mine("fixed")).explain(completions=["a"]) == [Score(0.25, "")]


def test_required_columns_are_parameters_without_a_value(mine):
    assert required_columns(RewardSpec("accuracy")) == ["solution"]
    assert required_columns(RewardSpec(mine("keyword_only"))) == ["solution"]
    assert required_columns(RewardSpec(mine("greedy"), params={"words": []})) == []
    assert required_columns(RewardSpec(mine("greedy"))) == ["words"]
    assert required_columns(RewardSpec("accuracy"), trainer=()) == ["completions", "solution"]


def test_an_adaptive_weight_starts_at_the_weight_and_knows_the_full_mark(mine):
    reward = built(mine("reasoned"), weight=0.5, adaptive=Adaptation(window=1))
    reward.adaptive.observe([1.0, 1.0])  # below its full mark of 2
    assert (reward.weight, reward.adaptive.value) == (0.5, pytest.approx(0.6))
    assert built("accuracy").adaptive is None


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (RewardSpec("acuracy"), "no reward acuracy; did you mean accuracy?"),
        (RewardSpec("boxed", params={"tags": 1}), "boxed has no parameter tags; its parameters are think_tags"),
        (RewardSpec("math:hypot"), "no signature found for builtin <built-in function hypot>; wrap it"),
        (RewardSpec("length", params={"longst": 1}), "length has no parameter longst; did you mean longest?"),
        (RewardSpec("builtins:len"), "builtins:len takes obj by position only"),
        (RewardSpec("os:system"), "os:system takes no parameter completions"),
        (RewardSpec("subprocess:getoutput"), "subprocess:getoutput takes no parameter completions"),
    ],
)
def test_a_wrong_name_or_parameter_is_refused(spec, said):
    with pytest.raises(UserError) as caught:
        build_rewards([spec], CONTEXT)
    assert said in str(caught.value)


def test_parameters_of_the_library_are_checked_before_there_is_a_completion():
    built("length", params={"longest": 3}).check_parameters()
    with pytest.raises(UserError, match="longest=-1"):
        built("length", params={"longest": -1}).check_parameters()


def test_a_run_without_rewards_is_refused():
    with pytest.raises(UserError, match="at least one"):
        build_rewards([], CONTEXT)


@pytest.mark.parametrize("wrong", [{"weight": -1_000_001.0}, {"deadline": 0.0}, {"full_mark": "much"}, {"params": []}])
def test_settings_that_cannot_be_are_refused_where_a_configuration_is_read(wrong):
    assert read(RewardSpec, {"name": "boxed", "weight": -1e6, "deadline": None}) == RewardSpec(
        "boxed", -1e6, deadline=None
    )
    with pytest.raises(UserError, match=next(iter(wrong))):
        read(RewardSpec, {"name": "boxed", **wrong})
