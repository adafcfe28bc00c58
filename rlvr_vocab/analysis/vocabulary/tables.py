"""The analysis in short tables of plain cells, which whoever shows them escapes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rlvr_vocab.analysis.vocabulary.drift import top_movers
from rlvr_vocab.analysis.vocabulary.results import (
    Drift,
    Growth,
    SourceUse,
    Uncertainty,
    Usage,
    VocabularyAnalysis,
)
from rlvr_vocab.analysis.vocabulary.uncertainty import PRIOR_POSITIONS
from rlvr_vocab.analysis.vocabulary.usage import SMOOTHING

_MOST = 10
_SIDE = {"both": "both (tied)", "input": "embedding", "output": "head"}


class Table(NamedTuple):
    """Cells as text, row by row, under a header."""

    title: str
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def vocabulary_tables(analysis: VocabularyAnalysis) -> list[Table]:
    """The tables that the run has rows for."""
    found: list[Table] = []
    if analysis.usage:
        found += _of_use(analysis, analysis.usage)
    if analysis.drift:
        found += _of_drift(analysis, analysis.drift)
    found.append(_separated_copies(analysis))
    if analysis.uncertainty:
        found.append(_of_uncertainty(analysis, analysis.uncertainty))
    return [table for table in found if table.rows]


def _of_use(analysis: VocabularyAnalysis, usage: Usage) -> Iterator[Table]:
    early, late = (f"steps {window.first_step:,}–{window.last_step:,}" for window in usage.windows)
    header = ("token", "early: standard", "early: copies", "late: standard", "late: copies", "copies early", "late")
    yield Table(
        "Written as copy or as standard token",
        f"The sources written most while thinking; early is {early}, late {late}. Shares count {SMOOTHING:g} "
        "occurrences more, half of them copies.",
        header,
        _source_rows(analysis, list(usage.sources[:_MOST])),
    )
    grown = [growth for growth in usage.growth if growth.ratio > 1][:_MOST]
    shrunk = [growth for growth in reversed(usage.growth) if growth.ratio < 1][:_MOST]
    for title, chosen in (("Copies that grew most", grown), ("Copies that shrank most", shrunk)):
        caption = (
            f"Use late against early, per thinking token, each with {SMOOTHING:g} occurrences more; ranked by the "
            "ratio's logarithm in standard errors (below 2 it may well be chance)."
        )
        yield Table(
            title, caption, ("copy of", "early", "late", "ratio", "standard errors"), _growth_rows(analysis, chosen)
        )


def _source_rows(analysis: VocabularyAnalysis, sources: Sequence[SourceUse]) -> tuple[tuple[str, ...], ...]:
    texts = analysis.texts.of([source.source for source in sources])
    return tuple(
        (
            text,
            *(_count(number) for counts in (each.early, each.late) for number in (counts[0], sum(counts[1:]))),
            *(f"{100 * share:.1f} %" for share in (each.early_share, each.late_share)),
        )
        for each, text in zip(sources, texts, strict=True)
    )


def _growth_rows(analysis: VocabularyAnalysis, growths: Sequence[Growth]) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (
            *(_copy(analysis, growth.k), _count(growth.early), _count(growth.late)),
            *(f"{growth.ratio:.2f}", f"{growth.evidence:.1f}"),
        )
        for growth in growths
    )


def _of_drift(analysis: VocabularyAnalysis, drift: Drift) -> Iterator[Table]:
    with_sources = analysis.layout.holds_differences
    ranked = "Furthest from their sources, with which they move," if with_sources else "Furthest from where they began,"
    for final in drift.final:
        yield Table(
            f"Copies that moved most: {_SIDE[final.side]}",
            f"{ranked} at {drift.end}; norm is against that at the start, difference that of copy and source against "
            "the source's norm, the source's cosine against its own row at the start. Uses are those while thinking in "
            "the steps that were read.",
            ("copy of", "uses", "cosine to start", "cosine to source", "norm", "difference", "source to its start"),
            tuple(
                (
                    _copy(analysis, int(final.ks[at])),
                    _uses(analysis, int(final.ks[at])),
                    *(_cosine(1 - float(column[at])) for column in (final.from_start, final.from_source)),
                    f"{final.norm[at] / final.start_norm[at]:.4g}",
                    f"{final.difference[at] / final.source_norm[at]:.4g}",
                    _cosine(1 - float(final.source_from_start[at])),
                )
                for at in top_movers(final, analysis.layout, _MOST).tolist()
            ),
        )


def _separated_copies(analysis: VocabularyAnalysis) -> Table:
    return Table(
        "Copies that have come apart from their sources",
        "Ranked by (1 − cosine to source + contexts) · √(uses as copy). Contexts: how differently the surface tokens "
        "before the two are distributed (Jensen-Shannon divergence in bits, less what chance explains). Rows are those "
        "that score tokens; uses are the late ones.",
        ("token", "as standard", "as copy", "cosine to source", "to start", "contexts", "score"),
        tuple(
            (
                *(_copy(analysis, each.k), _count(each.as_standard), _count(each.as_copy)),
                *(_cosine(each.cosine_to_source), _cosine(each.cosine_to_start)),
                *(_figure(each.contexts), _figure(each.score)),
            )
            for each in analysis.separated_copies[:_MOST]
        ),
    )


def _of_uncertainty(analysis: VocabularyAnalysis, uncertainty: Uncertainty) -> Table:
    name = uncertainty.kind
    return Table(
        f"Tokens of the highest {name}",
        f"Mean {name} in nats while thinking, by surface token; ranked as if each had {PRIOR_POSITIONS} positions more "
        "at the mean of all.",
        ("token", "early", "late", "early positions", "late positions", "late as standard", "late as first copy"),
        _uncertainty_rows(analysis, uncertainty),
    )


def _uncertainty_rows(analysis: VocabularyAnalysis, uncertainty: Uncertainty) -> tuple[tuple[str, ...], ...]:
    """Surface tokens of the highest late level while thinking."""
    written = {(each.source, each.written_as): each for each in uncertainty.tokens if each.region == "thinking"}
    known = [each for each in written.values() if each.written_as == "any" and math.isfinite(each.level)]
    chosen = sorted(known, key=lambda each: (-each.level, each.source))[:_MOST]
    rows = []
    for each, text in zip(chosen, analysis.texts.of([each.source for each in chosen]), strict=True):
        parts = [written.get((each.source, written_as)) for written_as in ("standard", "copy 1")]
        rows.append(
            (
                *(text, _figure(each.early), _figure(each.late), _count(each.early_count), _count(each.late_count)),
                *("" if part is None else _figure(part.late) for part in parts),
            )
        )
    return tuple(rows)


def _copy(analysis: VocabularyAnalysis, k: int) -> str:
    """The source's text, with the number of the copy from the second on."""
    text, copy = analysis.texts(analysis.layout.source_ids[k]), analysis.layout.copy_indices[k]
    return text if copy == 1 else f"{text} (copy {copy})"


def _uses(analysis: VocabularyAnalysis, k: int) -> str:
    return _count(int(analysis.usage.total[analysis.layout.standard_size + k])) if analysis.usage else ""


def _count(number: int) -> str:
    return f"{number:,}"


def _figure(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else ""


def _cosine(value: float) -> str:
    """A cosine with enough digits to show that it is not 1."""
    if not math.isfinite(value):
        return ""
    return f"{value:.4f}" if 1 - value > 1e-3 else f"1 − {1 - value:.1e}" if value < 1 else "1"
