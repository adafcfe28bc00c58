"""Text for people: control characters are drawn, and a mistyped word gets its nearest neighbour."""

import pytest

from rlvr_vocab.text import did_you_mean, nearest_keys, nearest_word, short_text, visible_text


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


def test_a_long_text_is_cut_at_its_end_or_in_its_middle():
    assert short_text("0123456789", 10) == "0123456789"
    assert short_text("01234 \n 56789", 10) == "01234 567…"
    assert short_text("0123456789x", 10, keep_end=True) == "01234…789x"


@pytest.mark.parametrize(
    ("given", "nearest"), [("ANSWER", "answer"), ("anwser", "answer"), ("Soluton", "Solution"), ("xyz", None)]
)
def test_the_nearest_word_is_the_likeliest_slip(given, nearest):
    known = ["SANER", "answer", "Solution"]
    assert nearest_word(given, known) == nearest
    assert did_you_mean(given, known) == (f"; did you mean {nearest}?" if nearest else "")


@pytest.mark.parametrize(
    ("given", "nearest"), [("dataset_name", "dataset.name"), ("model.lora_r", "model.lora.r"), ("x", None)]
)
def test_the_nearest_key_is_like_it_as_a_whole_or_by_its_last_part(given, nearest):
    known = ["dataset", "dataset.name", "model.lora.alpha", "model.lora.r"]
    assert nearest_keys(given, known) == ([nearest] if nearest else [])
