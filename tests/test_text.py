"""Text for people: control characters are drawn, and a mistyped word gets its nearest neighbour."""

import pytest

from rlvr_vocab.text import did_you_mean, nearest_word, visible_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("naïve 你好 $x^2$ 😀", "naïve 你好 $x^2$ 😀"),
        ("a\r\nb\tc\0", "a␍\nb␉c␀"),
        ("\x1b[31mred\x1f", "␛[31mred␟"),
        ("zero\u200bwidth, no\u00a0break", "zero<U+200B>width, no<U+00A0>break"),
        ("right\u202eleft", "right<U+202E>left"),
        ("\x7f\x85\ud800\U000f0000", "<U+007F><U+0085><U+D800><U+F0000>"),
    ],
)
def test_every_character_that_does_not_show_is_drawn(text, shown):
    assert visible_text(text) == shown
    assert visible_text(text, "⏎") == shown.replace("\n", "⏎")


@pytest.mark.parametrize(
    ("given", "nearest"), [("ANSWER", "answer"), ("anwser", "answer"), ("Soluton", "Solution"), ("xyz", None)]
)
def test_the_nearest_word_is_the_likeliest_slip(given, nearest):
    known = ["SANER", "answer", "Solution"]
    assert nearest_word(given, known) == nearest
    assert did_you_mean(given, known) == (f"; did you mean {nearest}?" if nearest else "")
