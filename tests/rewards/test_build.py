"""Named rewards become the functions and weights of a run."""

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.build import RewardSpec, build_rewards

TAGS = ("<think>", "</think>")


def test_a_reward_keeps_its_name_its_weight_and_the_tags_of_the_run():
    functions, weights = build_rewards([RewardSpec("accuracy", 0.5), RewardSpec("accuracy", 2.0)], ("[r]", "[/r]"))
    assert weights == [0.5, 2.0]
    assert [function.__name__ for function in functions] == ["accuracy", "accuracy"]
    turns = ["[r]x[/r]\\boxed{3}", "[r]\\boxed{3}", "<think>\\boxed{3}"]
    assert functions[0](completions=turns, solution=["3"] * 3, prompts=[""] * 3) == [1.0, 0.0, 1.0]


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match=r"'acuracy'.*accuracy"):
        build_rewards([RewardSpec("acuracy")], TAGS)


def test_a_run_without_rewards_is_refused():
    with pytest.raises(UserError, match="at least one"):
        build_rewards([], TAGS)
