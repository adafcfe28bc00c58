"""The screen of a command: colours and bars on a terminal, whole lines elsewhere."""

from __future__ import annotations

from rich.console import Console

_NEVER_WRAPPED = 10_000


class _Screen(Console):
    """A console that leaves it to the command line to end where nobody reads its output."""

    def on_broken_pipe(self) -> None:
        """Called by Rich while it handles the BrokenPipeError; its own way out is an exit code of 1."""
        raise BrokenPipeError


def make_console(*, quiet: bool = False) -> Console:
    """A console that breaks lines only where a terminal has an edge."""
    console = _Screen(quiet=quiet, highlight=False)
    return console if console.is_terminal else _Screen(quiet=quiet, highlight=False, width=_NEVER_WRAPPED)
