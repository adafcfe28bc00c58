"""What a screen would hide or obey is drawn instead."""

import pytest

from rlvr_vocab.text import hidden_characters, printable, visible_lines, visible_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("naïve 你好 $x^2$ 😀", "naïve 你好 $x^2$ 😀"),
        ("a\nb", "a⏎\nb"),
        ("a\r\nb\tc\0", "a␍⏎\nb␉c␀"),
        ("\x1b[31mred\x1f", "␛[31mred␟"),
        ("zero\u200bwidth, no\u00a0break", "zero<U+200B>width, no<U+00A0>break"),
        ("right\u202eleft", "right<U+202E>left"),
        ("\x7f\x85\ud800\U000f0000", "<U+007F><U+0085><U+D800><U+F0000>"),
    ],
)
def test_every_character_that_does_not_show_is_drawn(text: str, shown: str) -> None:
    assert visible_text(text) == shown


def test_lines_keep_their_line_feeds() -> None:
    assert visible_lines("a\tb\x1b[2J\0\r\n\u202e\ud800") == "a␉b␛[2J␀␍\n<U+202E><U+D800>"


def test_line_feeds_and_tabs_are_not_worth_a_word() -> None:
    assert hidden_characters("a\nb\tc d") == set()
    assert hidden_characters("a\r\n\u00a0b\u00a0") == {"\r", "\u00a0"}


def test_a_long_text_on_one_line_loses_its_middle() -> None:
    assert printable("a\n\x1b[2Jb", 100) == r"a\n\x1b[2Jb"
    assert printable("0123456789", 10) == "0123456789"
    assert printable("0123456789x", 10) == "01234 … 1 characters … 6789x"
    assert len(printable("x" * 1_000_000, 2_000)) < 2_100
