"""A histogram drawn in text: one line for each range of lengths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from rlvr_vocab.exp.prompt_facts import quantile

MOST_ROWS = 12
WIDEST_BAR = 40
EIGHTHS = " ▏▎▍▌▋▊▉█"
# Of the longest lengths this share is drawn together in the last line, however far they reach.
TAIL = 0.01


def histogram(counts: Mapping[int, int]) -> list[str]:
    """At most `MOST_ROWS` lines `64-79 ████▌ 1,234`, of ranges of one width; the last may take a tail of any length.

    Args:
        counts: length -> how many have it.

    Example:
        >>> histogram({10: 3, 11: 1})
        ['10 ████████████████████████████████████████ 3', '11 █████████████▍ 1']
    """
    least, most, end = min(counts), max(counts), quantile(counts, 1 - TAIL)
    width = next(width for width in round_widths() if end // width - least // width < MOST_ROWS - 1)
    start, num_ranges = least // width * width, end // width - least // width + 1
    tail = start + num_ranges * width
    drawn_counts = [0] * num_ranges
    for length, number in counts.items():
        if length < tail:
            drawn_counts[(length - start) // width] += number
    labels = [range_label(start + index * width, width) for index in range(num_ranges)]
    if most >= tail:
        labels.append(f"{tail}-{most}")
        drawn_counts.append(sum(number for length, number in counts.items() if length >= tail))
    return drawn(labels, drawn_counts)


def drawn(labels: Sequence[str], counts: Sequence[int]) -> list[str]:
    widest = max(map(len, labels))
    tallest = max(counts)
    return [
        f"{label:>{widest}} {bar(number, tallest)}{' ' if number else ''}{number:,}"
        for label, number in zip(labels, counts, strict=True)
    ]


def bar(number: int, tallest: int) -> str:
    """A bar in eighths of a character; what there is at all shows."""
    eighths = max(round(8 * WIDEST_BAR * number / tallest), 1) if number else 0
    whole, part = divmod(eighths, 8)
    return EIGHTHS[8] * whole + EIGHTHS[part].strip()


def range_label(start: int, width: int) -> str:
    return str(start) if width == 1 else f"{start}-{start + width - 1}"


def round_widths() -> Iterator[int]:
    """1, 2, 3, 4, 5, 8, then ten times as many, and so on."""
    return (factor * 10**power for power in count(0) for factor in (1, 2, 3, 4, 5, 8))
