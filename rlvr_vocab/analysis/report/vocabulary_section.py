"""What became of the reasoning vocabulary, as part of a page."""

from __future__ import annotations

from markupsafe import Markup

from rlvr_vocab.analysis.report.blocks import Picture, charts, folded, heading, paragraph, table
from rlvr_vocab.analysis.vocabulary import VocabularyAnalysis, pictures, tables

# Share of reasoning tokens and entropy by region, which the run's own curves show already.
_SHOWN_BEFORE = ("use", "entropy")
_HEADINGS = {
    "Use": ("distinct", "concentration", "sources"),
    "Drift of the copies": ("drift",),
    "In two dimensions": ("projection",),
    "Uncertainty": ("entropy", "surprisal"),
}


def vocabulary_section(analysis: VocabularyAnalysis | None) -> Markup:
    if analysis is None:
        return paragraph("No model of this run is there (initial_model/), so its vocabulary is not known.", "missing")
    parts = [paragraph(note, "note") for note in analysis.notes]
    left = [picture for picture in pictures(analysis) if picture.name not in _SHOWN_BEFORE]
    for title, prefixes in {**_HEADINGS, "More": ("",)}.items():
        drawn = [picture for picture in left if picture.name.startswith(prefixes)]
        if drawn:
            shown = [Picture(each.title, Markup(each.svg), each.caption) for each in drawn]
            parts += [heading(title), charts(shown)]
        left = [picture for picture in left if picture not in drawn]
    for each in tables(analysis):
        content = paragraph(each.caption, "note") + table(each.header, each.rows, _figures(each.rows))
        parts.append(folded(each.title, content))
    return Markup().join(parts)


def _figures(rows: tuple[tuple[str, ...], ...]) -> list[int]:
    """The columns, after the first, in which every cell begins like a number."""
    columns = list(zip(*rows, strict=True))
    return [number for number, cells in enumerate(columns) if number and all(map(_is_figure, cells))]


def _is_figure(cell: str) -> bool:
    return cell.strip().lstrip("+−-×")[:1].isdigit() or cell.strip() in ("", "–", "—")
