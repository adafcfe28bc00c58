"""Spans put together are the whole text and say which copy each token is; written out, they can hurt no document."""

import random
import re
from html import unescape

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.text import visible_text
from rlvr_vocab.vocab.marking import Marker, TextSpan, marked_html, marked_plain, read_tokenizer
from rlvr_vocab.vocab.tokenizer import load_tokenizer

TEXT = "<think>the café: 日本語 🙂👩\u200d👩\u200d👧, ∑ 🇨🇭 مرحبا and </think>so \\boxed{\\frac{1}{2}} 你好 𝕏 it is."


@pytest.mark.parametrize("name", ["qwen3", "qwen2", "llama", "gemma3", "gpt2"])
def test_stretches_put_together_are_what_the_model_wrote(name, expand_shape):
    """Whatever the ids are: cut at both ends, bytes that are no character, control ids, rows that nothing is in."""
    folder = expand_shape(name, size=None, multiplicity=2)
    marker, tokenizer = Marker.from_folder(folder), load_tokenizer(folder)
    plain, rng = tokenizer.encode(TEXT, add_special_tokens=False), random.Random(0)
    for case in range(200):
        cut = plain[rng.randrange(len(plain)) :][: rng.randrange(1, len(plain))]
        ids = cut if case % 2 else rng.choices(range(marker.layout.standard_size), k=25)
        ids = [token + marker.layout.standard_size * rng.choice((0, 1, 2)) for token in ids]
        assert "".join(each.text for each in marker.spans(ids)) == tokenizer.decode(ids, skip_special_tokens=True)
        assert marker.spans(ids) == Marker(tokenizer, marker.layout).spans(ids)


def test_a_stretch_says_which_copy_its_tokens_are(expand_shape):
    folder = expand_shape("qwen3", size=None, multiplicity=2)
    marker, tokenizer = Marker.from_folder(folder), load_tokenizer(folder)
    size = marker.layout.standard_size
    a, b, c = (tokenizer.encode(letter)[0] for letter in "abc")
    ids = [a, size + b, 2 * size + c, 2 * size + a, b]
    assert marker.spans(ids) == [TextSpan("a", 0), TextSpan("b", 1), TextSpan("ca", 2), TextSpan("b", 0)]
    assert marker.spans([]) == []


def test_html_holds_the_text_and_no_tag_of_it():
    hostile = '<script>alert("1")</script>\'><b onclick=x>\x1b\0\u202e</span>'
    html = marked_html([TextSpan(hostile, index) for index in (0, 1, 8)])
    tag = r'<span class="(\w+)" title="([\w ]+)">'
    assert re.findall(tag, html) == [("m1", "copy 1"), ("m2", "copy 8")]
    text = re.sub(f"{tag}|</span>", "", html)
    assert unescape(text) == 3 * visible_text(hostile) and not re.search("[<>\x00\x1b\u202e]", text)


def test_without_colour_copies_stand_between_marks():
    assert marked_plain([TextSpan("a", 0), TextSpan("b", 1), TextSpan("\x1b", 3)]) == "a⟦b⟧⟦3:␛⟧"


def test_a_damaged_tokenizer_is_one_line(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match=r"tokenizer\.json cannot be read"):
        read_tokenizer(tmp_path)
