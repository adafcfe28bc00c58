"""A problem source that could never be read is refused when it is named."""

import pytest

from rlvr_vocab.data.arithmetic import ArithmeticTask
from rlvr_vocab.data.source import Columns, ProblemSource
from rlvr_vocab.errors import UserError

COLUMNS = Columns("problem", "answer")


def test_a_mistyped_answer_format_names_the_nearest_one() -> None:
    with pytest.raises(UserError, match=r'"boxd".*bare, hash, boxed; did you mean boxed\?'):
        ProblemSource("x.csv", COLUMNS, answer_format="boxd")


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(UserError, match=r"dataset\.name is empty"):
        ProblemSource(" ", COLUMNS)


def test_a_generator_belongs_to_the_generated_task_only() -> None:
    assert ProblemSource("arithmetic", COLUMNS, generator=ArithmeticTask()).is_generated
    with pytest.raises(UserError, match=r'dataset\.name is "x\.csv": only "arithmetic" is generated'):
        ProblemSource("x.csv", COLUMNS, generator=ArithmeticTask())


def test_the_generated_task_has_no_splits() -> None:
    with pytest.raises(UserError, match=r'eval_split is "test".*dataset\.eval_fraction'):
        ProblemSource("arithmetic", COLUMNS, eval_split="test")
