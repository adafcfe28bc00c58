"""Text for people: counts and lists, the nearest known word, control characters made visible."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher


def pluralize(count: float, thing: str, things: str = "") -> str:
    """A number with its noun.

    Args:
        thing: for one; `things`: for any other number, where it is not `thing` with an s.

    Example:
        >>> pluralize(1, "row"), pluralize(2000, "row"), pluralize(0, "is", "are")
        ('1 row', '2,000 rows', '0 are')
    """
    return f"{count:,} {thing if count == 1 else things or f'{thing}s'}"


def listed(names: Iterable[object]) -> str:
    """Names as a sentence has them: `a`, `a and b`, `a, b and c`."""
    *earlier, last = map(str, names)
    return f"{', '.join(earlier)} and {last}" if earlier else last


def rows_in_words(row_numbers: Sequence[int], most: int = 3) -> str:
    """Example: `row 3`, `rows 3, 17 and 20`, `rows 3, 17, 20 and 5 more`."""
    more = [f"{len(row_numbers) - most:,} more"] if len(row_numbers) > most else []
    return f"row{'s' if len(row_numbers) > 1 else ''} {listed([*row_numbers[:most], *more])}"


CLOSE_ENOUGH = 0.6
BEGINNING_COUNTS = 0.9  # qwen4 is close to qwen3_0.6b, though half of the letters are missing


def similarity(word: str, known: str) -> float:
    return SequenceMatcher(None, word.lower(), known.lower()).ratio()


def nearest_word(word: str, known: Iterable[str], cutoff: float = CLOSE_ENOUGH) -> str | None:
    """The known word that is most similar, or begins most similarly; None where none reaches `cutoff` (0 to 1)."""

    def score(candidate: str) -> tuple[float, float]:
        whole = similarity(word, candidate)
        return max(whole, BEGINNING_COUNTS * similarity(word, candidate[: len(word)])), whole

    ranked = sorted(known, key=score, reverse=True)
    return ranked[0] if ranked and score(ranked[0])[0] >= cutoff else None


def nearest_keys(key: str, known: Iterable[str]) -> list[str]:
    """The dotted keys most like `key`, by last part or as a whole; several where that is ambiguous."""
    known = list(known)
    last = key.rpartition(".")[2]
    same_last = [candidate for candidate in known if candidate.rpartition(".")[2] == last]
    if same_last:
        by_likeness = sorted(same_last, key=lambda candidate: similarity(key, candidate), reverse=True)
        return sorted(by_likeness, key=lambda candidate: not candidate.startswith("training."))[:3]

    def score(candidate: str) -> tuple[float, float]:
        whole = similarity(key, candidate)
        return max(whole, similarity(last, candidate.rpartition(".")[2])), whole

    ranked = sorted(known, key=score, reverse=True)
    return ranked[:1] if ranked and score(ranked[0])[0] >= CLOSE_ENOUGH else []


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing."""
    nearest = nearest_word(word, known)
    return f"; did you mean {nearest}?" if nearest else ""


def nearest_and_all(word: str, known: Iterable[str]) -> str:
    """`; did you mean X? Choices: A, X, Z`, for a short list."""
    known = list(known)
    end = did_you_mean(word, known) or "."
    return f"{end} Choices: {', '.join(known)}" if known else end


# Unicode draws the characters below U+0020 as pictures, in their order, from here on.
CONTROL_PICTURES = 0x2400
LAST_CONTROL = 0x1F
LINE_BREAK = "⏎\n"
# They turn the direction of the text around them, beyond their own place; a class of a regular expression.
TURNING = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"


def visible_text(text: str) -> str:
    r"""The text with pictures for control characters and code points for others that do not show.

    A line feed is drawn and still breaks the line.

    Example:
        >>> visible_text("a\tb\x1b[31m\u200b") == "a␉b␛[31m<U+200B>"
        True
    """
    if text.isprintable():
        return text
    return "".join(map(visible_character, text))


def writable(text: str) -> str:
    r"""The text as UTF-8 can write it: half a surrogate pair becomes its escape.

    >>> writable("a\ud800é") == "a\\ud800é"
    True
    """
    return text.encode("utf-8", errors="backslashreplace").decode("utf-8")


def visible_lines(text: str) -> str:
    r"""As `visible_text`, but line feeds stay as they are.

    >>> visible_lines("a\n\x1b[2Jb\u202e") == "a\n␛[2Jb<U+202E>"
    True
    """
    return "\n".join(map(visible_text, text.split("\n")))


def visible_character(character: str) -> str:
    if character == "\n":
        return LINE_BREAK
    if character.isprintable():
        return character
    code = ord(character)
    return chr(CONTROL_PICTURES + code) if code <= LAST_CONTROL else f"<U+{code:04X}>"


def short_text(value: object, limit: int = 60) -> str:
    """A value on one line, cut at `limit` characters, control characters made visible."""
    line = visible_text(" ".join(str(value).split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def printable(text: str, longest: int) -> str:
    r"""A text on one line, its middle left out where it is too long, what a terminal would obey or not show escaped.

    >>> print(printable("a\n\x1b[2Jb", 100), printable("0123456789", 4))
    a\n\x1b[2Jb 01 … 6 characters … 89
    """
    if len(text) > longest:
        half = longest // 2
        text = f"{text[:half]} … {len(text) - 2 * half} characters … {text[-half:]}"
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )
