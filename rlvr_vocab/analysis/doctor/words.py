"""Figures and step numbers as the doctor writes them."""

from __future__ import annotations

from collections.abc import Sequence

from rlvr_vocab.record.metrics import Row


def figure(value: float) -> str:
    """Three significant digits, no more zeros than needed: 0.123, 12.3, 1e-06."""
    return f"{value:.3g}"


def share(value: float) -> str:
    return f"{value:.0%}" if value >= 0.1 or value == 0 else f"{value:.2g}"


def steps(rows: Sequence[Row]) -> str:
    first, last = rows[0]["step"], rows[-1]["step"]
    return f"step {first}" if first == last else f"steps {first} to {last}"


def typed(value: float) -> str:
    """A number as it can stand in a configuration line."""
    return repr(float(f"{value:.2g}"))
