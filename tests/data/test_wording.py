"""Two writings of one problem have the same words; two problems do not."""

import pytest

from rlvr_vocab.data.wording import numbers_in, words_of


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What is  $x$?", "what is\n x"),
        (r"Find \(\frac12\).", r"Find $\dfrac12$"),
        (r"$\left( a,\, b \right)$", "$(a, b)$"),
        (r"\[x = 3\]", "$$x=3$$"),
        ("He paid $1,000.", r"He paid \$1000"),
        (r"$10{,}000$ men", "10,000 men"),
        ("Bob’s “new” pen – red", 'Bob\'s "new" pen - red'),
        ("Caf\u00e9", "Cafe\u0301"),
        ("3 ~ 4", "3 4"),
    ],
)
def test_typesetting_case_and_punctuation_make_no_other_problem(one: str, other: str) -> None:
    assert words_of(one) == words_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("4+9=", "49="),
        ("4-9=", "4+9="),
        ("5!", "5"),
        ("f'(3)", "f(3)"),
        ("3.5 apples", "35 apples"),
        ("x < 2", "x > 2"),
        ("the pair (1,2)", "the pair (12)"),
        (r"\frac{1}{23}", r"\frac{12}{3}"),
        (r"\sin x", "sin x"),
        ("?", "…"),
    ],
)
def test_what_means_something_keeps_two_problems_apart(one: str, other: str) -> None:
    assert words_of(one) != words_of(other)


def test_words_are_whole_and_text_without_spaces_is_read_by_its_characters() -> None:
    assert words_of("Is 2,345.5 prime?") == ("is", "2345.5", "prime")
    assert words_of("求x的值") == ("求", "x", "的", "值")
    assert numbers_in(words_of("3 men, 4.5 hours and $x_2$")) == ["3", "4.5", "2"]
