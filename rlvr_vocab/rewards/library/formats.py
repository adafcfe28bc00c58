"""Rewards for the form of a turn: thinking and answer in their tags, one box in the answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.parameters import number, switch
from rlvr_vocab.rewards.reward import Score, reward
from rlvr_vocab.rewards.turns import THINK_TAGS, after_thinking, turn_text
from rlvr_vocab.text import pluralize
from rlvr_vocab.verify.boxed_answer import boxes_opened, last_box

# Matched against texts that hold each tag once, and linear on those.
_XML = re.compile(r"\s*<reasoning>.*</reasoning>\s*<answer>.*</answer>\s*", re.DOTALL)
_XML_ON_LINES = re.compile(r"<reasoning>\n.*\n</reasoning>\n<answer>\n.*\n</answer>\n?", re.DOTALL)
_XML_TAGS = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")
_BETWEEN = re.compile(r"</reasoning>\s*<answer>")
# As the tutorial has them: each on a line of its own.
_XML_LINES = ("<reasoning>\n", "\n</reasoning>\n", "\n<answer>\n", "\n</answer>")


def think_score(turn: str, think_tags: tuple[str, str], prefilled: bool) -> Score:
    """Whether a turn is one think block and an answer."""
    opened, closed = think_tags
    opens, closes = turn.count(opened), turn.count(closed)
    if closes != 1:
        return Score(0.0, "thinking never closed" if closes == 0 else f"{closes} closing tags")
    if opens > 1:
        return Score(0.0, f"{opens} opening tags")
    if opens == 0 and not prefilled:
        return Score(0.0, "no opening tag")
    if opens == 1 and not turn.lstrip().startswith(opened):
        return Score(0.0, "the thinking does not come first")
    if not turn.partition(closed)[2].strip():
        return Score(0.0, "no answer after the thinking")
    return Score(1.0, "thinking, then an answer")


def xml_score(turn: str, strict_newlines: bool) -> Score:
    """Whether a turn is a reasoning element and an answer element and nothing else."""
    for tag in _XML_TAGS:
        if turn.count(tag) != 1:
            return Score(0.0, f"{pluralize(turn.count(tag), 'time')} {tag}")
    pattern = _XML_ON_LINES if strict_newlines else _XML
    well_formed = pattern.fullmatch(turn)
    return Score(1.0, "both elements, nothing else") if well_formed else Score(0.0, "tags or text out of place")


def xml_search_score(turn: str) -> Score:
    """Whether a turn has a reasoning element and after it an answer element, whatever stands around them.

    As `re.search("<reasoning>.*?</reasoning>\\s*<answer>.*?</answer>", turn, re.DOTALL)`, in linear time.
    """
    start = turn.find(_XML_TAGS[0])
    between = _BETWEEN.search(turn, start + len(_XML_TAGS[0])) if start >= 0 else None
    if between is None or _XML_TAGS[3] not in turn[between.end() :]:
        return Score(0.0, "no reasoning element with an answer element after it")
    return Score(1.0, "both elements")


def xml_tags_score(turn: str, strict_newlines: bool, penalty: float, least: float) -> Score:
    """How many of the four tags stand where they should, less a penalty for what follows the last."""
    wanted = _XML_LINES if strict_newlines else _XML_TAGS
    tags = sum(turn.count(tag) == 1 for tag in wanted)
    _, end, after = turn.rpartition(wanted[-1])
    extra = len(after.removeprefix("\n") if strict_newlines else after.strip()) if end else 0
    reason = f"{tags} of 4 tags" + (f", {pluralize(extra, 'character')} after the end" if extra else "")
    return Score(max(least, 0.125 * tags - penalty * extra), reason)


def box_score(turn: str, think_tags: tuple[str, str]) -> Score:
    """Whether a turn has one box, in its answer."""
    answer = after_thinking(turn, think_tags)
    if answer is None:
        return Score(0.0, "thinking never closed")
    boxes = boxes_opened(turn)
    if boxes != 1:
        return Score(0.0, f"{pluralize(boxes, 'box', 'boxes')}" if boxes else "no box")
    if not boxes_opened(answer):
        return Score(0.0, "the box is in the thinking")
    return Score(1.0, "one box") if last_box(answer) is not None else Score(0.0, "the box is not closed")


@reward(is_format=True, aliases=("think_format_reward",))  # TRL's name
def think_format(
    completions: Sequence[Any],
    prefilled: bool = False,
    think_tags: tuple[str, str] = THINK_TAGS,
    **_columns: Any,
) -> list[Score]:
    r"""1 where a turn thinks once, first of all, stops thinking, and then says something; 0 where not.

    TRL's `think_format_reward` asks for less: it takes an empty answer and further closing tags, and no white space
    before the opening tag. Where the chat template writes the opening tag, it is 0 for ever (TRL issue 6966).

    Args:
        prefilled: whether the opening tag may be missing. For a plain TRL trainer with a chat template that ends in
            the opening tag, where completions begin inside the thinking; `rlvr_vocab`'s own trainer hands over the
            whole turn, so leave it False there.

    Example:
        >>> turns = ["<think>\n6 * 7\n</think>\n42", "<think>6 * 7</think>", "6 * 7</think>42"]
        >>> think_format(turns)
        [1.0, 0.0, 0.0]
        >>> think_format(turns, prefilled=True)
        [1.0, 0.0, 1.0]
    """
    prefilled = switch("think_format", "prefilled", prefilled)
    return [think_score(turn_text(completion), think_tags, prefilled) for completion in completions]


@reward(is_format=True, answer_in="xml")
def xml_format(
    completions: Sequence[Any], strict_newlines: bool = False, search: bool = False, **_columns: Any
) -> list[Score]:
    r"""1 where a turn is `<reasoning>…</reasoning>`, then `<answer>…</answer>`, and nothing else; 0 where not.

    Each tag stands exactly once; around and between the two elements there is only white space. From the format
    rewards of Will Brown's GRPO demonstration (`grpo_demo.py`), whose patterns do not match across lines.

    Args:
        strict_newlines: whether each tag has to stand on a line of its own, without empty lines between the elements,
            as in that demonstration. The line break at the very end may be missing.
        search: whether the elements may stand anywhere in the turn, as many guides look for them.

    Raises:
        UserError: both are asked for.

    Example:
        >>> turns = ["<reasoning>\n6 * 7\n</reasoning>\n<answer>\n42\n</answer>\n",
        ...          "<reasoning>6 * 7</reasoning> <answer>42</answer>", "<answer>42</answer>"]
        >>> xml_format(turns)
        [1.0, 1.0, 0.0]
        >>> xml_format(turns, strict_newlines=True)
        [1.0, 0.0, 0.0]
        >>> xml_format(["Sure! " + turns[1]], search=True)
        [1.0]
    """
    strict_newlines = switch("xml_format", "strict_newlines", strict_newlines)
    if switch("xml_format", "search", search):
        if strict_newlines:
            raise UserError("xml_format: strict_newlines=true and search=true exclude each other: set one")
        return [xml_search_score(turn_text(completion)) for completion in completions]
    return [xml_score(turn_text(completion), strict_newlines) for completion in completions]


@reward(full_mark=0.5, is_format=True, answer_in="xml")
def xml_tags(
    completions: Sequence[Any],
    penalty: float = 0.001,
    least: float = 0.0,
    strict_newlines: bool = False,
    **_columns: Any,
) -> list[Score]:
    r"""Partial credit on the way to `xml_format`: 0.125 a tag in its place, less 0.001 a character after the end.

    A tag is in its place where it stands exactly once. From `count_xml` of Will Brown's GRPO demonstration
    (`grpo_demo.py`), which wants each on a line of its own, charges what follows the end twice, charges the whole text
    where the last line break is missing, and knows no lower bound.

    Args:
        penalty: what a character after `</answer>` costs, white space at both ends aside.
        least: the lowest score.
        strict_newlines: whether each tag has to stand on a line of its own, as for `xml_format`.

    Example:
        >>> turn = "<reasoning>\n6 * 7\n</reasoning>\n<answer>\n42\n</answer>\n"
        >>> xml_tags([turn, turn + "Bye!", "<reasoning>6 * 7"])
        [0.5, 0.496, 0.125]
    """
    strict_newlines = switch("xml_tags", "strict_newlines", strict_newlines)
    penalty = number("xml_tags", "penalty", penalty, least=0)
    least = number("xml_tags", "least", least, most=0.5)
    return [xml_tags_score(turn_text(completion), strict_newlines, penalty, least) for completion in completions]


@reward(is_format=True, answer_in="box")
def boxed(completions: Sequence[Any], think_tags: tuple[str, str] = THINK_TAGS, **_columns: Any) -> list[Score]:
    r"""1 where a turn has exactly one box, closed, and has it in the answer; 0 where not.

    Example:
        >>> boxed(["<think>6 * 7</think>\\boxed{42}", "<think>\\boxed{42}</think>42", "\\boxed{4} or \\boxed{2}"])
        [1.0, 0.0, 0.0]
    """
    return [box_score(turn_text(completion), think_tags) for completion in completions]
