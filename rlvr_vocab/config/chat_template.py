"""The chat template that a configuration names, and what to say where one refuses a prompt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jinja2 import TemplateError

from rlvr_vocab.errors import UserError


def template_text(path: Path | None) -> str | None:
    """What `model.chat_template` holds; None where the tokenizer's own is taken."""
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"model.chat_template={path} cannot be read: {error}") from error


@contextmanager
def naming_chat_template(model: str) -> Iterator[None]:
    """A block in which a chat template that refuses a prompt is a UserError that names the model."""
    try:
        yield
    except TemplateError as error:
        raise UserError(
            f"model.name={model}: its chat template refuses these prompts: {error}; a template that knows no "
            "system message needs dataset.system_prompt=null"
        ) from error
