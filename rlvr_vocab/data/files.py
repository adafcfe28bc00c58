"""Reads the rows of a file, a folder or a hub set, with their values unchanged."""

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.text import nearest_word, short_text


def local_file(name: str) -> Path | None:
    """The file named by a data set's name; None for a hub name or a folder, which `datasets` reads.

    A name with a known extension or a prefix like `./` is a path even if no such file exists: a typo is not looked up
    on the hub. Raises UserError where `check_file` does.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        return None
    if path.suffix.lower() not in READERS and not name.startswith((".", "/", "~")) and not path.exists():
        return None
    check_file(path)
    return path


def check_file(path: Path) -> None:
    """Raises UserError for a file that is missing or empty, or has an unknown extension; it is not opened."""
    absolute = path.absolute()
    if not path.exists():
        names = sorted(entry.name for entry in absolute.parent.glob("*") if entry.suffix.lower() in READERS)
        nearest = nearest_word(path.name, names, cutoff=0)
        raise UserError(f"data file {absolute} does not exist" + f"; the nearest file there is {nearest}" * bool(names))
    if not path.is_file() or path.suffix.lower() not in READERS:
        raise UserError(f"{absolute} is not a file with one of the extensions {', '.join(READERS)}")
    if path.stat().st_size == 0:
        raise UserError(f"data file {absolute} is empty; it must hold at least one row")


def hub_rows(name: str, subset: str | None, split: str) -> list[dict[str, Any]]:
    """The rows of one split of a hub set or a folder; raises UserError if it cannot be loaded."""
    from datasets import load_dataset

    place = str(Path(name).expanduser()) if name.startswith("~") else name
    try:
        return load_dataset(place, subset, split=split).to_list()
    except Exception as error:  # anything from httpx.ConnectError to a loading script's RuntimeError
        wanted = f"split {split}" if subset is None else f"configuration {subset}, split {split}"
        raise UserError(
            f"dataset {name} ({wanted}) could not be loaded from the Hugging Face hub or a folder:"
            f" {short_text(error, 300)}; to read a local file, set dataset=local dataset.name=FILE"
        ) from error


def read_rows(path: Path) -> list[Any]:
    """The rows of a file: dicts, lines of a .txt file, or any other value in place of a row of a JSON file.

    Cells of .csv and .tsv files are text, never guessed into numbers. Raises UserError, which names the place.
    """
    check_file(path)
    try:
        return READERS[path.suffix.lower()](path)
    except OSError as error:
        raise UserError(f"{path.absolute()} cannot be read: {error}") from error


def _read_text(path: Path) -> str:
    """The file as UTF-8 text, with or without a byte order mark."""
    content = path.read_bytes()
    try:
        return content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        place = f"byte {error.start} is 0x{content[error.start]:02x}"
        raise UserError(f"{path.absolute()} is not UTF-8: {place}; save the file as UTF-8") from error


def _read_lines(path: Path) -> list[tuple[int, str]]:
    """The lines that are not blank, each with its number."""
    # Not splitlines(): it also breaks at U+2028, U+0085 and form feeds, which JSON text and prompts may hold.
    lines = enumerate(_read_text(path).split("\n"), start=1)
    return [(number, line.removesuffix("\r")) for number, line in lines if line.strip()]


LARGEST_CELL = 2**31 - 1  # the csv module's own limit, 128 KiB, is shorter than a long worked solution
LINES_OF_PROSE = 4  # by chance, up to this many lines of prose have as many commas as the first line
DELIMITERS = ",;\t|"
ONLY_QUOTED = re.compile(r'(?<![^\t;|])"([^"\t;|]*)"(?![^\t;|])')
QUOTING_ADVICE = "put quotes around a cell that begins with one, and double those in it"


def _read_csv(path: Path) -> list[dict[str, str | None]]:
    """Rows of a table, keyed by its first line; cells missing at a line's end are None.

    The delimiter is the extension's, or else detected from the first line. If every line has as many delimiters as the
    first and no quote is doubled, quotes are ordinary text, except in a file with commas, as prose contains commas too.
    """
    where = str(path.absolute())
    lines = list(io.StringIO(_read_text(path), newline=""))
    filled = [line for line in lines if line.strip()] or [""]
    usual = "\t" if path.suffix.lower() == ".tsv" else ","
    delimiter = next((each for each in (usual, *DELIMITERS) if each in filled[0]), usual)
    is_plain = len({line.count(delimiter) for line in filled}) == 1 and not any('""' in line for line in filled)
    if is_plain and delimiter != "," and '"' not in filled[0]:
        cells_of = [ONLY_QUOTED.sub(r"\1", line.rstrip("\r\n")).split(delimiter) for line in lines]
        records = [(number, cells) for number, cells in enumerate(cells_of, start=1) if any(cells)]
    else:
        records = _quoted_records(lines, delimiter, where)
    header = records[0][1] if records else []
    if repeated := [name for name in header if header.count(name) > 1]:
        raise UserError(f'{where}:1 names the column "{repeated[0]}" twice; names must differ')
    for number, cells in records[1:]:
        if len(cells) > len(header):
            raise UserError(
                f"{where}:{number} has {len(cells)} cells where the first line names {len(header)} columns;"
                " put quotes around a cell that holds the delimiter"
            )
    missing: list[str | None] = [None] * len(header)
    return [dict(zip(header, [*cells, *missing], strict=False)) for _, cells in records[1:]]


def _quoted_records(lines: list[str], delimiter: str, where: str) -> list[tuple[int, list[str]]]:
    """The records of a table with the number of the line where each begins, blank ones left out.

    Raises UserError if a quote is misplaced or never closed, or a quote meant as text encloses whole rows.
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
        raise UserError(f"{where}:{begins} breaks the quoting rules of CSV: {error}; {QUOTING_ADVICE}") from error
    if long_cells and all(like_rows for *_, like_rows in long_cells):
        opened, closed, _ = long_cells[0]
        raise UserError(
            f"{where}:{opened} opens a quote and line {closed} closes it, around whole rows: {QUOTING_ADVICE}"
        )
    return records


def _read_json(path: Path) -> list[Any]:
    """Rows of a list of objects, or of an object in which exactly one key holds such a list."""
    content = _parse_json(_read_text(path), str(path.absolute()))
    if isinstance(content, list):
        return content
    table = content if isinstance(content, dict) else {}
    lists = {key: rows for key, rows in table.items() if isinstance(rows, list) and dict in map(type, rows)}
    if len(lists) == 1:
        return next(iter(lists.values()))
    raise UserError(f"{path.absolute()} holds neither a list of objects, nor an object of which one key does")


def _parse_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is not valid JSON: {error}") from error


def _read_parquet(path: Path) -> list[dict[str, Any]]:
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        return ParquetFile(path).read().to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path.absolute()} is not a readable Parquet file: {short_text(error, 300)}") from error


READERS: dict[str, Callable[[Path], list[Any]]] = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".json": _read_json,
    ".jsonl": lambda path: [_parse_json(line, f"{path.absolute()}:{number}") for number, line in _read_lines(path)],
    ".parquet": _read_parquet,
    ".txt": lambda path: [line for _, line in _read_lines(path)],
}
