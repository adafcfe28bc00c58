"""Numbers and lists in sentences, with the noun and the verb that go with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def counted(count: float, thing: str, things: str = "") -> str:
    """A number with its noun.

    Args:
        thing: for one; `things`: for any other number, where it is not `thing` with an s.

    Example:
        >>> counted(1, "row"), counted(2000, "row"), counted(0, "is", "are")
        ('1 row', '2,000 rows', '0 are')
    """
    return f"{count:,} {thing if count == 1 else things or f'{thing}s'}"


def listed(names: Iterable[object]) -> str:
    """Names as a sentence has them: `a`, `a and b`, `a, b and c`."""
    *earlier, last = map(str, names)
    return f"{', '.join(earlier)} and {last}" if earlier else last


def rows_in_words(row_numbers: Sequence[int], most: int = 3) -> str:
    """Example: `row 3`, `rows 3, 17 and 20`, `rows 3, 17, 20 and 5 more`."""
    more = [f"{len(row_numbers) - most:,} more"] if len(row_numbers) > most else []
    return f"row{'s' if len(row_numbers) > 1 else ''} {listed([*row_numbers[:most], *more])}"
