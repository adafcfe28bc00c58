"""Text for people: counts and lists, the nearest known word, control characters made visible."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher


def pluralize(count: float, thing: str, things: str = "") -> str:
    """A number with its noun; `things` is the plural where it is not `thing` with an s.

    >>> pluralize(1, "row"), pluralize(2000, "row"), pluralize(0, "is", "are")
    ('1 row', '2,000 rows', '0 are')
    """
    return f"{count:,} {thing if count == 1 else things or f'{thing}s'}"


def listed(names: Iterable[object]) -> str:
    """Names as a sentence has them: `a`, `a and b`, `a, b and c`."""
    *earlier, last = map(str, names)
    return f"{', '.join(earlier)} and {last}" if earlier else last


def rows_in_words(row_numbers: Sequence[int], most: int = 3) -> str:
    """`row 3`, `rows 3, 17 and 20`, `rows 3, 17, 20 and 5 more`"""
    more = [f"{len(row_numbers) - most:,} more"] if len(row_numbers) > most else []
    return f"row{'s' if len(row_numbers) > 1 else ''} {listed([*row_numbers[:most], *more])}"


_CLOSE_ENOUGH = 0.6
_PREFIX_WEIGHT = 0.9  # qwen4 is close to qwen3_0.6b, though half of the letters are missing


def _similarity(word: str, known: str) -> float:
    return SequenceMatcher(None, word.lower(), known.lower()).ratio()


def nearest_word(word: str, known: Iterable[str], cutoff: float = _CLOSE_ENOUGH) -> str | None:
    """The known word that is most similar, or begins most similarly; None where none reaches `cutoff` (0 to 1)."""

    def score(candidate: str) -> tuple[float, float]:
        whole = _similarity(word, candidate)
        return max(whole, _PREFIX_WEIGHT * _similarity(word, candidate[: len(word)])), whole

    best = max(known, key=score, default=None)
    return best if best is not None and score(best)[0] >= cutoff else None


def nearest_keys(key: str, known: Iterable[str]) -> list[str]:
    """The dotted keys most like `key`, by last part or as a whole; up to three where that is ambiguous."""
    known = list(known)
    last = key.rpartition(".")[2]
    same_last = [candidate for candidate in known if candidate.rpartition(".")[2] == last]
    if same_last:
        return sorted(same_last, key=lambda each: (not each.startswith("training."), -_similarity(key, each)))[:3]

    def score(candidate: str) -> tuple[float, float]:
        whole = _similarity(key, candidate)
        return max(whole, _similarity(last, candidate.rpartition(".")[2])), whole

    best = max(known, key=score, default=None)
    return [best] if best is not None and score(best)[0] >= _CLOSE_ENOUGH else []


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing."""
    nearest = nearest_word(word, known)
    return f"; did you mean {nearest}?" if nearest else ""


def nearest_and_all(word: str, known: Iterable[str]) -> str:
    """`; did you mean X? Choices: A, X, Z`, for a short list."""
    known = list(known)
    end = did_you_mean(word, known) or "."
    return f"{end} Choices: {', '.join(known)}" if known else end


_CONTROL_PICTURES = 0x2400  # Unicode draws the characters below U+0020 from here on, in their order
# Characters that turn the direction of the text around them; for a class of a regular expression.
TURNING = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"


def visible_text(text: str, line_feed: str = "\n") -> str:
    r"""The text with pictures for control characters and code points for others that do not show.

    >>> visible_text("a\tb\x1b[31m\u200b\n") == "a␉b␛[31m<U+200B>\n"
    True
    """

    def visible(character: str) -> str:
        if character == "\n":
            return line_feed
        if character.isprintable():
            return character
        code = ord(character)
        return chr(_CONTROL_PICTURES + code) if code < 0x20 else f"<U+{code:04X}>"

    return text if text.isprintable() else "".join(map(visible, text))


def writable(text: str) -> str:
    r"""The text as UTF-8 can write it: half a surrogate pair becomes its escape.

    >>> writable("a\ud800é") == "a\\ud800é"
    True
    """
    return text.encode("utf-8", errors="backslashreplace").decode("utf-8")


def short_text(value: object, limit: int = 60, *, keep_end: bool = False) -> str:
    """A value on one line of at most `limit` characters, cut at its end or in its middle.

    >>> short_text("0123456789", 5), short_text("0123456789", 5, keep_end=True)
    ('0123…', '01…89')
    """
    line = visible_text(" ".join(str(value).split()))
    if len(line) <= limit:
        return line
    tail = (limit - 1) // 2 if keep_end else 0
    return f"{line[: limit - 1 - tail]}…{line[len(line) - tail :]}"
