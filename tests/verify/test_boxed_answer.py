r"""Where an answer stands: in the last box, in several side by side, or where else the caller allows it."""

import pytest

from rlvr_vocab.rewards import accuracy
from rlvr_vocab.verify.boxed_answer import final_answer, last_box

# `<1>` stands for `\boxed{1}`; boxes side by side are one list, in doubt only the last box counts.
RIGHT = {
    "1, 2": r"""<1> and <2>|$<2>$ and $<1>$|<1>, <2>|<1> or <2>|<1>; <2>|x = <1> or x = <2>|$x = <2>$ or $<1>$
        |$x_1=<2>$, $x_2=<1>$|$x_{1}=<1>\quad x_{2}=<2>$|x=<1>, x=<2>|- <1>¶- <2>|1. $<2>$¶2. $<1>$
        |Case 1: <1>. Case 2: <2>|<1>, and also <2>
        |The first root is <1>. The second root is <2>.|One solution is <1> and the other is <2>|**<1>** and **<2>**
        |Solution 1: <1>¶Solution 2: <2>|<1> as well as <2>|<1>\text{ and }<2>|\(<1>\) and \(<2>\)|\[<1>\] and \[<2>\]
        |\{<1>, <2>\}|<x=1> or <x=2>|<\frac22> and <\sqrt4>
        |It is not hard: p(x)=0. So the roots are <1> and <2>. Both fit.
        |<1> and <3>. No wait, <1> and <2>.|<3>. Actually, <2> and <1>.|<1> and <2>. Let me redo this: <1>, <2>.""",
    "1, 2, 3": "<1>, <2>, <3>|<3>, <1> and <2>|<1>, <2>, and <3>|- <1>¶- <2>¶- <3>|x=<1>, x=<2> or x=<3>",
    r"\{-1, 4\}": "<-1> and <4>",
    r"\pm 3": "<3> and <-3>",
    "x=1, y=2": "$x=<1>$, $y=<2>$|<x=1>, <y=2>",
    "(1,2), (3,4)": "<(3,4)> and <(1,2)>",
    "A, C": "<C> and <A>",
    "10, 200": "<10>, <200>",
    "7-11, 12-15": "<7-11> and <12-15>",
    "2": "<2> and <2>|<1>. No wait, <2>|First <1>, then <2>|With <1> we get <2>.",
}
WRONG = {
    "1, 2": r"""<1>|<2>|<1> and <3>|<1>, <2>, <3>|<1>, <1>|<1>, <2> and <2>|<0>, <1> and <2>|<1>. No wait, <2>.
        |<1> and <2>. No wait, <1> and <3>.|<1> and <2>. Actually, <2>.|With <1> we get <2>.|<1>, so <2>
        |<1>. The answer is <2>.|<1>, which gives <2>
        |First we find <1>. Hence the answer is <2>.|Substituting a = <1>, the value is <2>.|<1> and then <2>
        |<1>. Oops: <2>|<2>, then <1>
        |<1> + <2>|<1>/<2>|<1> = <2>|\frac{<1>}{<2>}|<1>^2 and <2>|-<1> and <2>|2\cdot<1> and <2>|<1> or x=-<2>
        |2x=<1> and <3>|<0>, so <1> and <2>
        |(<1>, <2>)|\left(<1>, <2>\right)|[<1>, <2>]|<1><2>|<1>¶<2>|x=<2>, y=<1>|(a) <2> (b) <1>|<1, 2>, <3>|<12>
        |<1> and <2>, but the first is no solution|<1> and <2>. Only the second works.
        |<1> and <2>. So the final answer is 3.
        |The solutions are not <1> and <2>.|Intermediate results: <1> and <2>.|<1> and <2""",
    "2": "<1> and <2>|<1>, <2>",
    "2, 3": "<1>, <2> and <4>. Wait, the last two are <2> and <3>.|<1, 2> and <3>",
    "1, 2, 3": "<1> and <2>|<1>, <2, 3>",
    "(1,2)": "<1> and <2>",
    "[1,2]": "<1>, <2>",
    "x=1, y=2": "x=<2>, y=<1>|y=<1>, x=<2>",
    "1-2": "<1> and <2>",
    "1,234": "<1>, <234>",
    "x<1 or x>2": "<1> or <2>",
}


def scores(cases):
    pairs = [(gold, turn.strip()) for gold, turns in cases.items() for turn in turns.split("|")]
    turns = [turn.replace("¶", "\n").replace("<", r"\boxed{").replace(">", "}") for _, turn in pairs]
    return dict(zip(pairs, accuracy(turns, solution=[gold for gold, _ in pairs]), strict=True))


@pytest.mark.parametrize(("cases", "score"), [(RIGHT, 1.0), (WRONG, 0.0)])
def test_boxes_count_together_only_where_they_do_nothing_but_stand_side_by_side(cases, score):
    assert [pair for pair, found in scores(cases).items() if found != score] == []


LAST = {
    r"\boxed{42}": "42", r"\boxed{41}. No wait, \boxed{42}.": "42", r"\boxed{\frac{1}{2}}": r"\frac{1}{2}",
    r"\boxed{\boxed{7}}": "7", r"\boxed{\{1\}}": r"\{1\}", r"\boxed{1 \\ 2}": r"1 \\ 2", r"\boxed {42}": "42",
    r"\fbox{42}": "42", r"\boxed{}": "", r"\boxed 42.": "42", r"\boxed -3/4": "-3/4", r"\boxed C": "C",
    r"\boxed": None, r"\boxed{42} stands in \boxed as asked.": "42", r"\boxed{42}, in `\boxed{}`.": "42",
    r"\boxed{42}, as \boxed{...}": "42", r"\boxed{42}, no: \boxed 41.": "41", r"\boxed{42}, no: \boxed\{41\}": "41",
    r"\boxed{42\}}": "42", "42": None, r"\boxedness{42}": None, r"\boxed{1\}": None, r"\boxed{" * 50: None,
    r"\boxed{1} then \boxed{2": None,  # a box that was cut off takes the first back
}  # fmt: skip


@pytest.mark.parametrize(("text", "box"), LAST.items())
def test_the_last_box_counts_and_only_if_it_is_closed(text, box):
    assert last_box(text) == box


SOURCES = (
    ("box", r"\boxed{41}, no: \boxed{42}.", "42"), ("box", r"\boxed{42} and \boxed{4", None), ("box", "42", None),
    ("answer_tag", "<answer> 42 </answer>", "42"), ("answer_tag", r"<answer>So \boxed{42}.</answer>", "42"),
    ("answer_tag", "<answer>41</answer><answer>42</answer>", "42"), ("answer_tag", "42</answer>", None),
    ("answer_tag", "<answer>41</answer><answer>42", None), ("hash", "6 * 7 = 42\n#### 42\nBye.", "42"),
    ("hash", "#### 41\n#### 42", "42"), ("hash", "42", None), ("phrase", "The answer is 42. Bye.", "42"),
    ("phrase", "So the final answer is: $3.5$.", "$3.5$"), ("phrase", "**Answer:** 42", "42"),
    ("phrase", "The answer is 41. No: the answer to the problem is\n42", "42"), ("phrase", "I answered 42", None),
)  # fmt: skip


@pytest.mark.parametrize(("source", "text", "answer"), SOURCES)
def test_each_source_holds_the_last_answer(source, text, answer):
    assert final_answer(text, [source]) == answer


def test_the_first_source_that_holds_an_answer_decides():
    text = r"\boxed{41} #### 42"
    assert final_answer(text, ["box", "hash"]) == "41"
    assert final_answer(text, ["hash", "box"]) == "42"
    assert final_answer("The answer is 43.", ["box", "hash", "phrase"]) == "43"
    assert final_answer("43", ["box", "hash", "phrase"]) is None
