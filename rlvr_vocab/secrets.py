"""Recognises tokens, keys and passwords, so that none is recorded, logged or printed."""

from __future__ import annotations

import os
import re

MASK = "***"
# Last parts of keys whose values are always secrets.
_KEYS = re.compile(
    r"(?:.*_)?(?:api_?key|access_key|secret_key|private_key|password|passwd|passphrase|secret|credentials?"
    r"|authorization|subscription_key)"
    r"|(?:use_|hub_|hf_|auth_|access_|private_|bearer_|refresh_|wandb_|github_)*token",
    re.IGNORECASE,
)
# The value of any other `…_token` may be a token of a vocabulary, such as `<|im_end|>`.
_MAYBE = re.compile(r".*_token", re.IGNORECASE)
_LIKE_A_TOKEN = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[\w.=+/-]{16,}")
# Names of environment variables whose values are secrets.
_VARIABLES = re.compile(rf"{_KEYS.pattern}|.*_token", re.IGNORECASE)
# A shorter one may be part of an ordinary word.
_SHORTEST_SECRET = 8
_NO_SECRETS = ("true", "false", "null", "none", "")
_FORMS = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"hf_[A-Za-z0-9]{20,}"  # Hugging Face
    r"|sk-(?=[\w-]{0,99}\d)[\w-]{20,}"  # OpenAI, Anthropic and others
    r"|gh[opsur]_[A-Za-z0-9]{30,}|github_pat_\w{30,}"  # GitHub
    r"|AKIA[0-9A-Z]{16}"  # Amazon
    r"|wandb_v\d_\w{20,}"  # Weights & Biases
    r"|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{10,}"  # JSON web tokens
    r")"
    r"|(?<=://)(?:[^/\s:@]*:[^/\s@]+|[\w-]{20,})(?=@)"  # user:password@ or token@ of an address
    r"|(?P<before>(?i:"  # prefixes that stay legible:
    r"[?&](?:[\w-]*[_-])?(?:api|access)?(?:key|token|sig|signature|auth|code|jwt|pwd|password|secret|credential)="
    r"|authorization['\"]?\s*:\s*['\"]?(?:(?:basic|bearer|digest|token)\s+)?"
    r"|\b(?:basic|bearer)\s+(?=[^\s'\"]{12})(?=[^\s'\"]*(?-i:=|[a-z][A-Z]|[A-Za-z]\d[A-Za-z]))"
    r"))[^\s'\"&#,;<>{}\]]+"
)
_ASSIGNED = re.compile(
    r"(?<![\w.-])"
    r"""(?P<key>[\w.-]+)(?P<between>(?:=|(?i:(?<=key)|(?<=-token)|(?<=password)):\s)['"]?|['"]\s*:\s*['"])(?P<value>(?<=['"])[^'"]+|[^\s'",;}\]]+)"""
)


def is_secret(key: str, value: object) -> bool:
    """Whether the value of a dotted key must not be seen: by its name, by its form, or as the environment's own."""
    if isinstance(value, bool) or value is None or str(value).lower() in _NO_SECRETS:
        return False
    if _is_named_secret(key, str(value)):
        return True
    return isinstance(value, str) and bool(_FORMS.search(value) or variable_with(value))


def _is_named_secret(key: str, text: str) -> bool:
    name = key.rpartition(".")[2].replace("-", "_")
    return bool(_KEYS.fullmatch(name) or (_MAYBE.fullmatch(name) and _LIKE_A_TOKEN.fullmatch(text)))


def variable_with(value: str) -> str | None:
    """The environment variable that holds a value, where it holds a secret."""
    return next((name for name, secret in _secrets_of_environment() if secret == value), None)


def without_secrets(text: str) -> str:
    """A text with every secret in it masked: the environment's own, those of a known form, and `token=…`."""
    for _, secret in sorted(_secrets_of_environment(), key=lambda item: -len(item[1])):
        text = text.replace(secret, MASK)
    return _ASSIGNED.sub(_masked, _FORMS.sub(lambda found: f"{found['before'] or ''}{MASK}", text))


def _masked(match: re.Match[str]) -> str:
    hidden = match["value"].lower() not in _NO_SECRETS and _is_named_secret(match["key"], match["value"])
    return f"{match['key']}{match['between']}{MASK}" if hidden else match[0]


def _secrets_of_environment() -> list[tuple[str, str]]:
    variables = os.environ.items()
    return [each for each in variables if _VARIABLES.fullmatch(each[0]) and len(each[1]) >= _SHORTEST_SECRET]
