"""Scores of the form of a turn: tags, elements, boxes."""

import re

import pytest
from trl.rewards import think_format_reward

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.library.formats import boxed, think_format, xml_format, xml_tags


@pytest.mark.parametrize(
    ("turn", "reason"),
    [
        ("<think>a</think>b", "thinking, then an answer"),
        ("\n<think>\na\n</think>\n\nb", "thinking, then an answer"),
        ("<think>a", "thinking never closed"),
        ("", "thinking never closed"),
        ("<think>a</think>", "no answer after the thinking"),
        ("<think>a</think> \n", "no answer after the thinking"),
        ("a</think>b", "no opening tag"),
        ("So: <think>a</think>b", "the thinking does not come first"),
        ("<think>a<think>b</think>c", "2 opening tags"),
        ("<think>a</think>b<think>c</think>d", "2 closing tags"),
    ],
)
def test_a_turn_thinks_once_and_first_and_then_answers(turn, reason):
    [score] = think_format.explain([turn])
    assert (score.reason, score.value) == (reason, float(reason == "thinking, then an answer"))


def test_a_prefilled_opening_tag_may_be_missing_or_not():
    turns = ["a</think>b", "<think>a</think>b", "a</think>", "<think>a<think>b</think>c", "b", "a<think>b</think>c"]
    assert think_format(turns, prefilled=True) == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]


def test_think_format_agrees_with_trl_but_where_it_says_so():
    same = ["<think>a</think>b", "<think>\na\n</think>\nb", "<think>a", "b", "", "a</think>b", "x<think>a</think>b"]
    same += ["<think>a<think>b</think>c", "<think>a</think>b<think>c</think>d"]
    more = ["<think>a</think>", "<think>a</think>b</think>c"]  # theirs takes both
    theirs = think_format_reward([[{"role": "assistant", "content": turn}] for turn in [*same, *more, "\n" + same[0]]])
    assert think_format(same) == theirs[: len(same)]
    assert (think_format(more), theirs[len(same) : -1]) == ([0.0, 0.0], [1.0, 1.0])
    assert (think_format(["\n" + same[0]]), theirs[-1:]) == ([1.0], [0.0])


def test_tags_may_have_other_names():
    assert think_format(["[r]<think>[/r]x", "<think>a</think>b"], think_tags=("[r]", "[/r]")) == [1.0, 0.0]


ON_LINES = "<reasoning>\n6 * 7\nis 42\n</reasoning>\n<answer>\n42\n</answer>\n"


@pytest.mark.parametrize(
    ("turn", "loose", "strict"),
    [
        (ON_LINES, 1.0, 1.0),
        (ON_LINES.rstrip(), 1.0, 1.0),
        (ON_LINES + "\n", 1.0, 0.0),
        (ON_LINES.replace("\n<answer>", "\n\n<answer>"), 1.0, 0.0),
        ("<reasoning>a</reasoning><answer>b</answer>", 1.0, 0.0),
        ("<reasoning>\n</reasoning>\n<answer>\n</answer>\n", 1.0, 0.0),
        (ON_LINES + "Bye", 0.0, 0.0),
        ("<reasoning>a</reasoning> so <answer>b</answer>", 0.0, 0.0),
        ("<answer>b</answer><reasoning>a</reasoning>", 0.0, 0.0),
        ("<reasoning>a<answer>b</reasoning></answer>", 0.0, 0.0),
        ("<reasoning>a</reasoning><answer>b", 0.0, 0.0),
        (ON_LINES + ON_LINES, 0.0, 0.0),
        ("", 0.0, 0.0),
    ],
)
def test_two_elements_and_nothing_else(turn, loose, strict):
    assert xml_format([turn]) == [loose]
    assert xml_format([turn], strict_newlines=True) == [strict]


@pytest.mark.parametrize(
    ("turn", "value", "reason"),
    [
        (ON_LINES, 0.5, "4 of 4 tags"),
        (ON_LINES.rstrip(), 0.5, "4 of 4 tags"),
        (ON_LINES + "x" * 100, 0.4, "4 of 4 tags, 100 characters after the end"),
        (ON_LINES + "x" * 10_000, 0.0, "4 of 4 tags, 10,000 characters after the end"),
        ("<reasoning>a", 0.125, "1 of 4 tags"),
        ("<reasoning>\na\n</reasoning>\n<answer>\n", 0.375, "3 of 4 tags"),
        ("<reasoning>\na\n</reasoning>\nb\n</answer>", 0.375, "3 of 4 tags"),
        ("  <reasoning>a</reasoning> <answer>b</answer>\n\n", 0.5, "4 of 4 tags"),
        ("<reasoning>" + ON_LINES, 0.375, "3 of 4 tags"),
        ("", 0.0, "0 of 4 tags"),
    ],
)
def test_each_tag_in_its_place_earns_an_eighth(turn, value, reason):
    [score] = xml_tags.explain([turn])
    assert score.value == pytest.approx(value, abs=1e-12) and score.reason == reason


def test_tags_have_their_mark_wherever_xml_format_has_its_own():
    turns = [ON_LINES, ON_LINES + "\n\n", "<reasoning>a</reasoning><answer>b</answer>", "a <answer>b</answer>"]
    for strict in (False, True):
        formed = xml_format(turns, strict_newlines=strict)
        tags = xml_tags(turns, strict_newlines=strict)
        assert all(score == 0.5 for score, one in zip(tags, formed, strict=True) if one)
        assert all(score == 0.5 for score, one in zip(xml_tags(turns), formed, strict=True) if one)
    assert xml_tags(turns[2:3], strict_newlines=True) == [0.0]


@pytest.mark.parametrize(
    "turn",
    [
        "Sure! <reasoning>x</reasoning> <answer>42</answer> Bye",
        "<reasoning>a<reasoning>b</reasoning><answer>c</answer></answer>",
        "<answer>1</answer><reasoning>x</reasoning>\n\n<answer>2</answer>",
        "<reasoning>x</reasoning>so<answer>1</answer>",
        "<reasoning>x</reasoning>so<reasoning>x</reasoning><answer>1</answer>",
        "</reasoning><answer><reasoning></answer>",
        "<reasoning>x</reasoning><answer>1",
        "",
    ],
)
def test_a_search_finds_what_the_guides_regular_expression_finds(turn):
    found = re.search(r"<reasoning>.*?</reasoning>\s*<answer>.*?</answer>", turn, re.DOTALL)
    assert xml_format([turn], search=True) == [float(found is not None)]


def test_a_search_takes_no_longer_than_the_text_and_excludes_lines():
    assert xml_format(["<reasoning>" * 200_000 + "</reasoning>"], search=True) == [0.0]
    with pytest.raises(UserError, match="exclude each other"):
        xml_format([""], search=True, strict_newlines=True)


def test_what_follows_the_end_costs_down_to_a_bound():
    turns = [ON_LINES + "x" * size for size in (100, 1_000, 1_000_000)]
    assert xml_tags(turns, least=-1.0) == pytest.approx([0.4, -0.5, -1.0])
    assert xml_tags(turns, penalty=0.0001) == pytest.approx([0.49, 0.4, 0.0])
    with pytest.raises(UserError, match="xml_tags: penalty=-1 must be a number, at least 0"):
        xml_tags([], penalty=-1)


@pytest.mark.parametrize(
    ("turn", "reason"),
    [
        (r"\boxed{1}", "one box"),
        (r"<think>a</think>b \boxed{\frac{1}{2}} c", "one box"),
        (r"<think>\boxed{1}</think>b", "the box is in the thinking"),
        (r"<think>\boxed{1}</think>\boxed{1}", "2 boxes"),
        (r"\boxed{\boxed{1}}", "2 boxes"),
        (r"<think>\boxed{1}", "thinking never closed"),
        (r"\boxed{1", "the box is not closed"),
        (r"\boxedly{1}", "no box"),
        ("1", "no box"),
        ("", "no box"),
    ],
)
def test_one_box_stands_in_the_answer(turn, reason):
    [score] = boxed.explain([turn])
    assert (score.reason, score.value) == (reason, float(reason == "one box"))


@pytest.mark.parametrize("word", ["no", "off", 0])
def test_a_switch_takes_no_word_for_true(word):
    with pytest.raises(UserError, match=r"must be true or false"):
        think_format(["x</think>y"], prefilled=word)
    with pytest.raises(UserError, match=r"must be true or false"):
        xml_format(["x"], strict_newlines=word)
