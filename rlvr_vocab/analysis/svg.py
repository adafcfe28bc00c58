"""Turns a matplotlib figure into SVG that may stand in a page beside others, or alone in a file."""

from __future__ import annotations

import hashlib
import io
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from xml.etree import ElementTree

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter, FuncFormatter, LogFormatter

from rlvr_vocab.visible_text import TURNING

INK = "#24292e"  # becomes the colour of the text around the picture
FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"

_TURNING = re.compile(f"[{TURNING}]")

# `text.parse_math`: a reward may be called a_b$x$. `hashsalt`: else ids are drawn anew each time.
RC: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "rlvr-vocab",
    "text.parse_math": False,
    "axes.formatter.use_mathtext": False,
    "font.family": ["DejaVu Sans"],
    "font.size": 8.5,
    "axes.labelsize": 8.5,
    "axes.titlesize": 9,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "legend.borderpad": 0.1,
    "legend.borderaxespad": 0.1,
    "legend.columnspacing": 1.4,
    "legend.handlelength": 2.2,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "grid.color": INK,
    "grid.alpha": 0.13,
    "grid.linewidth": 0.6,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "figure.constrained_layout.h_pad": 0.03,
    "figure.constrained_layout.w_pad": 0.03,
}


def drawable(text: str, longest: int | None = None) -> str:
    """Text from data as it can be drawn and written: what no font and no XML has stands as �, line breaks as ↵."""
    shown = "".join(_shown(character) for character in text)
    return shown if longest is None or len(shown) <= longest else f"{shown[: longest - 1]}…"


def _shown(character: str) -> str:
    if character in "\n\r":
        return "↵"
    if character == "\t":
        return "⇥"
    refused = unicodedata.category(character) in ("Cc", "Cs", "Cn") or _TURNING.fullmatch(character)
    return "�" if refused else character


def as_svg(figure: Figure, title: str, description: str = "") -> Markup:
    """The figure as an `<svg>` element, with its title for whoever cannot see it, and ids of its own."""
    with rc_context(RC), warnings.catch_warnings():
        # Words are set by the browser, whose fonts have more signs than the one that measures them here.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        _take_text_literally(figure)
        written = io.BytesIO()
        FigureCanvasSVG(figure).print_svg(written, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    root = ElementTree.fromstring(written.getvalue())
    _remove_namespaces(root)
    _remove_metadata(root)
    _make_ids_unique(root, title)
    for element in root.iter():
        _use_page_font_and_colour(element)
    _add_title(root, drawable(title), drawable(description))
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _take_text_literally(figure: Figure) -> None:
    """Take text literally wherever it was set, not only under RC; a legend has no background of its own."""
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            formatter = axis.get_major_formatter()
            if isinstance(formatter, FixedFormatter):
                axis.set_major_formatter(FixedFormatter([drawable(str(label)) for label in formatter.seq]))
            elif isinstance(formatter, FuncFormatter):  # among them names of ticks that were set
                axis.set_major_formatter(FuncFormatter(_drawable_formatter(formatter)))
            elif isinstance(formatter, LogFormatter):  # which writes mathematics
                axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                axis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
    for legend in figure.findobj(Legend):
        assert isinstance(legend, Legend)
        legend.set_frame_on(False)
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        text.set_parse_math(False)
        # A line break that the chart's maker wrote is one; drawable() turns those of data into signs beforehand.
        text.set_text("\n".join(drawable(line) for line in text.get_text().split("\n")))


def _drawable_formatter(formatter: FuncFormatter) -> Callable[[float, int | None], str]:
    return lambda value, position: drawable(str(formatter(value, position)))


def _remove_namespaces(root: ElementTree.Element) -> None:
    """A page needs no namespaces; `xlink:href` is `href` since SVG 2."""
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        for name in [name for name in element.attrib if name.startswith("{")]:
            element.set(name.rpartition("}")[2], element.attrib.pop(name))


def _remove_metadata(root: ElementTree.Element) -> None:
    """Metadata and the style sheet, which would hold for the whole page."""
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in ("metadata", "style") or (child.tag == "defs" and not any(_non_styles(child))):
                parent.remove(child)


def _non_styles(definitions: ElementTree.Element) -> Iterator[bool]:
    return (each.tag != "style" for each in definitions)


def _make_ids_unique(root: ElementTree.Element, title: str) -> None:
    """Ids that are referred to get a prefix of the picture's own; the others go."""
    content = ElementTree.tostring(root) + title.encode("utf-8", "replace")
    prefix = f"c{hashlib.sha256(content).hexdigest()[:10]}"
    used = set(re.findall(rb'(?:url\(#|href="#)([^)"]+)', content))
    for element in root.iter():
        identity = element.get("id")
        if identity is not None and identity.encode() not in used:
            del element.attrib["id"]
        elif identity is not None:
            element.set("id", f"{prefix}-{identity}")
        for name in ("clip-path", "href"):
            if name in element.attrib:
                element.set(name, element.attrib[name].replace("#", f"#{prefix}-"))


def _use_page_font_and_colour(element: ElementTree.Element) -> None:
    style = element.get("style")
    if style is not None:
        style = re.sub(r"font-family: [^;]*;? ?", "", style)
        element.set("style", style.replace(INK, "currentColor"))
    if element.tag == "text" and "fill" not in (style or ""):
        element.set("fill", "currentColor")


def _add_title(root: ElementTree.Element, title: str, description: str) -> None:
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib.update(
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "role": "img",
            "aria-label": f"{title}. {description}" if description else title,
            "stroke-linejoin": "round",
            "font-family": FONTS,
            "class": "chart",
        }
    )
    heading = ElementTree.Element("title")
    heading.text = title
    root.insert(0, heading)
