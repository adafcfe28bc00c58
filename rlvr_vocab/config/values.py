"""Plain values of a configuration -> annotated types, by pydantic; an error is one line that names the key."""

import json
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from typing_extensions import is_typeddict

from rlvr_vocab.errors import UserError
from rlvr_vocab.text import did_you_mean, nearest_keys, visible_text

# Metadata of a field. NO_KEY: users cannot set it. ONE_KEY: its type adds no keys. INLINE: only its type adds keys.
NO_KEY, ONE_KEY, INLINE = "no key", "one key", "inline"
_UNKNOWN = ("unexpected_keyword_argument", "extra_forbidden")
_CONFIG = ConfigDict(extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False)


def read(kind: Any, value: Any, key: str = "") -> Any:
    """`value` as `kind`, a dataclass or any annotation; UserError names the dotted key of a wrong or unknown one."""
    try:
        # In JSON a list may be a tuple, and text a path, but never a number.
        return _reader(kind).validate_json(json.dumps([value]), strict=True)[0]
    except ValidationError as error:
        raise UserError(_error_line(error, value, kind, key)) from error


@cache
def _reader(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(tuple[kind], config=_CONFIG)  # a dataclass takes the configuration of its container


def _error_line(error: ValidationError, value: Any, kind: Any, prefix: str) -> str:
    errors = [(*_locate(each["loc"][1:], value), each) for each in error.errors(include_url=False)]
    # An unknown key first: it may be why another is missing.
    first = min(errors, key=lambda each: each[2]["type"] not in _UNKNOWN)[0]
    # Every alternative of a union has an error: the deepest one is the most exact.
    path, given, worst = max((each for each in errors if each[0][: len(first)] == first), key=lambda each: len(each[0]))
    cause = worst.get("ctx", {}).get("error")
    if isinstance(cause, UserError):  # a rule of ours, which names its keys
        return str(cause)
    key = (prefix + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)).removeprefix(".")
    if worst["type"] == "json_invalid":  # JSON reads any other text
        return f"{key or 'configuration'}: holds half a surrogate pair, which UTF-8 cannot write"
    if worst["type"] in _UNKNOWN:
        while isinstance(given, Mapping) and given:  # of a section that does not exist, the key in it
            name, given = next(iter(given.items()))
            key = f"{key}.{name}"
        return unknown_keys([key], keys_of(kind, prefix))
    if worst["type"] == "missing":
        return f"{key}.{worst['loc'][-1]} is missing".removeprefix(".")
    messages = [re.sub(r"^(Input|Value error,) ", "", each["msg"]) for where, _, each in errors if where == path]
    expected = " or ".join(dict.fromkeys(messages))
    near = did_you_mean(given, re.findall(r"'([^']*)'", expected)) if isinstance(given, str) else ""
    python_none = "; YAML's None is null" if given == "None" else ""
    return f"{key}={visible_text(as_typed(given), '⏎'):.200}: {expected}{near}{python_none}"


def _locate(loc: Sequence[int | str], value: Any) -> tuple[list[int | str], Any]:
    """The path of an error in a value, without pydantic's names of union members, and the value there."""
    path: list[int | str] = []
    for part in loc:
        here = isinstance(value, Mapping) and part in value
        if here or (isinstance(value, list) and isinstance(part, int) and part < len(value)):
            path.append(part)
            value = value[part]
    return path, value


# Names that TRL's script and other trainers give a key.
_ELSEWHERE = {
    **dict.fromkeys(("model_name", "model_name_or_path"), "model.name"),
    **dict.fromkeys(("batch_size", "train_batch_size"), "training.per_device_train_batch_size"),
    **dict.fromkeys(("epochs", "num_epochs"), "training.num_train_epochs"),
    "dataset_name": "dataset.name",
    "dataset_config": "dataset.subset",
    "dtype": "model.model_kwargs.torch_dtype",
    "lora_r": "model.lora.r",
    "use_peft": "model.lora.enabled",
    "lr": "training.learning_rate",
    "report_to": "logging",
    "reward_funcs": "rewards",
    "run_name": "exp_name",
}


def nearest_known(key: str, known: Mapping[str, Any]) -> list[str]:
    """The keys that may be meant by an unknown one, the likeliest first."""
    meant = _ELSEWHERE.get(key)
    return [meant] if meant is not None and meant.partition(".")[0] in known else nearest_keys(key, known)


def unknown_keys(keys: Sequence[str], known: Mapping[str, Any]) -> str:
    """A line that names the keys, each with those that may be meant."""
    nearest = (nearest_known(key, known) for key in keys)
    hints = [f"did you mean {' or '.join(each)}?" if each else "--help lists all keys" for each in nearest]
    if len(keys) == 1:
        return f"unknown key {keys[0]}; {hints[0]}"
    return "unknown keys " + ", ".join(f"{key} ({hint})" for key, hint in zip(keys, hints, strict=True))


@cache
def keys_of(kind: Any, prefix: str = "") -> Mapping[str, Any]:
    """Dotted key -> annotation of a dataclass and those in it, sections included; `functions[].name` is in a list."""
    found: dict[str, Any] = {}
    if not _is_section(kind):  # a union of sections, or a list of one
        for part in alternatives(kind):
            listed = get_origin(part) is tuple
            element = get_args(part)[0] if listed else part
            found |= keys_of(element, f"{prefix}[]" if listed else prefix) if _is_section(element) else {}
        return found
    metadata = {field.name: field.metadata for field in fields(kind)} if is_dataclass(kind) else {}
    for name, hint in get_type_hints(kind).items():
        flags, key = metadata.get(name, ()), f"{prefix}.{name}".removeprefix(".")
        if NO_KEY in flags:
            continue
        if INLINE not in flags:
            found[key] = hint
        if ONE_KEY not in flags:
            found |= keys_of(hint, prefix if INLINE in flags else key)
    return found


def _is_section(kind: Any) -> bool:
    return is_typeddict(kind) or (isinstance(kind, type) and is_dataclass(kind))


def alternatives(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def leaves(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of everything in a mapping that is no mapping with keys."""
    for name, value in section.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def single_values(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of everything that is no mapping and no list; an element of a list has the list's key."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from single_values(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from single_values(item, key)
    else:
        yield key, value


def as_typed(value: Any) -> str:
    """A value as a user types it."""
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{as_typed(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(as_typed, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)
