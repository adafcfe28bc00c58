"""How completions begin, for a list of them: read a step at a time, those of the last steps kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from rlvr_vocab.analysis.marked import readable
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.completions import CompletionFiles

_STEPS_KEPT = 200
_LONGEST = 200

Place = tuple[int, int]


def read_first_lines(files: CompletionFiles, step: int) -> list[str]:
    """The beginning of each completion of a step, on one line and harmless to show; none where it cannot be read."""
    try:
        texts = files.table(step, ["completion"])["completion"].to_pylist()
    except (UserError, KeyError):  # gone meanwhile; its completions say so when they are opened
        return []
    return [" ".join(readable((text or "")[:_LONGEST]).split()) for text in texts]


class FirstLines:
    """First lines by step and row."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, Sequence[str]] = OrderedDict()

    def missing(self, places: Iterable[Place]) -> list[int]:
        """The steps of these places that are not here yet."""
        return sorted({step for step, _ in places} - self._kept.keys())

    def keep(self, step: int, lines: Sequence[str]) -> None:
        self._kept[step] = lines
        if len(self._kept) > _STEPS_KEPT:
            self._kept.popitem(last=False)

    def of(self, place: Place) -> str:
        """Empty as long as its step is not here."""
        step, row = place
        lines = self._kept.get(step, ())
        return lines[row - 1] if row <= len(lines) else ""

    def clear(self) -> None:
        self._kept.clear()
