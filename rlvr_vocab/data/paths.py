"""Telling a local file from a hub name, and saying what is wrong with a file that cannot be read."""

from pathlib import Path

from rlvr_vocab.errors import UserError
from rlvr_vocab.nearest import nearest_word

EXTENSIONS = (".csv", ".tsv", ".json", ".jsonl", ".parquet")
PATH_STARTS = (".", "/", "~")
FILES_SHOWN = 5


def local_file(name: str) -> Path | None:
    """The file that a data set's name stands for, or None for a hub name or a folder, which `datasets` reads.

    A name that looks like a path (a known extension, or a start like `./`, `/` or `~`) is one even when
    nothing is there, so that a typo is not looked up on the hub.

    Raises:
        UserError: If the file is missing or empty, or has an unknown extension.
    """
    path = expanded(name)
    if path.is_dir():
        return None
    looks_like_path = path.suffix.lower() in EXTENSIONS or name.startswith(PATH_STARTS)
    if not looks_like_path and not path.exists():
        return None
    check_file(path)
    return path


def expanded(name: str) -> Path:
    """The path that a name spells, a leading `~` resolved.

    Raises:
        UserError: If it is the home folder of nobody.
    """
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise UserError(f"data file {name} has no place on this machine: {error}") from error


def check_file(path: Path) -> None:
    """Refuse what cannot be a problem set, before it is opened.

    Raises:
        UserError: If the file is missing or empty, or has an unknown extension.
    """
    absolute = path.absolute()
    if not path.exists():
        raise UserError(f"data file {absolute} does not exist; {what_is_there(absolute)}")
    if not path.is_file():
        raise UserError(f"{absolute} is not a file; a problem set is one of {', '.join(EXTENSIONS)}")
    if path.suffix.lower() not in EXTENSIONS:
        raise UserError(
            f'data file {absolute} has the extension "{path.suffix}"; it must be one of {", ".join(EXTENSIONS)}'
        )
    if path.stat().st_size == 0:
        raise UserError(f"data file {absolute} is empty; it must hold at least one problem")


def what_is_there(missing: Path) -> str:
    """The nearest thing to a missing file: the closest name in its folder, or what the folder holds."""
    folder = missing.parent
    if not folder.is_dir():
        return f"its folder {folder} does not exist either"
    names = sorted(entry.name for entry in folder.iterdir() if entry.suffix.lower() in EXTENSIONS)
    if not names:
        return f"its folder holds no {', '.join(EXTENSIONS)} file"
    closest = nearest_word(missing.name, names)
    if closest is not None:
        return f"the nearest file there is {closest}"
    more = f" and {len(names) - FILES_SHOWN} more" if len(names) > FILES_SHOWN else ""
    return f"its folder holds {', '.join(names[:FILES_SHOWN])}{more}"
