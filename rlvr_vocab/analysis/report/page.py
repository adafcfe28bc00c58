"""One self-contained HTML page, and the blocks of its sections: it loads nothing, runs nothing, and escapes everything.

Classes of page.css: `.charts`, `.table-scroll`, `.facts` (a `<dl>`), `.finding`, `.sample`, `.m1 .m2 …` (tokens by copy
index), `.note` (small print), `.flag` (in red), `.missing` (what is not there).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rlvr_vocab.text import TURNING

# Half a surrogate pair cannot be written as UTF-8, marks of direction would turn the page's own words, and the rest are
# no characters of an HTML page.
_NO_CHARACTER = re.compile(f"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff{TURNING}]")


@dataclass(frozen=True)
class Page:
    """A page: `sentence` is the outcome, `kind` stands small above the title, `flags`, in red, below the sentence.

    `sections` maps titles to contents.
    """

    title: str
    sentence: str
    sections: Mapping[str, Markup]
    kind: str = "rlvr-vocab report"
    flags: Sequence[str] = ()


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


def macro(template: str, name: str) -> Callable[..., Markup]:
    """A macro of one of our templates as a function."""

    def filled(*arguments: Any) -> Markup:
        return Markup(getattr(_templates().get_template(template).module, name)(*arguments))

    return filled


# `table(columns, rows, numeric)`: `numeric` are the numbers of the columns set as figures, from 0. `facts(pairs)`.
# `samples(title, shown)`: title, prompt, marked text and facts of each completion. `chart_grid(charts)`.
chart_grid, facts, samples, table = (
    macro("blocks.html.j2", name) for name in ("chart_grid", "facts", "samples", "table")
)


def paragraph(text: str, kind: str = "") -> Markup:
    return Markup('<p class="{}">{}</p>\n').format(kind, text) if kind else Markup("<p>{}</p>\n").format(text)


def preformatted(text: str) -> Markup:
    return Markup('<pre class="command">{}</pre>\n').format(text)
