"""The tokenizer and its chat template.

Reasoning tokens decode to surface text in any stock tool and are never encoded from text. The template renders
conversations to text, marks the start of an assistant turn, and may open the thinking.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jinja2 import TemplateError, TemplateSyntaxError

from rlvr_vocab.data.rows import Messages
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.guard import run_in_thread
from rlvr_vocab.rewards.reward import THINK_TAGS
from rlvr_vocab.text import short_text
from rlvr_vocab.vocab.layout import NO_TAG, VocabLayout
from rlvr_vocab.vocab.regions import THINKING, RegionTracker

if TYPE_CHECKING:  # seconds to import
    from transformers import PreTrainedTokenizerBase

# Private-use characters: no byte-level alphabet has them. Two that are not in the vocabulary mark copies and gaps.
_MARKERS = range(0xE000, 0xF8FF)

OpenThinking = Literal["auto", "model", "prefill"]
_QUESTION, _ANSWER = "What is three plus four?", "It is seven."
_USER = [{"role": "user", "content": _QUESTION}]
# Seconds allowed for `_AT_ONCE` conversations; rendering a thousand takes about one.
SECONDS = 30.0
_AT_ONCE = 256
# A template is a program: it refuses with a TemplateError; the others are errors that its expressions may raise.
_RAISED = (TemplateError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def load_tokenizer(folder: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer of an expanded folder.

    Not `AutoTokenizer`: for some model types (qwen2) it ignores the folder's class and picks one that rebuilds the
    decoder, so that decoded text shows markers. `TokenizersBackend` reads `tokenizer.json` unchanged.
    """
    from transformers import TokenizersBackend

    return TokenizersBackend.from_pretrained(str(folder), padding_side="left")


def add_think_tags(tokenizer: PreTrainedTokenizerBase, tags: Iterable[str]) -> dict[int, list[int]]:
    """Make each tag one id that decoding keeps; returns, for each id that was added, the ids of the tag's pieces.

    Decoding during training drops special tokens, so a tag must not be one.
    """
    from transformers import AddedToken

    pieces: dict[str, list[int]] = {}
    known = tokenizer.get_vocab()
    added = {token.content: token for token in tokenizer.added_tokens_decoder.values()}
    for tag in tags:
        if tag not in known:
            pieces[tag] = tokenizer.encode(tag, add_special_tokens=False)
        if tag not in added or added[tag].special:
            tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False)])
    return {tokenizer.convert_tokens_to_ids(tag): ids for tag, ids in pieces.items()}


def token_ids(tokenizer: PreTrainedTokenizerBase, chosen: Sequence[int | str] | re.Pattern[str]) -> tuple[int, ...]:
    """The ids of tokens, for `Expansion(source_ids=…)`: those with a pattern in their text, or ids and words in turn.

    A word stands for the tokens that are the word, with a space before it or without. Special tokens have no text.
    Raises UserError for a word that is no token, and for a pattern that no token has.
    """
    special = {token_id for token_id, token in tokenizer.added_tokens_decoder.items() if token.special}
    ids = sorted({*tokenizer.get_vocab().values()} - special)
    before = tokenizer.encode("a", add_special_tokens=False)[-1:]  # a decoder may drop the space of a first token
    decoded = tokenizer.backend_tokenizer.decode_batch([before, *([*before, token_id] for token_id in ids)])
    texts = {token_id: text[len(decoded[0]) :] for token_id, text in zip(ids, decoded[1:], strict=True)}
    if isinstance(chosen, re.Pattern):
        found = [token_id for token_id, text in texts.items() if chosen.search(text)]
        if not found:
            raise UserError(f"source_ids: no token has {chosen.pattern!r} in its text")
        return tuple(found)
    by_word: dict[str, list[int]] = {}
    for token_id, text in texts.items():
        for word in {text, text.removeprefix(" ")}:
            by_word.setdefault(word, []).append(token_id)
    missing = [word for word in chosen if isinstance(word, str) and word not in by_word]
    if missing:
        shown = ", ".join(map(repr, missing[:5])) + ", …" * (len(missing) > 5)
        raise UserError(f"source_ids: {shown}: no single token of this tokenizer; leave it out, or take a part of it")
    ids_of = [by_word[each] if isinstance(each, str) else [each] for each in chosen]
    return tuple(dict.fromkeys(token_id for found in ids_of for token_id in found))


def think_tags(tokenizer: PreTrainedTokenizerBase, layout: VocabLayout) -> tuple[str, str]:
    """The texts of the think tags; the usual ones where the layout has no ids of them."""
    ids = (layout.think_open_id, layout.think_close_id)
    return THINK_TAGS if NO_TAG in ids else tuple(tokenizer.convert_ids_to_tokens(ids))


def write_tokenizer(tokenizer: PreTrainedTokenizerBase, layout: VocabLayout, folder: Path) -> None:
    """Save the tokenizer with an entry for every row of the model."""
    tokenizer.save_pretrained(str(folder))
    with _edited_json(folder / "tokenizer_config.json") as config:
        config["tokenizer_class"] = "TokenizersBackend"
        config.pop("auto_map", None)
    if len(tokenizer) < layout.rows and layout.size:  # else it has them
        with _edited_json(folder / "tokenizer.json") as content:
            _add_reasoning_tokens(content, layout)


@contextmanager
def _edited_json(path: Path) -> Iterator[dict[str, Any]]:
    content = json.loads(path.read_text(encoding="utf-8"))
    yield content
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def _add_reasoning_tokens(content: dict[str, Any], layout: VocabLayout) -> None:
    model, decoder = content["model"], content["decoder"]
    if model["type"] != "BPE" or decoder is None:
        raise UserError(
            f"a reasoning vocabulary needs a byte-pair tokenizer with a decoder, this one is {model['type']}"
            f"{' without a decoder' if decoder is None else ''}"
        )
    vocabulary: dict[str, int] = model["vocab"]
    # Loading keeps the ids of added tokens only if the model's own vocabulary has them.
    vocabulary.update({token["content"]: token["id"] for token in content["added_tokens"]})
    string_of, used = {token_id: string for string, token_id in vocabulary.items()}, set[str]().union(*vocabulary)
    copy_mark, gap_mark = islice((mark for mark in map(chr, _MARKERS) if mark not in used), 2)
    for token_id in range(layout.standard_size):
        if token_id not in string_of:  # distinct for each id; markers alone decode to the empty string, as the gap did
            digits = f"{token_id:b}".replace("0", copy_mark).replace("1", gap_mark)
            string_of[token_id] = gap_mark + digits
            vocabulary[string_of[token_id]] = token_id
    for k, (source, copy_index) in enumerate(zip(layout.source_ids, layout.copy_indices, strict=True)):
        vocabulary[copy_mark * copy_index + string_of[source]] = layout.standard_size + k
    strip = {"type": "Replace", "pattern": {"Regex": f"[{copy_mark}{gap_mark}]"}, "content": ""}
    steps = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    content["decoder"] = {"type": "Sequence", "decoders": [strip, *steps]}


def template_text(path: Path | None) -> str | None:
    """The text of `model.chat_template`; None for the tokenizer's own template."""
    try:
        return None if path is None else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"model.chat_template={path} cannot be read: {error}") from error


def chat_ids(
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Messages | str],
    row_numbers: Sequence[int] | None = None,
    **arguments: Any,
) -> list[list[int]]:
    """The ids of conversations, or of prompts that are text; raises as `chat_texts` does."""
    if plain := [prompt for prompt in prompts if isinstance(prompt, str)]:
        return tokenizer(plain)["input_ids"]
    conversations = [prompt for prompt in prompts if not isinstance(prompt, str)]
    texts = chat_texts(tokenizer, conversations, row_numbers, **arguments)
    return tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []


def chat_texts(
    tokenizer: PreTrainedTokenizerBase,
    conversations: Sequence[Messages],
    row_numbers: Sequence[int] | None = None,
    **arguments: Any,
) -> list[str]:
    """Each conversation under the chat template, by default with the beginning of the answer.

    Raises UserError where the template does not parse, refuses a conversation, or does not finish in time; its
    message has the conversation's row in the user's file, from `row_numbers`. `arguments` go to `apply_chat_template`.
    """
    texts: list[str] = []
    arguments = {"add_generation_prompt": True, **arguments, "tokenize": False}

    def render() -> None:
        for conversation in conversations[len(texts) : len(texts) + _AT_ONCE]:
            text = tokenizer.apply_chat_template(conversation, **arguments)
            if not text:
                raise TemplateError("it makes no text of it")
            texts.append(text)

    try:
        while len(texts) < len(conversations):
            run_in_thread(render, "chat template").result(SECONDS)
    except TemplateSyntaxError as error:
        raise UserError(f"the chat template does not parse: line {error.lineno}: {error.message}") from error
    except (TimeoutError, *_RAISED) as error:
        conversation = conversations[len(texts)]
        row = "the prompt" if row_numbers is None else f"row {row_numbers[len(texts)]},"
        where = f"{row} {short_text(conversation[-1]['content'])!r}"
        if isinstance(error, TimeoutError):
            raise UserError(f"the chat template did not finish within {SECONDS:g} seconds for {where}") from error
        hint = "; a template without system messages needs dataset.system_prompt=null"
        hint *= any(message["role"] == "system" for message in conversation)
        if re.fullmatch(r"'\w+_token' is undefined", str(error)):
            hint = ": the tokenizer has none; give it one, or a template without it (model.chat_template=FILE)"
        raise UserError(f"the chat template refuses {where}: {error}{hint}") from None
    return texts


def turn_start_text(tokenizer: PreTrainedTokenizerBase, tags: tuple[str, str]) -> str:
    """The text that a chat template puts before an assistant's text, up to any think tag; empty without a template."""
    if tokenizer.chat_template is None:
        return ""
    [without] = chat_texts(tokenizer, [_USER], add_generation_prompt=False)
    [opened] = chat_texts(tokenizer, [_USER])
    if opened.startswith(without) and opened != without:
        start = opened[len(without) :]
    else:  # no generation prompt of its own: the text between the question and the answer
        answered = [*_USER, {"role": "assistant", "content": _ANSWER}]
        [turn] = chat_texts(tokenizer, [answered], add_generation_prompt=False)
        start = turn.split(_QUESTION)[-1].split(_ANSWER)[0]
    return min((start.split(tag)[0] for tag in tags), key=len)


def begins_answer(tokenizer: PreTrainedTokenizerBase, tags: tuple[str, str]) -> bool:
    """Whether a rendered prompt ends with the start of an assistant turn."""
    start, [prompt] = turn_start_text(tokenizer, tags).strip(), chat_texts(tokenizer, [_USER])
    return start != "" and start in prompt.split(_QUESTION)[-1]


def find_turn_ids(tokenizer: PreTrainedTokenizerBase, tags: tuple[str, str]) -> tuple[int, ...]:
    return tuple(tokenizer.encode(turn_start_text(tokenizer, tags), add_special_tokens=False))


def open_thinking_in_template(
    tokenizer: PreTrainedTokenizerBase, layout: VocabLayout, who: OpenThinking, *, base_knows_tag: bool
) -> None:
    """Make the template open the thinking if neither template nor model does; training and serving then prompt alike.

    `auto` adds the tag unless the template opens it already or the base has it as one token. `prefill` adds the tag
    unless it is open. Without a template nothing changes.
    """
    if tokenizer.chat_template is None:
        return
    if who == "model" or (who == "auto" and base_knows_tag) or prompt_is_thinking(tokenizer, layout):
        return
    tokenizer.chat_template += _prefill(tokenizer, layout)


def _prefill(tokenizer: PreTrainedTokenizerBase, layout: VocabLayout) -> str:
    tag = tokenizer.convert_ids_to_tokens(layout.think_open_id)
    return f"{{%- if add_generation_prompt %}}{{{{- '{tag}\\n' }}}}{{%- endif %}}"


def prefill_of(tokenizer: PreTrainedTokenizerBase, layout: VocabLayout) -> str:
    """The end of the chat template that opens the thinking, as `open_thinking_in_template` adds it; empty without."""
    text = "" if layout.think_open_id == NO_TAG else _prefill(tokenizer, layout)
    return text if text and (tokenizer.chat_template or "").endswith(text) else ""


def prompt_is_thinking(tokenizer: PreTrainedTokenizerBase, layout: VocabLayout) -> bool:
    """Whether a rendered prompt ends inside an open think tag."""
    [ids] = chat_ids(tokenizer, [_USER])
    return RegionTracker(layout, ids).region == THINKING


def prefilled_ids(prompt_ids: list[int], layout: VocabLayout) -> list[int]:
    """The ids at the end of a prompt that already belong to the assistant turn; none where no turn is open."""
    turn = list(layout.turn_ids)
    ends = range(len(prompt_ids), len(turn) - 1, -1) if turn else ()
    return next((prompt_ids[end:] for end in ends if prompt_ids[end - len(turn) : end] == turn), [])


def assistant_turn(
    tokenizer: PreTrainedTokenizerBase, layout: VocabLayout, prompt_ids: list[int], completion_ids: list[int]
) -> str:
    """Surface text of the whole assistant turn: its prefilled part, then the sampled one."""
    ids = [*prefilled_ids(prompt_ids, layout), *completion_ids]
    return tokenizer.decode(ids, skip_special_tokens=True)
