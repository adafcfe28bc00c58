"""Refuses a configuration that holds a secret: it would be written to config.yaml and sent to Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlvr_vocab.config.values import single_values
from rlvr_vocab.errors import UserError
from rlvr_vocab.secret_words import is_secret, variable_with


def refuse_secrets(config: Mapping[str, Any]) -> None:
    """Raises UserError where a value is a secret, without saying it."""
    for key, value in single_values(config):
        if is_secret(key, value):
            held = variable_with(str(value)) or "HF_TOKEN, WANDB_API_KEY, HTTPS_PROXY, …"
            raise UserError(
                f"{key} holds a secret, which would be recorded with the configuration: leave it out and let it be "
                f"read from the environment ({held})"
            )


def refuse_secret_words(words: Sequence[str]) -> None:
    """Raises UserError where a word of the command line is a secret: W&B records them all, overridden ones too."""
    for word in words:
        key, assigned, value = word.lstrip("+~").partition("=")
        if assigned:
            refuse_secrets({key: value})
