"""Stretches put together are the whole text, say which copy each token is, and can hurt no document."""

import random
import re
from html.parser import HTMLParser

import pytest

from rlvr_vocab.analysis.marked import Marker, Stretch, as_html, as_plain, readable
from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.tokenizer import load_tokenizer

TEXT = "<think>the café: 日本語 🙂, and </think>so \\boxed{\\frac{1}{2}} it is."


@pytest.mark.parametrize("name", ["qwen3", "qwen2", "llama", "gemma3", "gpt2"])
def test_stretches_put_together_are_what_the_model_wrote(name, expand_shape):
    """Characters of several bytes lie across copies and standard tokens here."""
    folder = expand_shape(name, size=None, multiplicity=2)
    marker, tokenizer = Marker.from_folder(folder), load_tokenizer(folder)
    plain = tokenizer.encode(TEXT, add_special_tokens=False)
    for seed in range(20):
        rng = random.Random(seed)
        ids = [token + marker.layout.standard_size * rng.choice((0, 1)) for token in plain]
        stretches = marker.stretches(ids)
        assert "".join(each.text for each in stretches) == TEXT
        assert not any("\ufffd" in each.text for each in stretches)


def test_a_stretch_says_which_copy_its_tokens_are(model_folder):
    marker, tokenizer = Marker.from_folder(model_folder), load_tokenizer(model_folder)
    size = marker.layout.standard_size
    a, b, c = (tokenizer.encode(letter)[0] for letter in "abc")
    ids = [a, size + b, 2 * size + c, 2 * size + a, b]
    assert marker.stretches(ids) == [Stretch("a", 0), Stretch("b", 1), Stretch("ca", 2), Stretch("b", 0)]
    assert marker.stretches([]) == []


def test_bytes_that_are_no_character_are_shown_and_not_lost(model_folder):
    marker, tokenizer = Marker.from_folder(model_folder), load_tokenizer(model_folder)
    half = tokenizer.encode("é")[:1] if len(tokenizer.encode("é")) > 1 else tokenizer.encode("日")[:1]
    a = tokenizer.encode("a")[0]
    assert "".join(each.text for each in marker.stretches([a, *half, a + marker.layout.standard_size])) == "a\ufffda"
    assert "".join(each.text for each in marker.stretches([a, *half])) == "a\ufffd"


def test_ids_past_the_last_copy_are_no_copies(model_folder):
    marker = Marker.from_folder(model_folder)
    assert marker.multiplicity(marker.layout.rows) == 0 and marker.multiplicity(marker.layout.rows - 1) == 2


@pytest.mark.parametrize("missing", ["tokenizer.json", "reasoning_vocab.json"])
def test_a_folder_without_its_files_is_one_clear_line(missing, model_folder, tmp_path):
    for name in {"tokenizer.json", "reasoning_vocab.json"} - {missing}:
        (tmp_path / name).write_bytes((model_folder / name).read_bytes())
    with pytest.raises(UserError, match=missing):
        Marker.from_folder(tmp_path)
    (tmp_path / missing).write_text("{")
    with pytest.raises(UserError, match=missing):
        Marker.from_folder(tmp_path)


def test_what_a_screen_would_obey_or_hide_is_drawn():
    assert readable("a\tb\x1b[2J\0\r\n\u202e\ud800") == "a␉b␛[2J␀␍\n<U+202E><U+D800>"


def test_html_holds_the_text_and_no_tag_of_it():
    hostile = '<script>alert("1")</script>\'><b onclick=x>\x1b\0\u202e</span>'
    html = as_html([Stretch(hostile, 0), Stretch(hostile, 1), Stretch(hostile, 8)])
    seen = Seen()
    seen.feed(str(html))
    assert seen.tags == [("span", {"class": "m1", "title": "copy 1"}), ("span", {"class": "m2", "title": "copy 8"})]
    assert seen.text == 3 * readable(hostile) and not re.search("[\x00\x1b\u202e]", html)


def test_without_colour_copies_stand_between_marks():
    assert as_plain([Stretch("a", 0), Stretch("b", 1), Stretch("\x1b", 3)]) == "a⟦b⟧⟦3:␛⟧"


class Seen(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data
