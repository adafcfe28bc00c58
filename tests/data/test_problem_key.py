"""Two writings of one problem are the same problem; two problems are not."""

import pytest

from rlvr_vocab.data.problem_key import problem_key, words_of


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What is  $x$?", "what is\n x"),
        ("What is x?", "• What is x?"),
        (r"$84 \div 7$", "84 ÷ 7"),
        (r"\sin\lambda + \theta \lt 1", "sin λ + θ < 1"),
        ("Find \\(\\frac12\\).", "FIND $\\DFRAC{1}{2}$!"),
        ("$\\left( a,\\, b \\right)$", "$(a, b)$"),
        ("He paid $1,000.", "He paid \\$1000"),
        ("Bob’s “new” pen – red", 'Bob\'s "new" pen - red'),
        ("Café", "Cafe\u0301"),
        ("求x的值", "\u7b2c3\u9898\uff1a\u6c42x\u7684\u503c\uff1f"),
        ("\u6c42x\u7684\u503c\uff01", "\uff13\uff0e\u6c42\uff58\u7684\u503c"),
        ("What is x² + 1?", "What is $x^2+1$?"),
        ("90°", "$90^{\\circ}$"),
        ("a\u200bb c", "ab c"),
        ("a &lt; b &amp; c", "a < b & c"),
        ("$\\triangle A B C$", "△ABC"),
        ("$.5$", "0.5"),
        ("Find the value: ____", "find the value ___"),
        ("f^{\\prime}(x)", "f'(x)"),
        ("\uff12\uff0b\uff13\uff1d", "2+3="),
        ("$\\mathbf{Q5}$) What is", "What is"),
    ],
)
def test_case_spacing_marks_typesetting_and_forms_of_characters_make_no_other_problem(one, other):
    assert problem_key(one) == problem_key(other)


@pytest.mark.parametrize(
    "numbering",
    ["Problem 12: ", "12. ", "(3) ", "(iv) ", "**Problem 4.** ", "## Task 3\n ", "3. (b) ", "① ", " \ufeff12.\xa0"],
)
def test_a_number_in_front_makes_no_other_problem(numbering):
    for problem in ("What is 3+4?", "3+4=", "12 apples and 5 pears", r"$\frac{1}{2}+x$"):
        assert problem_key(numbering + problem) == problem_key(problem)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("4+9=", "49="),
        ("5!", "5"),
        ("3.5 apples", "35 apples"),
        ("\\frac123", "\\frac{1}{23}"),
        ("?", "…"),
        ("2. 5", "5"),
        ("(3) + 4 = ?", "(5) + 4 = ?"),
        ("3 - 4 =", "5 - 4 ="),
        ("2²+1=", "22+1="),
        ("1½", "11/2"),
        ("x != 3", "x = 3"),
        ("5--3=", "5-3="),
        ("!a & b", "a & b"),
        ("x^{n+1}", "x^n+1"),
        ("1&2\\\\3&4", "1&2&3\\\\4"),
        ("2024-01-05: which day?", "2024-01-06: which day?"),
        ("Exercise 5 days a week. How many", "Exercise 3 days a week. How many"),
        ("7-11", "7 11"),
        ("5 (3+4)", "6 (3+4)"),
        ("Part 3-digit numbers", "Part 4-digit numbers"),
    ],
)
def test_what_means_something_keeps_two_problems_apart(one, other):
    assert problem_key(one) != problem_key(other)


def test_hostile_texts_are_read_in_no_time():
    for part in (" ", "#", "problem ", "{", "'", "`", "(1) ", "$ ", "\\text{", "^{", "!", "1. "):
        problem_key(part * 20_000)


def test_words_are_whole_and_text_without_spaces_is_read_by_its_characters():
    assert words_of("Is 2,345.5 prime?") == ("is", "2345.5", "prime")
    assert words_of("求x的值") == ("求", "x", "的", "值")
