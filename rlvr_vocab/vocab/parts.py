"""Parts of a vocabulary that can have copies by name."""

from __future__ import annotations

from typing import Any, Literal, get_args

from rlvr_vocab.errors import UserError

Part = Literal["digits", "connectives"]
PARTS: tuple[Part, ...] = get_args(Part)
CONNECTIVES = (
    *("also", "although", "and", "as", "because", "but", "else", "finally", "first", "hence", "however", "if"),
    *("instead", "next", "now", "or", "since", "so", "still", "then", "therefore", "though", "thus", "unless"),
    *("until", "wait", "whereas", "while", "yet"),
)


def ids_of_part(part: Part, tokenizer: Any) -> tuple[int, ...]:
    """The tokens that are digits and nothing else, or one English connective, with or without a space before it.

    Raises:
        UserError: there are none.
    """
    texts = [text.strip() for text in tokenizer.batch_decode([[token] for token in range(len(tokenizer))])]
    belongs = str.isdecimal if part == "digits" else lambda text: text.lower() in CONNECTIVES
    found = tuple(token for token, text in enumerate(texts) if belongs(text))
    if not found:
        raise UserError(f"{part}: no token of the vocabulary is one of them", about="part")
    return found
