"""Text with its invisible characters made visible: what a screen would hide, obey, or pass for a space."""

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


def hidden_characters(text: str) -> set[str]:
    """The characters of a text that do not show, line feeds and tabs apart."""
    if text.isprintable():
        return set()
    return {character for character in text if not character.isprintable()} - {"\n", "\t"}


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
