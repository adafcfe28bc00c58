"""Samples completions of several turns, in which tools answer, by the rules of TRL's `_tool_call_loop`."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Literal, NamedTuple

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.guard import USER_CODE_ERRORS, raised, run_coroutine
from rlvr_vocab.rewards.reward import content_text, turn_text
from rlvr_vocab.tools.format import Message, ToolFormat
from rlvr_vocab.tools.functions import ToolError, guarded_tools, methods_of, offered_tools
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.tokenizer import prefilled_ids

PastThinking = Literal["keep", "strip", "reencode"]


class Request(NamedTuple):
    """The turn that a sampler is asked for: the row of its batch, its number from 0, and the most ids it may have."""

    row: int
    turn: int
    context_ids: list[int]
    room: int


class SampledTurn(NamedTuple):
    """The sampled ids of a turn; finished: the model ended it itself."""

    ids: list[int]
    finished: bool


Generate = Callable[[Sequence[Request]], list[SampledTurn]]


@dataclass
class Completion:
    """One sampled answer; without tools it has one turn, and neither `messages` nor `segments`."""

    prompt_ids: list[int]
    completion_ids: list[int]  # of all turns and of the answers of tools
    turn: str  # the surface text of the assistant's last turn; empty where it calls
    finished: bool
    messages: list[Message] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)  # lengths of the runs of sampled and of given ids in turn
    environment: Any = field(default=None, repr=False, compare=False)
    tools: Sequence[Callable[..., Any]] = field(default=(), repr=False, compare=False)
    # The context of the next turn, which differs from the sampled ids by `past_thinking`.
    context_ids: list[int] = field(default_factory=list, repr=False, compare=False)

    def room(self, limit: int, context: int) -> int:
        return min(limit - len(self.completion_ids), context - len(self.context_ids))

    def add(self, ids: Sequence[int]) -> None:
        self.completion_ids += ids
        self.segments.append(len(ids))

    @property
    def turns_ids(self) -> list[tuple[list[int], list[int]]]:
        """The ids before each sampled turn, and those of the turn."""
        ids, ends = self.completion_ids, [0, *accumulate(self.segments or [len(self.completion_ids)])]
        return [([*self.prompt_ids, *ids[:start]], ids[start:end]) for start, end in [*pairwise(ends)][::2]]


@dataclass(frozen=True)
class ToolLoop:
    """Samples completions whose calls are carried out.

    `environment_factories` are by the `environment` of a row, or under None one for all rows. `max_iterations` limits
    the rounds of calls in a completion.
    """

    tool_format: ToolFormat
    tools: Sequence[Callable[..., Any]] = ()
    environment_factories: Mapping[str | None, Callable[[], Any]] | None = None
    max_iterations: int | None = None
    past_thinking: PastThinking = "keep"

    @cached_property
    def _line_breaks(self) -> frozenset[int]:
        encode = self.tool_format.tokenizer.encode
        encoded = (encode("\n" * count, add_special_tokens=False) for count in (1, 2, 3))
        return frozenset(token for ids in encoded for token in ids)

    def prompt_ids(self, prompts: Sequence[Any]) -> list[list[int]]:
        """The ids of prompts that show all tools, without what an environment adds."""
        tools = offered_tools(self.tools, self.environment_factories) or ()
        return [self.tool_format.prompt_ids(prompt, tools) for prompt in prompts]

    def complete(
        self, rows: Sequence[Mapping[str, Any]], generate: Generate, limit: int, context: int | None = None
    ) -> list[Completion]:
        """A completion, of `limit` ids at most, of the `prompt` of each row; environments are reset with its columns.

        `context` is the most ids of prompt and completion that the model takes.
        """
        started = [self.begin(row) for row in rows]
        longest = sys.maxsize if context is None else context
        going, turn = list(enumerate(started)), 0
        if (most := max(len(each.prompt_ids) for each in started)) >= longest:
            raise UserError(f"a prompt has {most} tokens with what its environment adds, and the context {context}")
        while going:
            requests = [Request(row, turn, each.context_ids, each.room(limit, longest)) for row, each in going]
            for (_, each), sampled in zip(going, generate(requests), strict=True):
                each.messages.append(self.tool_format.message(each.context_ids, sampled.ids, each.tools))
                each.add(sampled.ids)
                each.finished = sampled.finished
                each.context_ids = self._context_after(each.context_ids, sampled.ids)
            calling = [(row, each) for row, each in going if each.messages[-1].get("tool_calls")]
            may_call = self.max_iterations is None or turn < self.max_iterations
            going = [(row, each) for row, each in calling if may_call and self._answered(each, limit, longest)]
            turn += 1
        for each in started:
            each.turn = turn_text(each.messages)
        return started

    def begin(self, row: Mapping[str, Any]) -> Completion:
        """A completion without a turn: the prompt of a row with its tools, and what its environment adds."""
        prompt, environment, tools = row["prompt"], None, self.tools
        if self.environment_factories:
            several = None not in self.environment_factories
            make = self.environment_factories[row["environment"] if several else None]
            columns = {name: value for name, value in row.items() if not (several and name == "environment")}
            try:
                environment = make()
                added = environment.reset(**columns)
            except USER_CODE_ERRORS as error:
                name = getattr(getattr(make, "func", make), "__name__", "")  # of a partial
                raise UserError(f"environment {name}: {raised(error)}") from error
            if added is not None:
                prompt = [*prompt[:-1], {**prompt[-1], "content": prompt[-1]["content"] + content_text(added)}]
            tools = [*tools, *(getattr(environment, each.__name__) for each in methods_of(type(environment)))]
        prompt_ids = self.tool_format.prompt_ids(prompt, tools)
        return Completion(prompt_ids, [], "", False, environment=environment, tools=tools, context_ids=prompt_ids)

    def context_ids(self, prompt_ids: Sequence[int], ids: Sequence[int], segments: Sequence[int]) -> list[int]:
        """The ids before the next token of a recorded transcript, its earlier turns as `past_thinking` shows them."""
        context, start = list(prompt_ids), 0
        for sampled, given in zip(segments[::2], segments[1::2], strict=False):
            turn, start = ids[start : start + sampled], start + sampled + given
            context = [*self._context_after(context, turn), *ids[start - given : start]]
        return [*context, *ids[start:]]

    def _context_after(self, context_ids: list[int], ids: Sequence[int]) -> list[int]:
        layout = self.tool_format.layout
        start = len(context_ids) - len(prefilled_ids(context_ids, layout))
        past = past_turn_ids([*context_ids[start:], *ids], self.past_thinking, layout, self._line_breaks)
        return [*context_ids[:start], *past]

    def _answered(self, transcript: Completion, limit: int, context: int) -> bool:
        """Carry out the calls of the last turn; False where there is no room for the answers, or none after them."""
        answers = tool_messages(transcript.messages[-1]["tool_calls"], transcript.tools)
        ids = self.tool_format.answer_ids(answers)
        if len(transcript.completion_ids) + len(ids) > limit or len(transcript.context_ids) + len(ids) >= context:
            return False
        transcript.add(ids)
        transcript.messages += answers
        transcript.context_ids = [*transcript.context_ids, *ids]
        transcript.finished = False
        return len(transcript.completion_ids) < limit


def tool_messages(calls: Sequence[Mapping[str, Any]], tools: Sequence[Callable[..., Any]]) -> list[Message]:
    """A message with the result of each call, or its error; as in TRL those of coroutines are the last."""
    by_name = guarded_tools({tool.__name__: tool for tool in tools})
    results, waiting = list[tuple[str, Any]](), list[tuple[str, Any]]()
    for call in calls:
        function = call.get("function", call)
        name = function["name"]
        try:
            if name not in by_name:
                raise ToolError(f"Tool {name} not found.")
            result = by_name[name](**function["arguments"])
            (waiting if inspect.isawaitable(result) else results).append((name, result))
        except (ToolError, TypeError) as error:  # arguments may be anything
            results.append((name, {"error": str(error)}))

    async def all_waiting() -> list[Any]:
        return await asyncio.gather(*(result for _, result in waiting), return_exceptions=True)

    for (name, _), result in zip(waiting, run_coroutine(all_waiting()) if waiting else [], strict=True):
        results.append((name, {"error": str(result)} if isinstance(result, ToolError) else result))
    return [
        {"role": "tool", "name": name, "content": result if isinstance(result, list) else str(result)}
        for name, result in results
    ]


def past_turn_ids(
    ids: Sequence[int], past_thinking: PastThinking, layout: VocabLayout, line_breaks: frozenset[int] = frozenset()
) -> list[int]:
    """The ids of a turn as later turns see it: as they are, without copies, or without closed thoughts, their tags and
    the line breaks after them.
    """
    if past_thinking == "keep":
        return list(ids)
    if past_thinking == "reencode":
        sources, size = layout.source_ids, layout.standard_size
        return [sources[token - size] if token >= size else token for token in ids]
    kept, opened, after_thought = list[int](), None, False
    for token in ids:
        after_thought = after_thought and token in line_breaks
        if after_thought:
            continue
        if token == layout.think_open_id and opened is None:
            opened = len(kept)
        kept.append(token)
        if token == layout.think_close_id and opened is not None:
            del kept[opened:]
            opened, after_thought = None, True
    return kept
