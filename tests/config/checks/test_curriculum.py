"""What of a curriculum is refused before torch is imported."""

import pytest

from rlvr_vocab.config.checks.run import check_curriculum
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.errors import UserError

WORDS = ["experiment=quickstart", "dataset.curriculum.skip_solved=2"]


def test_solved_problems_are_skipped_only_where_a_reward_tells_right_from_wrong():
    with pytest.raises(UserError, match="no reward of this run tells right from wrong"):
        check_curriculum(read_settings("train", [*WORDS, "rewards=[length]"]))
    check_curriculum(read_settings("train", [*WORDS, "rewards=[length,{name: accuracy, weight: 0}]"]))
    check_curriculum(read_settings("train", [WORDS[0], "rewards=[length]"]))
