"""Bounds of numbers and paths: of a configuration, as annotations for pydantic, and the mark that a score reaches."""

from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le
from pydantic import AfterValidator, BeforeValidator, Strict


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value  # 1e3 is a whole number


def _not_empty(value: Any) -> Any:
    if value == "":
        raise ValueError("must not be empty")
    return value


Whole = Annotated[int, BeforeValidator(_whole), Le(2**63 - 1)]
WholeFrom0 = Annotated[Whole, Ge(0)]
Count = Annotated[Whole, Ge(1)]
NotNegative = Annotated[float, Ge(0)]
Share = Annotated[float, Ge(0), Le(1)]
Seed = Annotated[WholeFrom0, Le(2**31 - 1)]  # NumPy takes 32 bits, and later stages count up from it


def _folder_to_write(folder: Path) -> Path:
    for path in (folder, *folder.parents):
        if path.exists() and not path.is_dir():
            raise ValueError(f"{path} is a file; give a folder")
    return folder


def _new_folder(folder: Path) -> Path:
    if folder.is_dir() and any(folder.iterdir()):
        raise ValueError("not empty; choose another folder")
    return folder


def _file_to_write(file: Path) -> Path:
    if file.is_dir():
        raise ValueError("a folder; give a file")
    _folder_to_write(file.parent)
    return file


UserPath = Annotated[Path, Strict(False), BeforeValidator(_not_empty), AfterValidator(Path.expanduser)]
OutFolder = Annotated[UserPath, AfterValidator(_folder_to_write)]
NewFolder = Annotated[OutFolder, AfterValidator(_new_folder)]
OutFile = Annotated[UserPath, AfterValidator(_file_to_write)]

# Of a score that is a sum, or was stored in float32; relative where it is larger than 1.
_ROUNDING = 1e-6


def reaches(score: float, mark: float) -> bool:
    """Whether a score is at least a mark, but for rounding; never where one is NaN.

    >>> reaches(0.1 + 0.7, 0.8), reaches(0.79, 0.8)
    (True, False)
    """
    return score >= mark - _ROUNDING * max(1.0, abs(mark))
