"""What sections are made of: grids of pictures, tables, facts, folded parts, findings. Everything given is escaped."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.analysis.report.page import templates


@dataclass(frozen=True)
class Picture:
    """A chart of charts.py with the words around it; a wide one has a row to itself."""

    caption: str
    svg: Markup
    note: str = ""
    wide: bool = False


@dataclass(frozen=True)
class Sample:
    """A completion: `body` its text with marked tokens, `facts` its gold answer, rewards and reasons."""

    title: str
    prompt: str
    body: Markup
    facts: Sequence[tuple[str, str]]


def charts(pictures: Sequence[Picture]) -> Markup:
    return _block("charts", pictures)


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


def samples(title: str, shown: Sequence[Sample]) -> Markup:
    """Some beside each other, as far as there is room."""
    return _block("samples", title, shown)


def heading(text: str) -> Markup:
    """Of a part of a section."""
    return Markup("<h3>{}</h3>\n").format(text)


def paragraph(text: str, kind: str = "") -> Markup:
    """`kind` is one of the classes of page.py, such as `note`."""
    return Markup('<p class="{}">{}</p>\n').format(kind, text) if kind else Markup("<p>{}</p>\n").format(text)


def preformatted(text: str) -> Markup:
    """A command or a file, as it is."""
    return Markup('<pre class="command">{}</pre>\n').format(text)


def _block(name: str, *arguments: Any) -> Markup:
    return Markup(getattr(templates().get_template("blocks.html.j2").module, name)(*arguments))
