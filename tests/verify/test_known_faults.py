r"""Faults that other verifiers were measured to have (math-verify 0.9 behind TRL 1.16), none of which is inherited.

Those of speed and memory are in `test_hostile.py`.
"""

import pytest

from rlvr_vocab.rewards import accuracy


def score(gold: str, turn: str) -> float | None:
    return accuracy(completions=[turn], solution=[gold])[0]


@pytest.mark.parametrize(
    "gold", [r"\frac12", r"\sqrt{2}", "(1,2)", "x^2+1", "C", r"2\pi", r"3\sqrt{2}", "[2,5)", "Friday"]
)
@pytest.mark.parametrize("form", ["{}", "${}$", r"\boxed{{{}}}"])
def test_a_gold_answer_is_read_whole_in_every_form(gold: str, form: str) -> None:
    assert score(form.format(gold), rf"\boxed{{{gold}}}") == 1.0
    for part in ("1", "2", "3", "x"):
        assert score(form.format(gold), rf"\boxed{{{part}}}") == 0.0


@pytest.mark.parametrize(
    ("gold", "turn"),
    [
        ("42", r"\boxed{41=42}"),
        ("42", r"\boxed{x=41=42}"),
        (r"12\text{ cm}", r"\boxed{12\text{ km}}"),
        (r"0.\overline{3}", r"\boxed{0}"),
        ("0.0000001", r"\boxed{0.0000002}"),
        (r"\pi", r"\boxed{3.1415926}"),
        ("42", r"<think>\boxed{42}</think>I do not know."),
        ("42", r"<think>\boxed{42}"),
    ],
)
def test_wrong_answers_that_others_accept_are_wrong(gold: str, turn: str) -> None:
    assert score(gold, turn) == 0.0


@pytest.mark.parametrize(
    ("gold", "turn"),
    [
        ("1/2", r"\boxed{\frac12}"),
        (r"\sqrt{2}", r"\boxed{\sqrt2}"),
        (
            r"\begin{pmatrix} 1/2 & 0 \\ 0 & 1 \end{pmatrix}",
            r"\boxed{\begin{pmatrix}\frac12&0\\0&1\end{pmatrix}}",
        ),
        (r"0.\overline{3}", r"\boxed{0.\overline{3}}"),
        (r"0.1\overline{6}", r"\boxed{0.1\bar6}"),
        (r"50\%", r"\boxed{50 \%}"),
        ("1234567", r"\boxed{1\,234\,567}"),
        (r"\emptyset", r"\boxed{\varnothing}"),
        ("42", r"\boxed{42.}"),
        (r"45^\circ", r"\boxed{45\degree}"),
        ("42", r"\boxed{41}. No wait, \boxed{42}"),
    ],
)
def test_right_answers_that_others_reject_are_right(gold: str, turn: str) -> None:
    assert score(gold, turn) == 1.0


def test_only_the_last_box_counts() -> None:
    assert score("41", r"\boxed{41}. No wait, \boxed{42}") == 0.0


@pytest.mark.parametrize("box", ["5" + "!" * 198, r" \cup ".join(["(1,2)"] * 200), "{" * 300 + "5" + "}" * 300])
def test_nothing_raises(box: str) -> None:
    assert score("5", rf"\boxed{{{box}}}") == 0.0


@pytest.mark.parametrize("mark", ["\ud800", "\x00", "\u202e", "\u200b", "\ufeff"])
def test_strange_characters_are_neither_an_error_nor_overlooked(mark: str) -> None:
    assert score("42", rf"{mark}\boxed{{42}}{mark}") == 1.0
    assert score("42", rf"\boxed{{4{mark}2}}") == 0.0
