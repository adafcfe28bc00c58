"""The screen of a command: colours and bars on a terminal, whole lines elsewhere."""

from __future__ import annotations

from rich.console import Console

_NEVER_WRAPPED = 10_000


def make_console(*, quiet: bool = False) -> Console:
    """A console that breaks lines only where a terminal has an edge."""
    console = Console(quiet=quiet, highlight=False)
    return console if console.is_terminal else Console(quiet=quiet, highlight=False, width=_NEVER_WRAPPED)
