"""One self-contained HTML page: a title, its outcome in a sentence, sections, and nothing that is loaded or run.

Classes of page.css, for whoever writes a section (blocks.py makes most of them):

- `.charts > figure`: a grid of pictures, each a `figcaption` and an `<svg>`; `figure.wide` takes the whole row.
- `.table-scroll > table`: scrolls inside its own box; `td.number` is set to the right, in figures of one width.
- `.facts`: a `<dl>` of short names and values, in columns where there is room.
- `.finding`, with `.warning` or `.error`: what the doctor says. `.verdict`: what a comparison comes to.
- `.sample > pre`: a completion as it was written. `.m1 .m2 …`: tokens by multiplicity, `.answering` dimmed.
- `.note`: small print below something. `.missing`: says what is not there. `.lede`: the sentence below the title,
  `.warnings` the list of warnings below it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rlvr_vocab.visible_text import TURNING

# Half a surrogate pair cannot be written as UTF-8, what turns the direction of text would turn the page's own words,
# and the rest is no character of an HTML page.
_NO_CHARACTER = re.compile(f"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff{TURNING}]")


@dataclass(frozen=True)
class Section:
    """A part of a page; `id` is its anchor, and no other section's."""

    title: str
    html: Markup
    id: str


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
        sentence: the outcome, in words.
        kind: what stands small above the title.
        warnings: what a reader must know before believing the outcome.
    """

    title: str
    sentence: str
    sections: Sequence[Section]
    kind: str = "rlvr-vocab report"
    warnings: Sequence[str] = ()


def render(page: Page) -> str:
    """The page as text that UTF-8 can write.

    Raises:
        ValueError: two sections have one id.
    """
    ids = [section.id for section in page.sections]
    if len(set(ids)) < len(ids):
        raise ValueError(f"sections share an id: {ids}")
    style = Markup(files(__package__).joinpath("page.css").read_text(encoding="utf-8"))
    written = templates().get_template("page.html.j2").render(page=page, style=style)
    return _NO_CHARACTER.sub("�", written)


@cache
def templates() -> Environment:
    """Everything is escaped but what is `Markup`: our own templates and pictures."""
    return Environment(
        loader=PackageLoader("rlvr_vocab.analysis.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
