"""The files of problem sets: told from hub names, and their rows read with values as they were written."""

import codecs
import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.text import nearest_word

EXTENSIONS = (".csv", ".tsv", ".json", ".jsonl", ".parquet")
PATH_STARTS = (".", "/", "~")


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
    """The nearest thing to a missing file: the closest name in its folder, or that there is none."""
    folder = missing.parent
    if not folder.is_dir():
        return f"its folder {folder} does not exist either"
    names = sorted(entry.name for entry in folder.iterdir() if entry.suffix.lower() in EXTENSIONS)
    if not names:
        return f"its folder holds no {', '.join(EXTENSIONS)} file"
    closest = nearest_word(missing.name, names, cutoff=0)
    return f"the nearest file there is {closest}"


# The csv module's own limit, 128 KiB a cell, is shorter than a long worked solution.
LARGEST_CELL = 2**31 - 1
LINES_OF_PROSE = 4  # so many may have as many commas as the first line by chance
DELIMITERS = ",;\t|"
ONLY_QUOTED = re.compile(r'(?<![^\t;|])"([^"\t;|]*)"(?![^\t;|])')
MEND_QUOTES = "put quotes around a cell that begins with one, and double those in it"


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
    """Rows of a table, keyed by its first line, which tells the delimiter where it is not that of the extension.

    Cells missing at a line's end are None. Quotes are text where no cell needs any: each line has as many cells as the
    first, and none of them is doubled. Of commas that tells nothing, as prose has them too.
    """
    lines = list(io.StringIO(read_text(path), newline=""))
    filled = [line for line in lines if line.strip()] or [""]
    usual = "\t" if path.suffix.lower() == ".tsv" else ","
    delimiter = next((each for each in (usual, *DELIMITERS) if each in filled[0]), usual)
    is_plain = len({line.count(delimiter) for line in filled}) == 1 and not any('""' in line for line in filled)
    if is_plain and delimiter != "," and '"' not in filled[0]:
        cells_of = [ONLY_QUOTED.sub(r"\1", line.rstrip("\r\n")).split(delimiter) for line in lines]
        records = [(number, cells) for number, cells in enumerate(cells_of, start=1) if any(cells)]
    else:
        records = quoted_records(lines, delimiter, str(path.absolute()))
    header = records[0][1] if records else []
    if repeated := sorted({name for name in header if header.count(name) > 1}):
        raise UserError(f'{path.absolute()}:1 names the column "{repeated[0]}" twice; names must differ')
    return [keyed_cells(header, cells, f"{path.absolute()}:{number}") for number, cells in records[1:]]


def quoted_records(lines: list[str], delimiter: str, where: str) -> list[tuple[int, list[str]]]:
    """The records of a table with the number of the line where each begins, blank ones left out.

    Raises:
        UserError: A quote is misplaced, or never closed, or takes whole rows into its cell, as a quote that is text.
    """
    csv.field_size_limit(LARGEST_CELL)
    reader, records, begins = csv.reader(lines, delimiter=delimiter, strict=True), [], 1
    long_cells = []  # the lines between which a quote opens and closes, and whether each looks like a row
    try:
        for cells in reader:
            taken = lines[begins - 1 : reader.line_num]
            records += [(begins, cells)] if cells else []
            if len(taken) > LINES_OF_PROSE:
                like_rows = {line.count(delimiter) for line in taken} == {len(records[0][1]) - 1} != {0}
                long_cells.append((begins, reader.line_num, like_rows))
            begins = reader.line_num + 1
    except csv.Error as error:
        cut_off = "; a quote is never closed, or the text breaks off" if str(error) == "unexpected end of data" else ""
        raise UserError(f"{where}:{begins} breaks the quoting rules of CSV: {error}{cut_off}; {MEND_QUOTES}") from error
    if long_cells and all(like_rows for *_, like_rows in long_cells):
        opened, closed, _ = long_cells[0]
        raise UserError(f"{where}:{opened} opens a quote and line {closed} closes it, around whole rows: {MEND_QUOTES}")
    return records


def keyed_cells(header: list[str], cells: list[str], where: str) -> dict[str, str | None]:
    if len(cells) > len(header):
        raise UserError(
            f"{where} has {len(cells)} cells where the first line names {len(header)} columns;"
            " put quotes around a cell that holds the delimiter"
        )
    missing: list[str | None] = [None] * (len(header) - len(cells))
    return dict(zip(header, [*cells, *missing], strict=True))


def read_json(path: Path) -> list[Any]:
    """Rows of a list of objects, or of an object in which one key alone holds such a list."""
    content = parse_json(read_text(path), str(path.absolute()))
    if isinstance(content, list):
        return content
    table = content if isinstance(content, dict) else {}
    lists = [
        key for key, rows in table.items() if isinstance(rows, list) and any(isinstance(row, dict) for row in rows)
    ]
    if len(lists) == 1:
        return content[lists[0]]
    found = f"; of its keys {', '.join(lists)} do: save one of them as a file" if lists else ""
    raise UserError(
        f'{path.absolute()} holds neither a list of objects, nor an object of which one key does, as {{"data": [...]}}'
        f"{found}"
    )


def read_jsonl(path: Path) -> list[Any]:
    """Rows of a file with one JSON value per line; blank lines are no rows."""
    # Not splitlines(): it also breaks at U+2028, which JSON text may hold (one GSM8K problem does).
    lines = enumerate(read_text(path).split("\n"), start=1)
    return [parse_json(line, f"{path.absolute()}:{number}") for number, line in lines if line.strip()]


def parse_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        other_kind = ""
        if text.strip() in ("[", "{"):
            other_kind = "; JSON over several lines is .json"
        elif isinstance(error, json.JSONDecodeError) and error.msg == "Extra data":
            other_kind = "; one object per line is .jsonl"
        raise UserError(f"{where} is not valid JSON: {error}{other_kind}") from error


def read_parquet(path: Path) -> list[dict[str, Any]]:
    """Rows of a Parquet file."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        return ParquetFile(path).read().to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path.absolute()} is not a readable Parquet file: {one_line(error)}") from error


def one_line(error: BaseException, limit: int = 300) -> str:
    """What a library's error says, as one line of at most `limit` characters."""
    return " ".join(str(error).split())[:limit] or type(error).__name__


READERS: dict[str, Callable[[Path], list[Any]]] = {
    ".csv": read_csv,
    ".tsv": read_csv,
    ".json": read_json,
    ".jsonl": read_jsonl,
    ".parquet": read_parquet,
}
