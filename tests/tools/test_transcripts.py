"""What later turns see of earlier thoughts, and calls that a sampler's turns make."""

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.tools.format import ToolFormat
from rlvr_vocab.tools.transcripts import SampledTurn, ToolLoop, past_turn_ids, tool_messages
from rlvr_vocab.training.models.tiny import CHAT_TEMPLATE
from rlvr_vocab.vocab.layout import VocabLayout
from tests.tools.test_format import made

OPEN, CLOSE, BREAK = 8, 9, 7  # standard ids are 0 … 9; 10 … 14 copy 0 … 4
LAYOUT = VocabLayout(10, (0, 1, 2, 3, 4), OPEN, CLOSE, (5,), (OPEN, CLOSE))
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": %s}}\n</tool_call><|im_end|>'


@pytest.mark.parametrize(
    ("turn", "stripped", "reencoded"),
    [
        ([OPEN, 11, 3, CLOSE, BREAK, 2, 6], [2, 6], [OPEN, 1, 3, CLOSE, BREAK, 2, 6]),
        ([1, OPEN, CLOSE, 2, OPEN, OPEN, 14, CLOSE, 6], [1, 2, 6], [1, OPEN, CLOSE, 2, OPEN, OPEN, 4, CLOSE, 6]),
        ([BREAK, CLOSE, BREAK, 2], [BREAK, CLOSE, BREAK, 2], [BREAK, CLOSE, BREAK, 2]),
        ([OPEN, 10, CLOSE, OPEN, 12, 6], [OPEN, 12, 6], [OPEN, 0, CLOSE, OPEN, 2, 6]),
    ],
    ids=["closed", "several", "never opened", "the last one never closed"],
)
def test_later_turns_see_a_turn_whole_without_its_thoughts_or_without_copies(turn, stripped, reencoded):
    seen = {how: past_turn_ids(turn, how, LAYOUT, frozenset({BREAK})) for how in ("keep", "strip", "reencode")}
    assert seen == {"keep": turn, "strip": stripped, "reencode": reencoded}


def add(a: int) -> str:
    """Add one.

    Args:
        a: a number
    """
    return f"{a + 1} <think>"


class Counter:
    """Begins at `start`, and adds up."""

    def reset(self, start: int, **row) -> str:
        self.total = start
        return f" Begin at {start}."

    def add(self, a: int) -> int:
        """Add to the total.

        Args:
            a: a number
        """
        self.total += a
        return self.total


def loop_of(copies=(), **given):
    tokenizer, layout = made(CHAT_TEMPLATE, words=(), copies=copies, prefilled=True)
    return tokenizer, ToolLoop(ToolFormat(tokenizer, layout, {}), **given)


def said(tokenizer, texts, contexts):
    """A sampler whose nth turn is the nth text."""

    def generate(requests):
        contexts.extend(tokenizer.decode(request.context_ids) for request in requests)
        return [SampledTurn(tokenizer.encode(texts[request.turn])[: request.room], True) for request in requests]

    return generate


@pytest.mark.parametrize(("past_thinking", "right"), [("keep", 6), ("strip", 3), ("reencode", 3)])
def test_a_channel_of_copies_across_a_call_ends_where_later_turns_see_none(past_thinking, right):
    """A policy that notes whether a number is odd by a copy, and after its call reads it there."""
    tokenizer, standard = loop_of()[0], loop_of()[0].encode("so")
    copies = tuple(standard)
    tokenizer, loop = loop_of(copies=copies, tools=[add], past_thinking=past_thinking)

    def policy(requests):
        turns = []
        for request in requests:
            noted = any(token >= len(tokenizer) for token in request.context_ids)
            odd = int(tokenizer.decode(request.context_ids).split("?")[0][-1]) % 2
            thought = [len(tokenizer)] if odd else standard[:1]
            text = f"</think>{CALL % 1}" if request.turn == 0 else f"</think>{'odd' if noted else 'even'}<|im_end|>"
            turns.append(SampledTurn([*(() if request.turn else thought), *tokenizer.encode(text)], True))
        return turns

    rows = [{"prompt": [{"role": "user", "content": f"{number}?"}]} for number in range(6)]
    last_turns = [each.messages[-1]["content"] for each in loop.complete(rows, policy, 900)]
    expected = [f"<think>\n</think>{'odd' if number % 2 else 'even'}" for number in range(6)]
    assert sum(turn == of_channel for turn, of_channel in zip(last_turns, expected, strict=True)) == right


@pytest.mark.parametrize("past_thinking", ["keep", "strip"])
def test_a_turn_sees_what_came_before_it_and_the_completion_keeps_what_was_sampled(past_thinking):
    tokenizer, loop = loop_of(tools=[add], past_thinking=past_thinking)
    contexts, texts = [], [f"one</think>\n{CALL % 1}", f"two</think>{CALL % '[]'}", "three</think>5<|im_end|>"]
    [found] = loop.complete([{"prompt": [{"role": "user", "content": "1?"}]}], said(tokenizer, texts, contexts), 900)
    assert found.messages[1]["content"] == "2 <think>"
    whole = tokenizer.decode(found.prompt_ids + found.completion_ids)
    assert found.messages[1]["name"] == "add" and "error" in found.messages[3]["content"]
    assert found.messages[-1]["content"] == "<think>\nthree</think>5" and found.finished
    assert found.segments[::2] == [len(tokenizer.encode(text)) for text in texts]
    assert sum(found.segments) == len(found.completion_ids) and whole.count("</think>") == 3
    before = [whole[: whole.index(text)] for text in texts]
    if past_thinking == "strip":
        before = [text.replace("<think>\none</think>\n", "").replace("<think>\ntwo</think>", "") for text in before]
    assert contexts == before


def test_each_row_acts_in_an_environment_of_its_own():
    tokenizer, loop = loop_of(environment_factories={None: Counter})
    rows = [{"prompt": [{"role": "user", "content": "Go."}], "start": start, "other": 0} for start in (3, 40)]
    contexts, texts = [], [f"</think>{CALL % 2}", f"</think>{CALL % 10}", "done<|im_end|>"]
    found = loop.complete(rows, said(tokenizer, texts, contexts), 900)
    assert [each.environment.total for each in found] == [15, 52] and "Go. Begin at 40." in contexts[1]
    with pytest.raises(UserError, match=r"environment Counter: raised TypeError: .*argument: .start."):
        loop.complete([{"prompt": rows[0]["prompt"]}], said(tokenizer, texts, []), 900)


@pytest.mark.parametrize(
    ("limit", "kept"),
    [(20, 0), (110, 1), (118, 2), (150, 2), (236, 4), (300, 4), (700, 5)],
)
def test_turns_are_cut_at_the_limit_of_a_completion_and_answers_are_given_whole(limit, kept):
    tokenizer, loop = loop_of(tools=[add])
    texts = [f"</think>{CALL % 1}", f"</think>{CALL % 2}", "long" * 100]
    asked = [{"prompt": [{"role": "user", "content": "1?"}]}]
    [whole], [found] = (loop.complete(asked, said(tokenizer, texts, []), most) for most in (9_000, limit))
    assert whole.segments[:4] == [65, 53, 65, 53] and found.segments[:kept] == whole.segments[:kept]
    left = limit - sum(whole.segments[:kept])
    assert found.segments[kept:] == ([left] if kept % 2 == 0 and left else [])
    assert found.completion_ids == whole.completion_ids[: len(found.completion_ids)] and len(found.messages) == len(
        found.segments
    )


def test_a_call_that_is_none_gets_an_error():
    calls = [
        {"type": "function", "function": {"name": name, "arguments": given}} for name, given in (("add", [1]), ([], {}))
    ]
    contents = [message["content"] for message in tool_messages([*calls, {"type": "code", "name": "x"}], [add])]
    assert len(contents) == 3 and all(content.startswith("{'error'") for content in contents)
