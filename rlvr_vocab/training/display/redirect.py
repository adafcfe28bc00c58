"""Redirects standard output and errors to whole lines above a live display."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from rich.console import Console
from rich.text import Text


class LineRedirect:
    r"""Stands in for a stream. Colours stay, other control sequences are left out, `\r` begins a line again.

    Rich has such a stream too, which reads `[/b]` in an unfinished line as markup and raises, and which in a forked
    process waits for a lock that nobody there gives back.
    """

    def __init__(self, console: Console, stream: TextIO) -> None:
        self._console, self._stream = console, stream
        self._pending = ""
        self._lock = threading.RLock()
        self._process = os.getpid()

    @property
    def rich_proxied_file(self) -> TextIO:
        """Where a Rich console that finds this in the place of its stream is to write."""
        return self._stream

    def write(self, text: str) -> int:
        if os.getpid() != self._process:
            return self._stream.write(text)
        with self._lock:
            *lines, rest = (self._pending + text).split("\n")
            self._pending = rest.rsplit("\r", 1)[-1]
            for line in lines:
                self._show(line)
        return len(text)

    def flush(self) -> None:
        """A line that has not ended waits for its end."""
        if os.getpid() != self._process:
            self._stream.flush()

    def end(self) -> None:
        """Show what is left of a line that never ended."""
        with self._lock:
            if self._pending:
                self._show(self._pending)
            self._pending = ""

    def _show(self, line: str) -> None:
        self._console.print(Text.from_ansi(line.rstrip("\r")), soft_wrap=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def redirecting_output(console: Console) -> Iterator[None]:
    """Inside the block standard output and errors, as far as they reach a terminal, appear above the display.

    That includes handlers of `logging` that took hold of a stream before. What is written past Python, by a library
    in C for instance, is not seen here.
    """
    stdout, stderr = sys.stdout, sys.stderr
    redirects = {id(stream): LineRedirect(console, stream) for stream in (stdout, stderr) if stream.isatty()}
    held = [(handler, handler.stream) for handler in _stream_handlers() if id(handler.stream) in redirects]
    try:
        sys.stdout, sys.stderr = (cast(TextIO, redirects.get(id(stream), stream)) for stream in (stdout, stderr))
        for handler, stream in held:
            handler.setStream(redirects[id(stream)])
        yield
    finally:
        for handler, stream in held:
            handler.setStream(stream)
        for each in redirects.values():
            each.end()
        sys.stdout, sys.stderr = stdout, stderr


def _stream_handlers() -> list[logging.StreamHandler[Any]]:
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    handlers = [handler for logger in loggers if isinstance(logger, logging.Logger) for handler in logger.handlers]
    # That of last resort has no stream of its own: it looks up sys.stderr each time.
    return [each for each in handlers if isinstance(each, logging.StreamHandler) and "stream" in vars(each)]
