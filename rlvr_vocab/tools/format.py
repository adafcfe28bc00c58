"""How a chat template writes tools, calls and answers: the message of a call, and the ids of a tool's answer.

The words of a tool neither open nor close a region, nor begin a turn: they are encoded without control tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

import trl.chat_template_utils as trl_templates
from tokenizers import Tokenizer

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.reward import content_text
from rlvr_vocab.text import writable
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.tokenizer import assistant_turn, chat_texts, prefill_of, think_tags, turn_start_text

if TYPE_CHECKING:  # seconds to import
    from transformers import PreTrainedTokenizerBase

Message = dict[str, Any]

_CALL: dict[str, Any] = {"type": "function", "function": {"name": "dummy", "arguments": {"of": "no matter"}}}
_ASKED: list[Any] = [{"role": "user", "content": "dummy"}, {"role": "assistant", "content": "", "tool_calls": [_CALL]}]
_UNSAFE = "{'error': 'the result begins a turn'}"  # in place of words that no other ids spell
_MARK = "answer{}of{}no{}matter"  # stands for a tool's words in a rendered text
# The beginning of a message that has one of these names is the template's own.
_PLAIN_NAME = re.compile(r"[\w.-]+")


class ToolFormat:
    """The tool turns of a tokenizer's chat template, whose `response_template` is set to the parser of its calls.

    `chat_template` renders a conversation so that it begins as the same one without its last messages; None for the
    tokenizer's own. Raises UserError for a template that cannot show tools, or whose calls no parser reads.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, layout: VocabLayout, template: Mapping[str, Any]) -> None:
        self.tokenizer, self.layout = tokenizer, layout
        with without_prefill(tokenizer, layout) as prefill:
            if not trl_templates.supports_tool_calling(tokenizer):
                raise UserError("tools: the chat template shows no tool calls: set model.chat_template, or no tools")
            own = trl_templates.is_chat_template_prefix_preserving(tokenizer)
            try:
                bare = tokenizer.chat_template if own else trl_templates.get_training_chat_template(tokenizer)
            except ValueError as error:
                raise UserError(
                    "tools: the chat template shows earlier turns in another way once a tool has answered, and TRL has "
                    "no training template for it: set model.chat_template"
                ) from error
            _set_parser(tokenizer, bare, turn_start_text(tokenizer, think_tags(tokenizer, layout)))
        self.chat_template = None if own else f"{bare}{prefill}"
        self._rendering = {"chat_template": self.chat_template, **template}

    def prompt_ids(self, messages: list[Message], tools: Sequence[Any]) -> list[int]:
        """The ids of a prompt with its tools, and the start of the assistant's turn."""
        [text] = chat_texts(self.tokenizer, [messages], tools=list(tools) or None, **self._rendering)
        return self._encoded(text)

    def message(self, context_ids: list[int], ids: list[int], tools: Sequence[Any] = ()) -> Message:
        """The message of a sampled turn, with the text that the template prefilled."""
        parsed = trl_templates.parse_response(self.tokenizer, ids, prefix=context_ids, tools=list(tools))
        return self.with_whole_turn(assistant_turn(self.tokenizer, self.layout, context_ids, ids), parsed)

    def with_whole_turn(self, turn: str, parsed: Message) -> Message:
        """A parsed message with the text of its turn, thinking too, up to the calls that were parsed from it."""
        calls, said = parsed.get("tool_calls"), content_text(parsed.get("content"))
        if not calls:
            return {"role": "assistant", "content": turn}
        close = think_tags(self.tokenizer, self.layout)[1]
        after_thinking = turn.rfind(close) + len(close) if close in turn else 0
        end = turn.find(said, after_thinking) + len(said)
        return {"role": "assistant", "content": turn[:end], "tool_calls": calls}

    def answer_ids(self, answers: Sequence[Message]) -> list[int]:
        """The ids between two turns; those of TRL's `_get_tool_suffix_ids`, but for words that hold control tokens."""
        answers = [self._plain(answer) for answer in answers]
        marked = [{**answer, "content": _MARK.replace("{}", str(place))} for place, answer in enumerate(answers)]
        ids, text_of_marks = self._encoded(self._rendered(answers)), self._rendered(marked)
        controls = self._controls(self._encoded(text_of_marks))
        if self._controls(ids) == controls:
            return ids
        for pieces in (self._in_ordinary_tokens, self._in_characters):
            ids = self._spelled(answers, marked, text_of_marks, pieces)
            if self._controls(ids) == controls:
                return ids
        return self._encoded(self._rendered([{**answer, "content": _UNSAFE} for answer in answers]))

    @staticmethod
    def _plain(answer: Message) -> Message:
        """A message that can be encoded; a name that the model made up may hold control tokens."""
        name, text = answer.get("name", ""), writable(content_text(answer["content"]))
        return {**answer, "name": name if _PLAIN_NAME.fullmatch(name) else "unknown", "content": text}

    def _rendered(self, answers: Sequence[Message]) -> str:
        """The text that the template adds to a turn that called, after the token that ends it."""
        call = {"type": "function", "function": {"name": answers[0]["name"], "arguments": {}}}
        asked = [_ASKED[0], {**_ASKED[1], "tool_calls": [call]}]
        [before] = chat_texts(self.tokenizer, [asked], **{**self._rendering, "add_generation_prompt": False})
        [whole] = chat_texts(self.tokenizer, [[*asked, *answers]], **self._rendering)
        end = self.tokenizer.eos_token
        if end and end in before:  # a line break after it is not sampled
            before = before[: before.rfind(end) + len(end)]
        return whole[len(before) :]

    def _encoded(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False)

    def _controls(self, ids: list[int]) -> list[int]:
        """The control tokens among ids, and -1 for each place where a turn begins."""
        turn = list(self.layout.turn_ids)
        begins = [place + len(turn) - 1 for place in range(len(ids)) if turn and ids[place : place + len(turn)] == turn]
        added = self.tokenizer.added_tokens_decoder
        return [token if token in added else -1 for place, token in enumerate(ids) if token in added or place in begins]

    def _spelled(self, answers: Sequence[Message], marked: list[Message], text_of_marks: str, pieces: Any) -> list[int]:
        """The template's own words as ever, and the words of each tool in `pieces`."""
        ids, rest = list[int](), text_of_marks
        for place, answer in enumerate(answers):
            mark = marked[place]["content"]
            before, _, rest = rest.partition(mark)
            written = self._rendered([*marked[:place], answer, *marked[place + 1 :]])
            start, _, end = text_of_marks.partition(mark)
            ids += self._encoded(before) + pieces(written[len(start) : len(written) - len(end)])
        return ids + self._encoded(rest)

    def _in_ordinary_tokens(self, text: str) -> list[int]:
        return self._without_added_tokens.encode(text, add_special_tokens=False).ids

    def _in_characters(self, text: str) -> list[int]:
        return [token for character in text for token in self._in_ordinary_tokens(character)]

    @cached_property
    def _without_added_tokens(self) -> Tokenizer:
        own = self.tokenizer.backend_tokenizer
        plain: Any = Tokenizer(own.model)
        plain.normalizer, plain.pre_tokenizer = own.normalizer, own.pre_tokenizer
        return plain


@contextmanager
def without_prefill(tokenizer: PreTrainedTokenizerBase, layout: VocabLayout) -> Iterator[str]:
    """Inside the block the template lacks the think tag that `expand` put at its end: TRL compares whole templates."""
    own, prefill = tokenizer.chat_template, prefill_of(tokenizer, layout)
    tokenizer.chat_template = own.removesuffix(prefill) if own else own
    try:
        yield prefill
    finally:
        tokenizer.chat_template = own


def _set_parser(tokenizer: PreTrainedTokenizerBase, chat_template: str, turn_start: str) -> None:
    """Set the parser of the template's calls: the tokenizer's own, TRL's, or another of TRL's that reads them back."""
    if getattr(tokenizer, "response_template", None) is not None:
        return
    with suppress(ValueError):  # it knows templates by their whole text
        trl_templates.add_response_schema(tokenizer)
        return
    parsers = [value for value in vars(trl_templates).values() if isinstance(value, dict) and "fields" in value]
    [asked] = chat_texts(tokenizer, [_ASKED[:1]], chat_template=chat_template)
    [called] = chat_texts(tokenizer, [_ASKED], chat_template=chat_template, add_generation_prompt=False)
    context, ids = (tokenizer.encode(text, add_special_tokens=False) for text in (asked, called.removeprefix(asked)))
    for parser in parsers:
        fields = {name: value for name, value in parser.items() if not name.startswith("start_anchor")}
        tokenizer.response_template = {**fields, "start_anchor": turn_start}
        said = trl_templates.parse_response(tokenizer, ids, prefix=context)
        if said.get("tool_calls") == [_CALL] and not said["content"].strip():
            return
    tokenizer.response_template = None
    raise UserError("tools: no parser knows the calls of the chat template: set tokenizer.response_template")
