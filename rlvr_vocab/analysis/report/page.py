"""One self-contained HTML page, and the blocks that its sections are made of. Everything given is escaped.

A page has a title, its outcome in a sentence and sections; it loads nothing and runs nothing.

Classes of page.css, for whoever writes a section (the functions below make most of them):

- `.charts > figure`: a grid of charts, each a `figcaption` and an `<svg>`.
- `.table-scroll > table`: scrolls inside its own box; `td.number` is set to the right, in figures of one width.
- `.facts`: a `<dl>` of short names and values, in columns where there is room.
- `.finding`, with `.warning` or `.error`: what the doctor says. `.verdict`: what a comparison comes to.
- `.sample > pre`: a completion as it was written. `.m1 .m2 …`: tokens by copy index, `.answering` dimmed.
  `.chosen`: a token whose choice was not chance.
- `.note`: small print below something. `.missing`: says what is not there. `.lede`: the sentence below the title,
  `.warnings` the list of warnings below it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rlvr_vocab.analysis.charts import Chart
from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.text import TURNING

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
    """The page as text that UTF-8 can write."""
    style = Markup(files(__package__).joinpath("page.css").read_text(encoding="utf-8"))
    written = _templates().get_template("page.html.j2").render(page=page, style=style)
    return _NO_CHARACTER.sub("�", written)


@cache
def _templates() -> Environment:
    """Everything is escaped but what is `Markup`: our own templates and pictures."""
    return Environment(
        loader=PackageLoader("rlvr_vocab.analysis.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@dataclass(frozen=True)
class SampleCard:
    """A completion: `body` its text with marked tokens, `facts` its gold answer, rewards and reasons."""

    title: str
    prompt: str
    body: Markup
    facts: Sequence[tuple[str, str]]


def chart_grid(charts: Sequence[Chart]) -> Markup:
    return _block("chart_grid", charts)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], numeric: Collection[int] = ()) -> Markup:
    """A table that scrolls inside its own box; `numeric` are the numbers of the columns set as figures, from 0."""
    return _block("table", columns, list(rows), numeric)


def facts(pairs: Iterable[tuple[str, Any]]) -> Markup:
    """Short names with their values."""
    return _block("facts", list(pairs))


def folded(summary: str, html: Markup) -> Markup:
    """Opens at a click, and on paper."""
    return _block("folded", summary, html)


def finding(found: Finding) -> Markup:
    return _block("finding", found)


def samples(title: str, shown: Sequence[SampleCard]) -> Markup:
    """Some beside each other, as far as there is room."""
    return _block("samples", title, shown)


def heading(text: str) -> Markup:
    """The heading of a part of a section."""
    return Markup("<h3>{}</h3>\n").format(text)


def paragraph(text: str, kind: str = "") -> Markup:
    """`kind` is one of the classes of page.py, such as `note`."""
    return Markup('<p class="{}">{}</p>\n').format(kind, text) if kind else Markup("<p>{}</p>\n").format(text)


def preformatted(text: str) -> Markup:
    """A command or a file, as it is."""
    return Markup('<pre class="command">{}</pre>\n').format(text)


def _block(name: str, *arguments: Any) -> Markup:
    return Markup(getattr(_templates().get_template("blocks.html.j2").module, name)(*arguments))
