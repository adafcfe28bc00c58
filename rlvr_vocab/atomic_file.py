"""Text files that appear whole or not at all."""

from __future__ import annotations

from pathlib import Path


def write_whole(path: Path, text: str, errors: str = "strict") -> None:
    """Write the file beside its place and move it there; whoever reads `path` finds the old text or the new one.

    Args:
        errors: what becomes of characters that UTF-8 cannot write, as in `str.encode`.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8", errors=errors)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
