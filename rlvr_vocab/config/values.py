"""Plain values of the configuration -> values of an annotated type, or one line that names the key."""

import math
import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from rlvr_vocab.errors import UserError
from rlvr_vocab.nearest import did_you_mean, nearest_and_all
from rlvr_vocab.visible_text import writable

T = TypeVar("T")

KIND_NAMES = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    Path: "a path",
    dict: "a mapping",
    list: "a list",
    tuple: "a list",
}


LARGEST_WHOLE_NUMBER = 2**63 - 1


def leaves(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of everything in a mapping that is no mapping with keys."""
    for name, value in section.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def single_values(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of everything that is no mapping and no list; what stands in a list has the list's key."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from single_values(item, dotted(key, name))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from single_values(item, key)
    else:
        yield key, value


def refuse_impossible_values(config: Mapping[str, Any]) -> None:
    """Raises UserError where a number is too large for 64 bits or not finite, or UTF-8 cannot write a text."""
    for key, value in single_values(config):
        if isinstance(value, int) and abs(value) > LARGEST_WHOLE_NUMBER:
            raise UserError(f"{key}: a whole number of {len(str(abs(value)))} digits is too large")
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{key}={value}: must be finite")
        if isinstance(value, str) and writable(value) != value:
            raise UserError(f"{key}={writable(value)!r:.60}: holds half a surrogate pair, which UTF-8 cannot write")


def dotted(section: str, name: object) -> str:
    return f"{section}.{name}" if section else str(name)


def wrong_type(value: Any, key: str, expected: str) -> UserError:
    python_none = "; YAML's None is null" if value == "None" else ""
    return UserError(f"{key}: expected {expected}, got {value!r}{python_none}")


def as_typed(value: Any) -> str:
    """A value as a user types it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_scalar(kind: type, value: Any, key: str) -> Any:
    """int, float, bool, str or Path; a whole float is an int, an int is a float, and a bool is neither."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is int and number and value == value // 1:
        return int(value)
    if kind is float and number:
        return float(value)
    if kind is Path and isinstance(value, str) and value:
        return Path(value).expanduser()
    if kind in (bool, str, dict, list) and isinstance(value, kind):
        return value
    raise wrong_type(value, key, KIND_NAMES[kind])


def read_choice(choices: tuple[Any, ...], value: Any, key: str) -> Any:
    if value in choices and isinstance(value, str):
        return value
    raise UserError(f"{key}={as_typed(value)}: no such choice{nearest_and_all(str(value), choices)}")


def read_union(options: tuple[Any, ...], value: Any, key: str) -> Any:
    if value is None and type(None) in options:
        return None
    options = tuple(option for option in options if option is not type(None))
    if len(options) == 1:
        return read(options[0], value, key)
    literals = [choice for option in options for choice in get_args(option) if get_origin(option) is Literal]
    if value in literals:
        return value
    plain = next(option for option in options if get_origin(option) is not Literal)
    if isinstance(value, str):
        raise wrong_type(value, key, " or ".join([KIND_NAMES[get_origin(plain) or plain], *map(str, literals)]))
    return read(plain, value, key)


def read_tuple(items: tuple[Any, ...], value: Any, key: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise wrong_type(value, key, "a list")
    kinds = [items[0]] * len(value) if items[-1] is Ellipsis else list(items)
    if len(kinds) != len(value):
        raise wrong_type(value, key, f"a list of {len(kinds)}")
    return tuple(read(kind, item, f"{key}[{i}]") for i, (kind, item) in enumerate(zip(kinds, value, strict=True)))


def read(annotation: Any, value: Any, key: str) -> Any:
    """`value` as `annotation` says.

    Raises:
        UserError: naming `key`, what was given and what is expected.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is Any:
        return value
    if origin is Annotated:
        converted = read(arguments[0], value, key)
        for bounds in arguments[1:]:
            bounds.check(converted, key)
        return converted
    if origin in (Union, types.UnionType):
        return read_union(arguments, value, key)
    if origin is Literal:
        return read_choice(arguments, value, key)
    if origin is tuple:
        return read_tuple(arguments, value, key)
    if is_dataclass(annotation) and isinstance(annotation, type):
        return read_section(annotation, value, key)
    return read_scalar(origin or annotation, value, key)


def read_section(section: type[T], value: Any, key: str = "", ready: dict[str, Any] | None = None) -> T:
    """A dataclass from a mapping; the fields in `ready` are taken as they are."""
    if not isinstance(value, dict):
        raise wrong_type(value, key, "a mapping")
    ready = ready or {}
    hints = get_type_hints(section, include_extras=True)
    names = [field.name for field in fields(section)]  # type: ignore[arg-type]  # T is a dataclass
    for name in value:
        if name not in names:
            raise UserError(f"unknown key {dotted(key, name)}{did_you_mean(str(name), names)}")
    arguments = dict(ready)
    for field in fields(section):  # type: ignore[arg-type]
        if field.name in ready:
            continue
        if field.name in value:
            arguments[field.name] = read(hints[field.name], value[field.name], dotted(key, field.name))
        elif field.default is MISSING and field.default_factory is MISSING:
            raise UserError(f"{dotted(key, field.name)} is missing from the configuration")
    return section(**arguments)
