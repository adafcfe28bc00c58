"""Marked text says which copy each part is, and can hurt no document."""

import re
from html.parser import HTMLParser

from rlvr_vocab.analysis.marked import as_html, as_plain, readable
from rlvr_vocab.vocab.marking import Stretch


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
