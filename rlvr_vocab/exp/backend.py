"""What has to be imported before a command is: Unsloth replaces parts of transformers, peft and trl."""

from __future__ import annotations

from rlvr_vocab.exp.settings import Settings
from rlvr_vocab.exp.typed_sections import RunSettings


def import_backend(settings: Settings) -> None:
    if isinstance(settings, RunSettings) and settings.model.backend == "unsloth":
        from rlvr_vocab.training.unsloth_model import import_unsloth

        import_unsloth()
