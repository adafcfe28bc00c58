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
    has_an_edge = console.is_terminal and not console.is_dumb_terminal
    return console if has_an_edge else _Screen(quiet=quiet, highlight=False, width=_NEVER_WRAPPED)


def shows_colours(console: Console) -> bool:
    """Whether a colour can tell one piece of text from another there."""
    return console.is_terminal and console.color_system is not None and not console.no_color
