"""Scores of texts, numbers and choices, each against a gold answer."""

from fractions import Fraction

import pytest

from rlvr_vocab.rewards.build import RewardContext, build_rewards
from rlvr_vocab.rewards.library.answers import (
    accuracy,
    exact_match,
    last_number,
    letters_concluded,
    letters_named,
    multiple_choice,
    numeric,
)
from rlvr_vocab.rewards.reward import RewardSpec

CASES = [
    (r"<think>6 * 7</think>\boxed{42}", "42", 1.0),
    ("<think>\n6 * 7 = 42. \\boxed{42}", "42", 0.0),
    (r"<think>\boxed{42}</think>I do not know.", "42", 0.0),  # a box in the thinking alone
    (r"<think>x</think>\boxed{41}. No wait, \boxed{42}", "42", 1.0),
    (r"<think>x</think>\boxed{42}. No wait, \boxed{4", "42", 0.0),  # cut off
    ("The answer is $42$.", "42", 0.0),  # no box
    (r"\boxed{42}", None, None),
    (r"\boxed{1/2}", 0.5, 1.0),
    (r"\boxed{[1, 2]}", [1, 2], None),
    (r"\boxed{True}", True, 1.0),
]


def test_turns_are_scored_as_texts_and_as_messages_in_the_order_of_a_batch():
    turns, golds, scores = zip(*CASES, strict=True)
    assert accuracy(turns, solution=golds) == list(scores)
    messages = [[{"role": "assistant", "content": turn}] for turn in turns]
    assert accuracy(messages, solution=golds, prompts=[[]] * len(turns)) == list(scores)


@pytest.mark.parametrize(
    ("turn", "gold", "score"),
    [
        (r"\boxed{ New   York }", "New\nYork", 1.0),
        ("<think>x</think>\n Paris\n", "Paris", 1.0),
        ("<think>x</think>It is Paris", "Paris", 0.0),
        ("Paris", r"So it is \boxed{Paris}.", 1.0),
        ("paris", "Paris", 0.0),
        ("7", 7, 1.0),
        ("[1, 2]", [1, 2], None),
        (r"\boxed{Paris", r"\boxed{Paris", 0.0),
        ("", " \n", None),
    ],
)
def test_texts_are_compared_without_regard_to_white_space(turn, gold, score):
    assert exact_match([turn], solution=[gold]) == [score]


def test_case_and_punctuation_are_ignored_where_that_is_asked_for():
    turns, golds = ["STRASSE!", "«stra-ße»", "strase"], ["Straße"] * 3
    assert exact_match(turns, solution=golds, ignore_case=True, ignore_punctuation=True) == [1.0, 1.0, 0.0]
    assert exact_match(["STRASSE!", "STRASSE"], solution=["Straße"] * 2, ignore_case=True) == [0.0, 1.0]
    assert exact_match(["...", ""], solution=["!", "!"], ignore_punctuation=True) == [None, None]


@pytest.mark.parametrize(
    ("turn", "gold", "score"),
    [
        (r"\boxed{42}", "42", 1.0),
        (r"<think>\boxed{42}</think>", "42", 0.0),
        (r"<think>41</think>42, or rather 41.", "42", 0.0),
        (r"\boxed{\frac{3}{4}}", "0.75", 1.0),
        (r"\boxed{0.0000002}", "0.0000001", 0.0),
        (r"\boxed{41=42}", "42", 0.0),
        (r"\boxed{3\sqrt{2}}", "3", 0.0),
        (r"\boxed{42", "42", 0.0),  # cut off: 421 perhaps
        (r"\boxed{42}", "forty-two", None),
        (r"\boxed{42}", None, None),
        (r"\boxed{0.1}", 0.1, 1.0),
        (r"\boxed{-\dfrac{3}{4}}", "-0.75", 1.0),
        (r"\boxed{x = 5\,\mathrm{cm}^{3}}", "€ 5", 1.0),
        *((f"\\boxed{{{text}}}", "5", 0.0) for text in ("x = y = 5", "5x", "2+3", "5,5", "1/0", "\ud800")),
        # A percent sign on one side is left out where the gold number is above one.
        (r"\boxed{50\%}", "50", 1.0),
        (r"\boxed{50}", r"50\%", 1.0),
        (r"\boxed{0.5}", r"50\%", 1.0),
        (r"\boxed{0.5\%}", "0.5", 0.0),
        (r"\boxed{0.5\%}", "0.005", 1.0),
        (r"\boxed{1\%}", "1", 0.0),
        (r"\boxed{5000}", r"50\%", 0.0),
    ],
)
def test_numbers_are_compared_exactly(turn, gold, score):
    assert numeric([turn], solution=[gold]) == [score]


def test_tolerances_hold_up_to_the_last_digit():
    off_by = [f"\\boxed{{{value}}}" for value in ("10.1", "9.9", "10.1000000000000001")]
    assert numeric(off_by, solution=["10"] * 3, absolute_tolerance=0.1) == [1.0, 1.0, 0.0]
    assert numeric(off_by, solution=["10"] * 3, relative_tolerance=0.01) == [1.0, 1.0, 0.0]
    assert numeric(off_by, solution=["-10"] * 3, relative_tolerance=0.01) == [0.0, 0.0, 0.0]
    assert numeric([r"\boxed{-10.1}"], solution=["-10"], relative_tolerance=0.01) == [1.0]
    assert numeric(["2"], ["1"], absolute_tolerance=1, relative_tolerance=0.5) == [1.0]  # the larger holds
    # One percent of fifty percent is half a point, not half of one.
    assert numeric(["0.9", "0.504", "50.5"], solution=["50%"] * 3, relative_tolerance=0.01) == [0.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("turn", "gold", "score"),
    [
        (r"\boxed{C}", "C", 1.0),
        (r"\boxed{B, C}", "C", 0.0),
        (r"<think>Not A, not B.</think>The answer is C.", "C", 1.0),
        (r"\boxed{C}", "C. Paris", 1.0),
        (r"\boxed{C}", "C) Both A and B are wrong", 1.0),
        (r"\boxed{C}", r"100^\circ\text{C}", None),
        (r"\boxed{C}", "B or C", None),
        (r"\boxed{C}", None, None),
        (r"The answer is \boxed{C", "C", 0.0),
        (r"\boxed{C}", "K", None),
    ],
)
def test_choices_are_compared_by_letter(turn, gold, score):
    assert multiple_choice([turn], solution=[gold]) == [score]
    assert multiple_choice([r"\boxed{K}", r"\boxed{C}"], solution=["K", "C"], letters="JKL") == [1.0, None]


@pytest.mark.parametrize(
    "function", [accuracy, exact_match, numeric, multiple_choice], ids=lambda function: function.__name__
)
def test_thinking_ends_with_the_tags_of_the_run(function):
    gold = "A" if function is multiple_choice else "7"
    turns = [f"[r]x[/r]\\boxed{{{gold}}}", f"[r]\\boxed{{{gold}}}", f"<think>{gold}</think>\\boxed{{{gold}}}"]
    assert function(turns, solution=[gold] * 3, think_tags=("[r]", "[/r]")) == [1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("It costs $1,234.50.", Fraction(2469, 2)),
        ("So 3 + 4 = 7 apples", 7),
        ("5 million", 5_000_000),
        ("It is: 5 ✅", 5),
        (r"about 1.234×10⁵ m", 123_400),
        ("**Answer:** $5$", 5),
        ("m = - 2", -2),
        ("of .48 km", Fraction(12, 25)),
        (r"\frac { 1 } { 4 }.", Fraction(1, 4)),
        ("5 is correct", 5),
        ("he met her 5 times.", 5),
        ("20 + 5 = 25ml of oil", 25),
        ("= $7200/year", 7200),
        ("Answer:5", 5),
        ("=12m from his end", 12),
        ("from 3 to -4", -4),
        ("7 apples in box2", 7),
        ("9" * 300_000 + " and 5", 5),
    ],
)
def test_the_last_number_of_a_text_is_found(text, value):
    assert last_number(text).value == value


@pytest.mark.parametrize(
    "text",
    r"""minus 5|x-5|x - 5|a + 5|3 - 4|5k|5 k|5x|5 dozen|5 lakhs|5 bn|5-fold|5 (million)|5th|5\pi|\sqrt{5}|f(5)
    |log 5|5/x|5i|half of 5|5 squared|5 and a half|not 5|isn't 5|it can't be 5|less than 5|5 is wrong|5, not 5|12,5|±5
    |≤5|5 \cdot x|**5** dozen|10 – 5|100 × 5|one hundred and 5|x != 5|x <= 5|5fold|negative 5
    """.split("|"),  # noqa: SIM905 - a table
)
def test_what_belongs_to_the_last_number_belongs_to_it(text):
    assert last_number(f"Of 5 it is {text.strip()}") is None


@pytest.mark.parametrize("gold", ["0042", "1.234,56", "7-11"])
def test_a_gold_answer_that_may_be_no_number_is_none(gold):
    assert numeric([gold, "42"], solution=[gold] * 2) == [None, None]


@pytest.mark.parametrize("end", ["1/0", "2024-01-05", "7-11", "5–10%", "3:45", "1.234.567", "$5-$10"])
def test_the_last_part_of_a_date_a_range_or_a_code_is_no_number(end):
    assert last_number(f"Of 12 it is {end}.") is last_number("no number") is None


@pytest.mark.parametrize(
    ("letters", "texts"),
    [
        ("C", ["c", "C)", r"\mathbf{\text{C}}", "Answer: C", r"\textbf{(C)}\ 42", "C: Vitamin A", "C - Paris"]),
        ("C", ["(C) None of the above", "C is the correct answer."]),
        ("AB", ["(A)(B)", "A. B"]),
        ("B", ["B) 9"]),
        ("", ["C (no)", "C++", "AB", "not C", "Everything except (C)", "Vitamin C", "(C) is wrong, it is A"]),
        ("", ["(C) dog or B cat", "C dog", "C?", "C - D", "maybe C"]),
    ],
)
def test_a_box_names_the_letters_in_it(letters, texts):
    for text in texts:
        assert letters_named(text, "ABCDE") == set(letters), text


@pytest.mark.parametrize(
    ("letters", "texts"),
    [
        ("C", ["the final answer is: **(C)** Paris.", r"The answer is $\text{C}$."]),
        ("C", ["The correct option is C, because A dog barks.", "Option A is too small, so the answer is C.", "c."]),
        ("C", ["C is the correct answer.", "The answer is C, not D.", "The answer is C\n\nHope it helps!"]),
        ("AC", ["Option A is too small. Option C", "The answer is A. No, the answer is C."]),
        ("ABC", ["The answer is (A), (B), or (C)."]),
        ("", ["C is not right.", "Everything except option C", "The answer can't be option C"]),
        ("", ["The answer is (C) is wrong", "The answer is C dog", "If the answer is C, then no", "A dog"]),
        ("CD", ["The answer is C and maybe D"]),
    ],
)
def test_an_answer_without_a_box_names_what_it_concludes(letters, texts):
    for text in texts:
        assert letters_concluded(text, "ABCDE") == set(letters), text


@pytest.mark.parametrize("name", ["accuracy", "numeric", "cosine_length"])
@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        *(("12.50", "12,5"), ("7.023", "7{,}023"), ("12.50", "12.5"), ("1234.5", "1.234,5"), ("1234.5", "1,234.5")),
        *(("1234.5", group % "234,5") for group in (r"1\,%s", r"1\ %s", "1~%s", "1{.}%s", "1\u2009%s", "1'%s")),
        ("1234.5", r"1\,234{,}5"),
    ],
)
def test_with_decimal_commas_an_answer_counts_in_either_notation(name, gold, answer):
    [comma] = build_rewards([RewardSpec(name)], RewardContext(max_completion_length=9, decimal_mark="comma"))
    columns = {"completions": [f"\\boxed{{{answer}}}", r"\boxed{3}"], "solution": [gold] * 2}
    right, wrong = comma(**columns, completion_ids=[[1], [1]])
    assert right > 0 >= wrong


@pytest.mark.parametrize(
    ("gold", "turn", "score"),
    [
        *(("1234", r"\boxed{1,234}", 0.0), ("1.234", r"\boxed{1,234}", 1.0), ("1.234", r"\boxed{1.234}", 0.0)),
        *(("1; 5", r"\boxed{1,5}", 0.0), ("1; 5", r"\boxed{1, 5}", 1.0)),
        ("12.50", r"\boxed{1} or \boxed{2} or \boxed{12,50}", 0.0),
        ("12.50", r"\boxed{1,00}, \boxed{2,00}, \boxed{12,50}", 0.0),
        ("12.50", r"\boxed{1} oder \boxed{12,50}", 0.0),
        ("12.50", r"\boxed{11} bzw. \boxed{12,50}", 0.0),
        ("12.50", r"\boxed{11 oder 12,50}", 0.0),
        ("12.50", r"\boxed{11} ist falsch, also \boxed{12,50}", 1.0),
        ("1.5; 2.5", r"\boxed{1,5} and \boxed{2,5}", 1.0),
        ("1.5; 2.5", r"$x=\boxed{1,5}$ oder $x=\boxed{2,5}$", 1.0),
        ("1.5; 2.5", r"\boxed{1,5} und \boxed{2,5}. Der Wert 2,5 ist falsch.", 0.0),
        ("12.50 €", r"\boxed{12,50 $}", 0.0),
    ],
)
def test_with_decimal_commas_no_answer_counts_in_two_readings(gold, turn, score):
    assert accuracy([turn], [gold], decimal_mark="comma") == [score]
