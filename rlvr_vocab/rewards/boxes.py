r"""Counts the boxes that a text opens, closed or not, which `last_box` does not tell apart from none."""

from __future__ import annotations

import re

_OPENED = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])")


def boxes_opened(text: str) -> int:
    r"""How many times a text says `\boxed` or `\fbox`.

    >>> boxes_opened(r"\boxed{41}, no: \boxed{4")
    2
    """
    return len(_OPENED.findall(text))
