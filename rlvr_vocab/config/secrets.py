"""Refuses a configuration that holds a secret: it would be written to config.yaml and sent to Weights & Biases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.secret_words import is_secret, variable_with

# Parts of keys and of values, and the environment variable that libraries read by themselves.
_VARIABLES = (
    ("wandb", "WANDB_API_KEY"),
    ("openai", "OPENAI_API_KEY"),
    ("anthropic", "ANTHROPIC_API_KEY"),
    ("prox", "HTTPS_PROXY"),
)
_OF_THE_HUB = ("token", "hub_token", "hf_token", "use_auth_token")


def refuse_secrets(config: Mapping[str, Any]) -> None:
    """Raises UserError where a value is a secret, without saying it, with the environment variable to use instead."""
    for key, value in _leaves(config):
        if is_secret(key, value):
            raise UserError(
                f"{key} holds a secret, which would be recorded with the configuration: leave it out and "
                f"{_instead(key, str(value))}"
            )


def refuse_secret_words(words: Sequence[str]) -> None:
    """Raises UserError where a word of the command line is a secret: W&B records them all, overridden ones too."""
    for word in words:
        key, assigned, value = word.lstrip("+~").partition("=")
        if assigned:
            refuse_secrets({key: value})


def _instead(key: str, value: str) -> str:
    held = variable_with(value)
    if key.startswith("rewards."):
        return f"let the function read it from the environment ({held or 'os.environ'})"
    if held is not None:
        return f"let {held} in the environment do"
    named = next((variable for part, variable in _VARIABLES if part in key.lower()), None)
    if named is None and (value.startswith("hf_") or key.rpartition(".")[2] in _OF_THE_HUB):
        named = "HF_TOKEN"
    return f"set {named} in the environment" if named else "set it in the environment of what needs it"


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of everything in a configuration that is no mapping and no list."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item, key)
    else:
        yield key, value
