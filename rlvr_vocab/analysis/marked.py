"""Stretches of text as each kind of document shows them: what is a copy can be told, and nothing is obeyed."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape

from rlvr_vocab.visible_text import visible_character
from rlvr_vocab.vocab.marking import Stretch

# Where there is no colour, reasoning tokens stand between these.
OPEN_MARK, CLOSE_MARK = "⟦", "⟧"
# Copies past the last colour take the first one again.
NUMBER_OF_COLOURS = 6


def readable(text: str) -> str:
    r"""Text with what a screen would hide or obey made visible; line feeds stay what they are.

    >>> readable("a\n\x1b[2Jb\u202e") == "a\n␛[2Jb<U+202E>"
    True
    """
    if text.isprintable():
        return text
    return "".join(each if each == "\n" else visible_character(each) for each in text)


def colour_of(multiplicity: int) -> int:
    """Which of the colours, from 1, shows an m-th copy."""
    return (multiplicity - 1) % NUMBER_OF_COLOURS + 1


def as_plain(stretches: Iterable[Stretch]) -> str:
    """Text for where there is no colour: the marks around what is not standard, with its number from the 2nd copy on.

    >>> as_plain([Stretch("a", 0), Stretch("b", 1), Stretch("c", 2)])
    'a⟦b⟧⟦2:c⟧'
    """
    return "".join(
        f"{OPEN_MARK}{'' if each.multiplicity == 1 else f'{each.multiplicity}:'}{readable(each.text)}{CLOSE_MARK}"
        if each.multiplicity
        else readable(each.text)
        for each in stretches
    )


def as_html(stretches: Iterable[Stretch]) -> Markup:
    """Escaped text, a `<span class="m1" title="copy 1">` around first copies, and so on."""
    return Markup("").join(
        Markup('<span class="m{}" title="copy {}">{}</span>').format(
            colour_of(each.multiplicity), each.multiplicity, escape(readable(each.text))
        )
        if each.multiplicity
        else escape(readable(each.text))
        for each in stretches
    )
