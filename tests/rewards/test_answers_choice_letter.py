"""The forms in which an answer names a choice, and those that name several or none."""

import pytest

from rlvr_vocab.rewards.library.answers import letters_concluded, letters_named

LETTERS = "ABCDE"


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        ("C", "C"),
        ("c", "C"),
        ("(C)", "C"),
        ("(c)", "C"),
        ("C.", "C"),
        ("C)", "C"),
        ("$C$", "C"),
        ("**C**", "C"),
        (r"\text{C}", "C"),
        (r"\textbf{(C)}", "C"),
        (r"\mathrm{C}", "C"),
        (r"\mathbf{\text{C}}", "C"),
        ("Option C", "C"),
        ("option c", "C"),
        (r"\text{Option C}", "C"),
        ("The answer is C", "C"),
        ("Answer: C", "C"),
        (r"\textbf{(C)}\ 42", "C"),
        ("C. Paris", "C"),
        ("C) a dog", "C"),
        ("C: Vitamin A", "C"),
        ("A or B", "AB"),
        ("A, B", "AB"),
        ("(A)(B)", "AB"),
        ("A) or B)", "AB"),
        ("A) or B", "AB"),
        ("A. B", "AB"),
        ("C C", "C"),
        ("AB", ""),
        ("F", ""),
        ("Paris", ""),
        ("", ""),
        ("C" * 500, ""),
        ("C " * 500, ""),
    ],
)
def test_a_box_names_the_letters_in_it(text, letters):
    assert letters_named(text, LETTERS) == set(letters)


@pytest.mark.parametrize(
    ("answer", "letters"),
    [
        ("The answer is C", "C"),
        ("the final answer is: **(C)** Paris.", "C"),
        ("The answer is $\\text{C}$.", "C"),
        ("The correct option is C, because A dog barks.", "C"),
        ("The correct choice is (C).", "C"),
        ("Answer: C", "C"),
        ("I would take option C.", "C"),
        ("Option A is too small, so the answer is C.", "C"),
        ("The answer is not A, the answer is C", "C"),
        ("Option A is too small. Option C", "AC"),
        ("The answer is A. No, the answer is C.", "AC"),
        ("The answer is A or B", "AB"),
        ("The answer is (A), (B), or (C).", "ABC"),
        ("Answer: A/B", "AB"),
        ("C", "C"),
        ("c.", "C"),
        ("(C) Paris", "C"),
        ("A dog", ""),
        ("the answer is a dog", ""),
        ("I think A is wrong", ""),
        ("", ""),
    ],
)
def test_an_answer_without_a_box_names_what_it_concludes(answer, letters):
    assert letters_concluded(answer, LETTERS) == set(letters)
