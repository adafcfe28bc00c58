"""Messages around a problem."""

from typing import Any

import pytest

from rlvr_vocab.data.table import PromptStyle, build_messages
from rlvr_vocab.errors import UserError


def test_turns_come_in_the_order_system_examples_problem() -> None:
    style = PromptStyle("Be brief.", examples=(("1+1=", "2"), ("2+2=", "4")))
    assert [(message["role"], message["content"]) for message in build_messages("3+3=", style)] == [
        ("system", "Be brief."),
        ("user", "1+1="),
        ("assistant", "2"),
        ("user", "2+2="),
        ("assistant", "4"),
        ("user", "3+3="),
    ]


@pytest.mark.parametrize("system_prompt", [None, ""])
def test_without_a_system_prompt_the_problem_stands_alone(system_prompt: str | None) -> None:
    assert build_messages(" x \n", PromptStyle(system_prompt)) == [{"role": "user", "content": " x \n"}]


@pytest.mark.parametrize("example", [("only a problem",), "ab", ("1+1=", 2)])
def test_an_example_that_is_no_pair_of_texts_is_refused_by_its_number(example: Any) -> None:
    with pytest.raises(UserError, match=r"example 2 is .*must be a pair of texts"):
        PromptStyle(None, examples=(("1+1=", "2"), example))
