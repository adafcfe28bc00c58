"""Repeated problems are found with all their rows, and told from those whose answers contradict each other."""

from collections.abc import Sequence

from rlvr_vocab.data.duplicates import RepeatedProblem, repeated_problems
from rlvr_vocab.data.rows import Problem


def problems(*rows: tuple[str, str]) -> list[Problem]:
    """One problem a row, with every tenth row number."""
    return [Problem(text, answer, {}, 10 * number) for number, (text, answer) in enumerate(rows, start=1)]


def none_alike(pairs: Sequence[tuple[str, str]]) -> list[bool]:
    return [False for _ in pairs]


def test_repeats_are_grouped_over_white_space_case_and_punctuation() -> None:
    rows = problems(("What is 1+1?", "2"), ("other", "5"), ("what is  1 + 1", "2"), ("What is 1+1?", "2"))
    assert repeated_problems(rows, none_alike) == [
        RepeatedProblem("What is 1+1?", (10, 30, 40), ((10, "2"),), verbatim=False)
    ]


def test_white_space_alone_leaves_a_repeat_verbatim() -> None:
    [found] = repeated_problems(problems(("a  b", "1"), ("a\nb", "1")), none_alike)
    assert found.verbatim and not found.is_contradiction


def test_answers_that_differ_contradict_and_the_first_row_of_each_is_named() -> None:
    rows = problems(("p", "1"), ("p", "2"), ("p", "1"), ("p", "3"), ("p", "2"))
    [found] = repeated_problems(rows, none_alike)
    assert found.is_contradiction
    assert found.answers == ((10, "1"), (20, "2"), (40, "3"))


def test_answers_that_mean_the_same_do_not_contradict() -> None:
    rows = problems(("p", "0.5"), ("p", "1/2"), ("p", "2/4"), ("p", "3"))
    [found] = repeated_problems(rows, lambda pairs: [set(pair) <= {"0.5", "1/2", "2/4"} for pair in pairs])
    assert found.answers == ((10, "0.5"), (40, "3"))


def test_all_answers_are_compared_at_once_and_one_text_in_every_row_does_not_take_for_ever() -> None:
    asked: list[tuple[str, str]] = []

    def same(pairs: Sequence[tuple[str, str]]) -> list[bool]:
        assert not asked, "asked twice"
        asked.extend(pairs)
        return [False for _ in pairs]

    rows = problems(*(("one text", str(number)) for number in range(1000)), ("p", "a"), ("p", "b"))
    found = repeated_problems(rows, same)
    assert [len(problem.answers) for problem in found] == [1000, 2]
    assert len(asked) == 20 * 19 // 2 + 1


def test_a_set_without_repeats_has_none() -> None:
    assert repeated_problems(problems(("4+9=", "13"), ("49=", "49"), ("9+4=", "13")), none_alike) == []


def test_answers_that_are_no_text_are_compared_as_their_json() -> None:
    rows = [Problem("p", gold, {}, number) for number, gold in enumerate(({"a": [1]}, {"a": [1]}, [2, "x"]), start=1)]
    [found] = repeated_problems(rows, none_alike)
    assert found.answers == ((1, '{"a": [1]}'), (3, '[2, "x"]'))


def test_a_repeat_without_answers_contradicts_nothing() -> None:
    [found] = repeated_problems([Problem("p", None, {}, 1), Problem("p", None, {}, 2)], none_alike)
    assert found.answers == () and not found.is_contradiction
