"""What of a curriculum is refused before torch is imported."""

import pytest

from rlvr_vocab.checks.run import check_curriculum
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.errors import UserError

KEY = "dataset.curriculum"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([f"{KEY}.by_difficulty.column=level", f"{KEY}.by_difficulty.band=[0, 1]"], "name a column, or a band"),
        ([f"{KEY}.by_difficulty.band=[0.9, 0.1]"], r"band=\[0.9, 0.1\]: must be two pass rates"),
        ([f"{KEY}.mix={{sums: 0}}"], r"mix.sums=0: a share must be above 0"),
        ([f"{KEY}.mix={{sums: many}}"], r"mix.sums=many: a share must be above 0"),
        ([f"{KEY}.skip_solved=2", "rewards=[length]"], "no reward of this run tells right from wrong"),
    ],
)
def test_what_cannot_be_followed_is_refused(words, said):
    with pytest.raises(UserError, match=said):
        check_curriculum(read_settings("train", ["experiment=quickstart", *words]))


@pytest.mark.parametrize(
    "words",
    [
        [f"{KEY}.skip_solved=2", "rewards=[length,{name: accuracy, weight: 0}]"],
        [f"{KEY}.mix={{sums: 1, spelling: 2.5}}", "rewards=[length]"],
        [],
    ],
)
def test_what_can_is_not(words):
    check_curriculum(read_settings("train", ["experiment=quickstart", *words]))
