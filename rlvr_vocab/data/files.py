"""The files of problem sets: told from hub names, and their rows read with values as they were written."""

import codecs
import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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


# The csv module's own limit, 128 KiB a cell, is shorter than a long worked solution.
LARGEST_CELL = 2**31 - 1
PARQUET_MARK = b"PAR1"  # at both ends of a file
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
# What may be left of a JSON text from where it is wrong on, if more of it would mend it.
CUT_OFF = re.compile(r"|-|\.|[eE][-+]?|tr?u?|fa?l?s?|nu?l?|\\?u?[0-9a-fA-F]{0,4}")


def read_rows(path: Path) -> list[Any]:
    """The rows of a file: dicts, and whatever else a JSON file holds where a row should be.

    Cells of .csv and .tsv files are text, never guessed into numbers.

    Raises:
        UserError: If the file cannot be read; says where it breaks.
    """
    try:
        return READERS[path.suffix.lower()](path)
    except OSError as error:
        raise UserError(f"{path.absolute()} cannot be read: {error}") from error


def read_text(path: Path) -> str:
    """The file as UTF-8 text, with or without a byte order mark."""
    content = path.read_bytes()
    refuse_wide_characters(content, path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # error.object has lost the byte order mark, if there was one.
        position = error.start + len(content) - len(error.object)
        raise UserError(
            f"{path.absolute()} is not UTF-8: byte {position} is 0x{content[position]:02x}; save the file as UTF-8"
        ) from error


def refuse_wide_characters(content: bytes, path: Path) -> None:
    """UTF-16 and UTF-32, which English text without a mark would otherwise pass as UTF-8 full of null characters."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in content[:4]:
        raise UserError(f"{path.absolute()} is UTF-16 or UTF-32; save the file as UTF-8")


def read_csv(path: Path) -> list[dict[str, str | None]]:
    """Rows of a comma-separated file, keyed by its first line; cells missing at a line's end are None."""
    return read_delimited(path, delimiter=",")


def read_tsv(path: Path) -> list[dict[str, str | None]]:
    """Rows of a tab-separated file, quoted as in .csv."""
    return read_delimited(path, delimiter="\t")


def read_delimited(path: Path, delimiter: str) -> list[dict[str, str | None]]:
    csv.field_size_limit(LARGEST_CELL)
    text = read_text(path)
    check_delimiter(text.lstrip().partition("\n")[0], delimiter, path)
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        header = next((cells for cells in lines if cells), [])
        check_header(header, path)
        return [keyed_cells(header, cells, f"{path.absolute()}:{lines.line_num}") for cells in lines if cells]
    except csv.Error as error:
        cut_off = "; a quote is never closed, or the text breaks off" if str(error) == "unexpected end of data" else ""
        where = f"{path.absolute()}:{lines.line_num}"
        raise UserError(f"{where} breaks the quoting rules of CSV: {error}{cut_off}") from error


def check_delimiter(first_line: str, delimiter: str, path: Path) -> None:
    other = next((mark for mark in DELIMITERS if mark in first_line), delimiter)
    if delimiter not in first_line and other != delimiter:
        advice = {"\t": "name the file .tsv", ",": "name the file .csv"}.get(
            other, f"save it with {DELIMITERS[delimiter]}"
        )
        by = f"{DELIMITERS[other]}, not by {DELIMITERS[delimiter]}"
        raise UserError(f"{path.absolute()}:1 separates its columns by {by}; {advice}")


def check_header(header: list[str], path: Path) -> None:
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise UserError(f'{path.absolute()}:1 names the column "{repeated[0]}" twice; names must differ')


def keyed_cells(header: list[str], cells: list[str], where: str) -> dict[str, str | None]:
    if len(cells) > len(header):
        raise UserError(
            f"{where} has {len(cells)} cells where the first line names {len(header)} columns;"
            " put quotes around a cell that holds the delimiter"
        )
    missing: list[str | None] = [None] * (len(header) - len(cells))
    return dict(zip(header, [*cells, *missing], strict=True))


def read_json(path: Path) -> list[Any]:
    """Rows of a list of objects, of `{"data": [...]}`, or of an object of columns."""
    content = parse_json(read_text(path), str(path.absolute()))
    if isinstance(content, dict) and is_row_list(content.get("data")):
        content = content["data"]
    if isinstance(content, list):
        return content
    if isinstance(content, dict) and content and all(isinstance(column, list) for column in content.values()):
        return rows_of_columns(content, path)
    raise UserError(
        f"{path.absolute()} holds neither a list of objects, nor an object of columns (lists of one length),"
        ' nor {"data": [...]}'
    )


def is_row_list(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(row, dict) for row in value)


def rows_of_columns(columns: dict[str, list[Any]], path: Path) -> list[dict[str, Any]]:
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        described = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise UserError(f"{path.absolute()} has columns of different lengths ({described}); they must be equal")
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def read_jsonl(path: Path) -> list[Any]:
    """Rows of a file with one JSON value per line; blank lines are no rows."""
    return list(jsonl_rows(path))


def jsonl_rows(path: Path) -> Iterator[Any]:
    # Not splitlines(): it also breaks at U+2028, which JSON text may hold (one GSM8K problem does).
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            yield parse_json(line, f"{path.absolute()}:{number}")


def parse_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is not valid JSON: {error}{what_broke(text, error)}") from error


def what_broke(text: str, error: Exception) -> str:
    """The usual ways to break a JSON file: one of the two kinds under the other's name, and an end that was cut off."""
    if text.strip() in ("[", "{"):
        return "; JSON over several lines is .json"
    if isinstance(error, json.JSONDecodeError) and error.msg == "Extra data":
        return "; one object per line is .jsonl"
    if isinstance(error, json.JSONDecodeError) and breaks_off(text.rstrip(), error):
        return "; the text breaks off"
    return ""


def breaks_off(text: str, error: json.JSONDecodeError) -> bool:
    """Whether the text is the beginning of a valid one; a string that is never closed lasts to its end."""
    return error.msg.startswith("Unterminated string") or CUT_OFF.fullmatch(text[error.pos :]) is not None


def read_parquet(path: Path) -> list[dict[str, Any]]:
    """Rows of a Parquet file."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        return ParquetFile(path).read().to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        content = path.read_bytes()
        cut_off = content.startswith(PARQUET_MARK) and not content.endswith(PARQUET_MARK)
        reason = "it breaks off" if cut_off else one_line(error)
        raise UserError(f"{path.absolute()} is not a readable Parquet file: {reason}") from error


def one_line(error: BaseException, limit: int = 300) -> str:
    """What a library's error says, as one line of at most `limit` characters."""
    return " ".join(str(error).split())[:limit] or type(error).__name__


READERS: dict[str, Callable[[Path], list[Any]]] = {
    ".csv": read_csv,
    ".tsv": read_tsv,
    ".json": read_json,
    ".jsonl": read_jsonl,
    ".parquet": read_parquet,
}
