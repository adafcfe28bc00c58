"""The known name closest to a mistaken one: what an error message suggests."""

import difflib
from collections.abc import Iterable


def nearest_name(given: str, known: Iterable[str], cutoff: float = 0.5) -> str | None:
    """The name in `known` most like `given`, whatever the case; None when none reaches `cutoff` (0 to 1)."""
    by_lower = {name.lower(): name for name in known}
    matches = difflib.get_close_matches(given.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[matches[0]] if matches else None


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """The end of an error line, `; did you mean "boxed"?`, or nothing when no known name is close."""
    name = nearest_name(given, known)
    return f'; did you mean "{name}"?' if name is not None else ""
