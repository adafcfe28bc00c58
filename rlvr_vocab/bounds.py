"""Numbers and paths as a configuration may have them, said beside their types for pydantic."""

from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le
from pydantic import AfterValidator, BeforeValidator, Strict


def _whole(value: Any) -> Any:
    """1e3 is a whole number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _not_empty(value: Any) -> Any:
    if value == "":
        raise ValueError("must not be empty")
    return value


Whole = Annotated[int, BeforeValidator(_whole)]
Count = Annotated[Whole, Ge(1)]
NotNegative = Annotated[float, Ge(0)]
Share = Annotated[float, Ge(0), Le(1)]
Seed = Annotated[Whole, Ge(0), Le(2**31 - 1)]  # NumPy takes 32 bits, and later stages count up from it
UserPath = Annotated[Path, Strict(False), BeforeValidator(_not_empty), AfterValidator(Path.expanduser)]
