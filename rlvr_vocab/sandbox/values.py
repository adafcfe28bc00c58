"""Plain values as JSON and back, so that nothing but values crosses from a program to its tests."""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, deque, namedtuple

TYPE_CHECKING = False  # without an import: it would take longer than the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_SEQUENCES: dict[str, type[Any]] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "deque": deque}
_MAPPINGS: dict[str, type[Any]] = {"Counter": Counter, "OrderedDict": OrderedDict, "dict": dict}
# Values that are made again from a few plain ones, which their `__reduce__` gives.
_MADE = {
    "builtins": ("range",),
    "datetime": ("date", "datetime", "time", "timedelta", "timezone"),
    "decimal": ("Decimal",),
    "fractions": ("Fraction",),
    "numpy": ("array",),
}


class NotPlain(TypeError):
    """A value is none of those that cross."""


def encoded(value: Any, of_object: Callable[[Any], Any] | None = None) -> Any:
    """A value as JSON, a subclass as its plainest base; `of_object` encodes others, which else raise NotPlain."""
    if value is None or type(value) is bool:
        return value
    for plain in (int, float, str):
        if isinstance(value, plain):
            return plain(value)
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, bytes | bytearray):
        return {"bytes": bytes(value).hex()}
    for name, kind in _MAPPINGS.items():
        if isinstance(value, kind):
            return {name: [[encoded(key, of_object), encoded(item, of_object)] for key, item in value.items()]}
    fields = getattr(value, "_fields", ()) if isinstance(value, tuple) else ()
    for name, kind in _SEQUENCES.items():
        if isinstance(value, kind):
            items = [encoded(item, of_object) for item in value]
            return {"fields": [list(fields), items]} if fields else {name: items}
    module, name = type(value).__module__, type(value).__name__
    if module == "numpy" and getattr(value, "ndim", None) == 0:
        item = value.item()
        if type(item).__module__ != "numpy":  # a longdouble's is itself
            return encoded(item, of_object)
    elif (module, name) == ("numpy", "ndarray") and value.dtype.names is None:
        return {"made": [module, "array", encoded([value.tolist(), value.dtype.str], of_object)]}
    elif name in _MADE.get(module, ()):
        return {"made": [module, name, encoded(list(value.__reduce__()[1]), of_object)]}
    if of_object is None:
        raise NotPlain(f"{type(value).__name__} is no plain value")
    return {"object": of_object(value)}


def decoded(value: Any, of_object: Callable[[Any], Any] | None = None) -> Any:
    """The inverse of `encoded`, which raises NotPlain for other JSON; `of_object` decodes objects."""
    if not isinstance(value, dict):
        if isinstance(value, list):
            raise NotPlain("a list that does not say what it was")
        return value
    match value:
        case {"complex": [int() | float() as real, int() | float() as imaginary]}:
            return complex(real, imaginary)
        case {"bytes": str() as text}:
            return bytes.fromhex(text)
        case {"fields": [list() as fields, list() as items]}:
            return namedtuple("Row", fields)(*(decoded(item, of_object) for item in items))
        case {"made": [str() as module, str() as name, arguments]} if name in _MADE.get(module, ()):
            __import__(module)
            return getattr(sys.modules[module], name)(*decoded(arguments, of_object))
        case {"object": name} if of_object is not None:
            return of_object(name)
    [(name, items)] = value.items()
    if name in _MAPPINGS and isinstance(items, list):
        return _MAPPINGS[name]({decoded(key, of_object): decoded(item, of_object) for key, item in items})
    if name not in _SEQUENCES or not isinstance(items, list):
        raise NotPlain(f"no value is called {name}")
    return _SEQUENCES[name](decoded(item, of_object) for item in items)
