"""The chat template that a configuration names, and the texts that a template makes of conversations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError, TemplateSyntaxError

from rlvr_vocab.data.rows import Messages
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.deadline import Deadline, DeadlineThread, TimedOut
from rlvr_vocab.text import short_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# For `_AT_ONCE` conversations, of which a thousand take a second.
SECONDS = 30.0
_AT_ONCE = 256
_LONGEST = 10_000_000  # characters: a template may multiply texts, and no context holds so many
# A template is a program: its refusals are TemplateErrors, the others are what an expression in it may raise.
_RAISED = (TemplateError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def template_text(path: Path | None) -> str | None:
    """What `model.chat_template` holds; None where the tokenizer's own is taken."""
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"model.chat_template={path} cannot be read: {error}") from error


def chat_ids(
    tokenizer: PreTrainedTokenizerBase, conversations: Sequence[Messages], row_numbers: Sequence[int] | None = None
) -> list[list[int]]:
    """What a model is given for each conversation; raises as `chat_texts` does."""
    texts = chat_texts(tokenizer, conversations, row_numbers)
    return tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []


def chat_texts(
    tokenizer: PreTrainedTokenizerBase,
    conversations: Sequence[Messages],
    row_numbers: Sequence[int] | None = None,
    **arguments: Any,
) -> list[str]:
    """What the chat template makes of each conversation, by default with the beginning of the answer.

    `arguments` are further ones of `apply_chat_template`.

    Raises:
        UserError: the template does not parse, refuses a conversation, named by its row where that has a number, or
            does not come to an end.
    """
    texts: list[str] = []
    arguments = {"add_generation_prompt": True, **arguments, "tokenize": False}

    def render(_: object) -> None:
        for conversation in conversations[len(texts) : len(texts) + _AT_ONCE]:
            text = tokenizer.apply_chat_template(conversation, **arguments)
            if not 0 < len(text) <= _LONGEST:
                raise TemplateError(f"it makes {len(text):,} characters of it" if text else "it makes no text of it")
            texts.append(text)

    try:
        while len(texts) < len(conversations):
            DeadlineThread("chat template").call(render, Deadline(SECONDS))
    except TemplateSyntaxError as error:
        raise UserError(f"the chat template does not parse: line {error.lineno}: {error.message}") from error
    except (TimedOut, *_RAISED) as error:
        conversation = conversations[len(texts)]
        row = "the prompt" if row_numbers is None else f"row {row_numbers[len(texts)]},"
        where = f"{row} {short_text(conversation[-1]['content'])!r}"
        if isinstance(error, TimedOut):
            raise UserError(f"the chat template did not come to an end in {SECONDS:g} seconds for {where}") from error
        hint = "; one that knows no system message needs dataset.system_prompt=null"
        hint *= any(message["role"] == "system" for message in conversation)
        raise UserError(f"the chat template refuses {where}: {error}{hint}") from error
    return texts
