r"""Reads matrices, vectors and determinants, with a factor before them: `2\begin{pmatrix} 1 & 2 \end{pmatrix}`."""

from __future__ import annotations

import re

from rlvr_vocab.rewards.verify.limits import Unreadable
from rlvr_vocab.rewards.verify.reading.readings import Expression, Matrix, Number, Reading, as_latex
from rlvr_vocab.rewards.verify.reading.relations import ReadPart

_ENVIRONMENT = re.compile(
    r"(?P<factor>[^&]*?)(?P<opened>[(\[|]?)\\begin\{(?P<kind>[pbvBV]?matrix|array)\}(?:\{[lcr| ]*\})?"
    r"(?P<body>.*)\\end\{(?P=kind)\}(?P<closed>[)\]|]?)",
    re.DOTALL,
)
_ROW_END = re.compile(r"\\\\(?:\[[^\]]*\])?|\\cr(?![A-Za-z])")
_DELIMITERS = {"pmatrix": "()", "bmatrix": "[]", "vmatrix": "||", "Bmatrix": "{}", "Vmatrix": r"\|"}


def read_matrix(text: str, read_part: ReadPart) -> Matrix | None:
    """The matrix that a text is, None where it is none.

    Raises:
        Unreadable: rows of different lengths, or entries that a factor cannot multiply.
    """
    found = _ENVIRONMENT.fullmatch(text)
    if found is None or r"\begin" in found["body"]:
        return None
    delimiters = _DELIMITERS.get(found["kind"], "") or found["opened"] + found["closed"]
    if found["opened"] and found["kind"] in _DELIMITERS:
        raise Unreadable("a matrix in brackets")
    factor = read_part(found["factor"].removesuffix("*")) if found["factor"] else None
    rows = [row for row in _ROW_END.split(found["body"].replace(r"\hline", "")) if row.strip()]
    cells = tuple(tuple(_entry(factor, cell.strip(), read_part) for cell in row.split("&")) for row in rows)
    if len({len(row) for row in cells}) != 1:
        raise Unreadable("rows of different lengths")
    return Matrix(cells, kind="" if delimiters in ("", "()", "[]") else delimiters)


def _entry(factor: Reading | None, cell: str, read_part: ReadPart) -> Reading:
    if not cell:
        raise Unreadable("an empty place in a matrix")
    entry = read_part(cell)
    if factor is None:
        return entry
    if isinstance(factor, Number) and isinstance(entry, Number):
        return Number(factor.value * entry.value)
    if isinstance(factor, Number | Expression) and isinstance(entry, Number | Expression):
        return Expression(f"({as_latex(factor)})*({as_latex(entry)})")
    raise Unreadable("a matrix of something else than values")
