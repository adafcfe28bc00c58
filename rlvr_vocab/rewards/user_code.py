"""Reward functions of the user's own, named as `module:function` or `file.py:function`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.text import did_you_mean

# The names whose code a command may import; None where any may be, as in a Python program that names it itself.
_allowed: set[str] | None = None


@contextmanager
def only_allowed_code() -> Iterator[None]:
    """Until the block ends, `require_allowed` refuses every name that `allow` has not been given in it."""
    global _allowed
    before, _allowed = _allowed, set()
    try:
        yield
    finally:
        _allowed = before


def allow(names: Iterable[str]) -> None:
    """Let rewards of these names be used: the user has typed them, or the configuration that has them."""
    if _allowed is not None:
        _allowed.update(names)


def require_allowed(name: str, effect: str) -> None:
    """Raises UserError for what was not allowed; `effect` completes the sentence that begins with its name."""
    if _allowed is not None and name not in _allowed:
        where = "a recorded run names it and this command line does not"
        raise UserError(f"{name} {effect}: {where}; if you trust that run, add trust_code=true")


def is_user_code(name: str) -> bool:
    """Whether a reward is named by where its code is, rather than by its name in the library."""
    return ":" in name


def load_function(name: str) -> Callable[..., Any]:
    """The function that `module:function` or `file.py:function` names; `file.py:object.method` names a method.

    Raises:
        UserError: this command may not import it, the file or module cannot be imported, or holds no such function.
    """
    require_allowed(name, "is code, which would be imported and called")
    where, _, attribute = name.rpartition(":")
    module = _from_file(Path(where).expanduser(), name) if where.endswith(".py") else _from_module(where, name)
    try:
        function = attrgetter(attribute)(module)
    except AttributeError:
        functions = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        near = did_you_mean(attribute, functions)
        raise UserError(f"rewards: {name}: {attribute!r} does not exist in {where}{near}") from None
    if not callable(function) or isinstance(function, type):
        raise UserError(f"rewards: {name} is no function, and no object that can be called")
    return function


def source_file(name: str) -> Path | None:
    """The file that a user's function is named by, or that of its module; None for a module without one."""
    where, _, _ = name.rpartition(":")
    file = where if where.endswith(".py") else getattr(sys.modules[where], "__file__", None)
    return None if file is None else Path(file).expanduser()


def _from_file(path: Path, name: str) -> ModuleType:
    if not path.is_file():
        nearest = [str(other) for other in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise UserError(f"rewards: {name}: no such file {path}{did_you_mean(str(path), nearest)}")
    key = f"rlvr_vocab_user_code_{path.resolve()}"
    if key in sys.modules:
        return sys.modules[key]
    spec = importlib.util.spec_from_file_location(key, path.resolve())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[key] = module
    folder = str(path.resolve().parent)
    if folder not in sys.path:  # last, unlike where the file is run by itself: it hides no installed package
        sys.path.append(folder)
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[key]
        raise _cannot_be_imported(name, error) from error
    return module


def _from_module(where: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(where)
    except BaseException as error:
        raise _cannot_be_imported(name, error) from error


def _cannot_be_imported(name: str, error: BaseException) -> BaseException:
    """Anything that user code raises while it is imported is the user's error; an interruption stays one."""
    if isinstance(error, KeyboardInterrupt | UserError):
        return error
    line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
    where, _, function = name.rpartition(":")
    is_file = isinstance(error, ModuleNotFoundError) and Path(f"{where}.py").is_file()
    hint = f"; name the file: {where}.py:{function}" if is_file else ""
    return UserError(f"rewards: {name} cannot be imported: {type(error).__name__}{line}: {error}{hint}")
