"""A tokenizer whose reasoning tokens decode to surface text in any stock tool, and are never encoded from text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from transformers import AddedToken, PreTrainedTokenizerBase, TokenizersBackend

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.layout import VocabLayout

# Private-use characters: no byte-level alphabet has them, and `_markers` takes two that the vocabulary lacks.
_MARKER_CANDIDATES = range(0xE000, 0xF8FF)


def load_tokenizer(folder: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer of an expanded folder.

    Not `AutoTokenizer`: for some model types (qwen2) it picks a class that rebuilds the decoder and so shows the
    markers of reasoning tokens, whatever the folder says. `TokenizersBackend` reads `tokenizer.json` as it is.
    """
    return TokenizersBackend.from_pretrained(str(folder), padding_side="left")


def add_think_tags(tokenizer: PreTrainedTokenizerBase, tags: Iterable[str]) -> dict[str, list[int]]:
    """Make each tag one id that decoding keeps, and return the pieces of those that had no id of their own.

    Decoding during training drops special tokens, so a tag must not be one.
    """
    pieces: dict[str, list[int]] = {}
    known = tokenizer.get_vocab()
    added = {token.content: token for token in tokenizer.added_tokens_decoder.values()}
    for tag in tags:
        if tag not in known:
            pieces[tag] = tokenizer.encode(tag, add_special_tokens=False)
        if tag not in added or added[tag].special:
            tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False)])
    return pieces


def write_tokenizer(tokenizer: PreTrainedTokenizerBase, layout: VocabLayout, folder: Path) -> None:
    """Save the tokenizer with an entry for every row of the model.

    Raises:
        UserError: reasoning tokens were asked for and the tokenizer is not byte-pair encoding with a decoder.
    """
    tokenizer.save_pretrained(str(folder))
    _edit_json(folder / "tokenizer_config.json", _as_plain_backend)
    if layout.size:
        _edit_json(folder / "tokenizer.json", lambda content: _add_reasoning_tokens(content, layout))


def _edit_json(path: Path, edit: Any) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    edit(content)
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def _as_plain_backend(config: dict[str, Any]) -> None:
    config["tokenizer_class"] = TokenizersBackend.__name__
    config.pop("auto_map", None)


def _add_reasoning_tokens(content: dict[str, Any], layout: VocabLayout) -> None:
    model, decoder = content["model"], content["decoder"]
    if model["type"] != "BPE" or decoder is None:
        raise UserError(
            f"a reasoning vocabulary needs a byte-pair tokenizer with a decoder, this one is {model['type']}"
            f"{' without a decoder' if decoder is None else ''}"
        )
    vocabulary: dict[str, int] = model["vocab"]
    # Ids of added tokens are found again on loading only if the model's own vocabulary holds them.
    vocabulary.update({token["content"]: token["id"] for token in content["added_tokens"]})
    string_of = {token_id: string for string, token_id in vocabulary.items()}
    copy_mark, gap_mark = _markers(vocabulary)
    for token_id in range(layout.standard_size):
        if token_id not in string_of:
            string_of[token_id] = _gap_entry(token_id, copy_mark, gap_mark)
            vocabulary[string_of[token_id]] = token_id
    for k, (source, copy_index) in enumerate(zip(layout.source_ids, layout.copy_indices, strict=True)):
        vocabulary[copy_mark * copy_index + string_of[source]] = layout.standard_size + k
    strip = {"type": "Replace", "pattern": {"Regex": f"[{copy_mark}{gap_mark}]"}, "content": ""}
    steps = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    content["decoder"] = {"type": "Sequence", "decoders": [strip, *steps]}


def _markers(vocabulary: Iterable[str]) -> tuple[str, str]:
    used = set().union(*vocabulary)
    free = (chr(point) for point in _MARKER_CANDIDATES if chr(point) not in used)
    try:
        return next(free), next(free)
    except StopIteration:
        raise UserError("the tokenizer uses every private-use character: none is left to mark copies with") from None


def _gap_entry(token_id: int, copy_mark: str, gap_mark: str) -> str:
    """A string of markers alone, distinct per id and from every copy, that decodes to nothing as the gap did."""
    digits = f"{token_id:b}".replace("0", copy_mark).replace("1", gap_mark)
    return gap_mark + digits
