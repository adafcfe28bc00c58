"""Reads the rows of a file, a folder or a hub set, with their values unchanged."""

import codecs
import csv
import gzip
import io
import json
import re
import shlex
import unicodedata
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlvr_vocab.data.source import EXTENSIONS, FROM_PYTHON, extension_of, names_file
from rlvr_vocab.data.suggest import header_keys
from rlvr_vocab.errors import UserError
from rlvr_vocab.text import nearest_word, pluralize, short_text


def local_file(name: str) -> Path | None:
    """The file that a name stands for, a mistyped path refused as by `check_file`; None for a hub name or a folder."""
    if name.startswith(FROM_PYTHON):
        script = name.removeprefix(FROM_PYTHON)
        raise UserError(f"this run is from Python, and its script makes the problems ({script}): give dataset=…")
    path = Path(name).expanduser()
    if path.is_dir() or not (names_file(name) or path.exists()):
        return None
    check_file(path)
    return path


def check_file(path: Path) -> None:
    """Raises UserError for a file that is missing or empty, or has an unknown extension; it is not opened."""
    absolute = path.absolute()
    if not path.exists():
        parts = str(path).split(",")
        if "*" in path.name or (len(parts) > 1 and all(extension_of(Path(part)) in EXTENSIONS for part in parts)):
            raise UserError(f"{path}: one file is read, not several: join them, and give that file")
        names = sorted(entry.name for entry in absolute.parent.glob("*") if extension_of(entry) in EXTENSIONS)
        nearest = nearest_word(path.name, names, cutoff=0)
        raise UserError(f"data file {absolute} does not exist" + f"; the nearest file there is {nearest}" * bool(names))
    if not path.is_file() or extension_of(path) not in EXTENSIONS:
        endings = f"{', '.join(EXTENSIONS)}, with or without .gz"
        advice = "; save the sheet as CSV UTF-8" * path.suffix.lower().startswith((".xls", ".ods"))
        raise UserError(f"{absolute} is not a file with one of the extensions {endings}{advice}")
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
            f" {short_text(error, 300)}; to read a local file, set dataset=FILE"
        ) from error


def read_rows(path: Path, split: str = "train", header: Sequence[str] | None = None) -> list[Any]:
    """The rows of a file: dicts, lines of a .txt file, or any other value in place of a row of a JSON file.

    Cells of a table are text. `split` is the key of the list of rows in a JSON file with several lists; `header` names
    the columns of a table whose first line is a row. Raises UserError, which names the place.
    """
    check_file(path)
    extension, where = extension_of(path), str(path.absolute())
    is_table = extension in (".csv", ".tsv")
    if header is not None and not is_table:
        raise UserError(f"dataset.header names the columns of CSV and TSV files; {where} names its own")
    try:
        if is_table:
            return _read_csv(path, header)
        if extension == ".parquet":
            return _read_parquet(path)
        if extension == ".json":
            return _read_json(_read_text(path), where, split)
        # Not splitlines(): it also breaks at U+2028, U+0085 and form feeds, which JSON text and prompts may hold.
        numbered = enumerate(_read_text(path).split("\n"), start=1)
        lines = [(number, line.removesuffix("\r")) for number, line in numbered if line.strip()]
    except (OSError, EOFError, zlib.error) as error:  # the last two are raised for damaged .gz files
        raise UserError(f"{where} cannot be read: {error}") from error
    if extension == ".txt":
        return [line for _, line in lines]
    return [value for number, line in lines for value in _json_values(line, f"{where}:{number}")]


def _read_bytes(path: Path) -> bytes:
    content = path.read_bytes()
    return gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content


def _read_text(path: Path) -> str:
    """The file as UTF-8 text, with or without a byte order mark."""
    content = _read_bytes(path)
    try:
        return content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        place = f"byte {error.start} is 0x{content[error.start]:02x}"
        likely = "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "cp1252"
        read_as = short_text(content.decode(likely, "replace")[max(0, error.start - 20) :], 40)
        convert = shlex.join(["iconv", "-f", likely, "-t", "utf-8", str(path)])
        raise UserError(
            f"{path.absolute()} is not UTF-8: {place}; as {likely}, which Excel writes, it reads {read_as!r} there:"
            f" save it as UTF-8, or type {convert} > utf8_{path.name}"
        ) from error


LARGEST_CELL = 2**31 - 1  # the csv module's own limit, 128 KiB, is shorter than a long worked solution
LINES_OF_PROSE = 4  # by chance, up to this many lines of prose have as many commas as the first line
DELIMITERS = ",;\t|"
BLANKS = re.compile(r"\s*")
ONLY_QUOTED = re.compile(r'(?<![^\t;|])"([^"\t;|]*)"(?![^\t;|])')
QUOTING_ADVICE = "put quotes around a cell that begins with one, and double those in it"


def _read_csv(path: Path, header: Sequence[str] | None) -> list[dict[str, str | None]]:
    """Rows of a table, keyed by its first line or by `header`; cells missing at a line's end are None.

    If every line has as many delimiters as the first and no quote is doubled, quotes are ordinary text, except in a
    file with commas, as prose contains commas too.
    """
    csv.field_size_limit(LARGEST_CELL)
    where = str(path.absolute())
    lines = list(io.StringIO(_read_text(path), newline=""))
    if lines and lines[0].strip('"\r\n').startswith("sep="):  # Excel's name of the delimiter, which is found out
        lines[0] = "\n"
    filled = [line for line in lines if line.strip()] or [""]
    delimiter = _delimiter(filled, "\t" if extension_of(path) == ".tsv" else ",")
    is_plain = len({line.count(delimiter) for line in filled}) == 1 and not any('""' in line for line in filled)
    if is_plain and delimiter != "," and '"' not in filled[0]:
        cells_of = [ONLY_QUOTED.sub(r"\1", line.rstrip("\r\n")).split(delimiter) for line in lines]
        records = [(number, cells) for number, cells in enumerate(cells_of, start=1) if any(cells)]
    else:
        records = _quoted_records(lines, delimiter, where)
    namer = "the first line" if header is None else "dataset.header"
    places = (place for _, cells in records for place, cell in enumerate(cells, start=1) if cell.strip())
    width = max(max(places, default=0), len(header or ()))  # Excel writes columns without a name or a cell
    records = [(number, cells[:width]) for number, cells in records]
    names = list(header or (unicodedata.normalize("NFC", name) for name in (records[0][1] if records else ())))
    records = records[header is None :]
    if repeated := [name for name in names if names.count(name) > 1]:
        advice = header_keys(names, [cells[-1] for _, cells in records]) if header is None else ""
        raise UserError(f'{where}: {namer} names the column "{repeated[0]}" twice; {advice or "names must differ"}')
    for number, cells in records:
        if len(cells) > len(names) or (header is not None and number == records[0][0] and len(cells) < len(names)):
            raise UserError(
                f"{where}:{number} has {len(cells)} cells where {namer} names {len(names)} columns;"
                " put quotes around a cell that holds the delimiter"
            )
    missing: list[str | None] = [None] * len(names)
    return [dict(zip(names, [*cells, *missing], strict=False)) for _, cells in records]


def _delimiter(lines: Sequence[str], usual: str) -> str:
    """The first delimiter of the first line that gives the first lines equally many cells, else the first one in it."""
    found = [each for each in dict.fromkeys((usual, *DELIMITERS)) if each in lines[0]] or [usual]
    regular = (each for each in found if len(set(map(len, csv.reader(lines[:50], delimiter=each)))) == 1)
    return next(regular, found[0]) if len(found) > 1 else found[0]


def _quoted_records(lines: list[str], delimiter: str, where: str) -> list[tuple[int, list[str]]]:
    """The records of a table with the number of the line where each begins, blank ones left out.

    Raises UserError if a quote is misplaced or never closed, or a quote meant as text encloses whole rows.
    """
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
        place = f"{where}:{opened} opens a quote and line {closed} closes it"
        raise UserError(f"{place}, around whole rows: {QUOTING_ADVICE}")
    return records


def _read_json(text: str, where: str, split: str) -> list[Any]:
    """Rows of a list of objects, of the one list in an object or the one named `split`, or of values in sequence."""
    values = _json_values(text, where)
    tables = {"": values} if len(values) > 1 else _tables(values[0]) or _objects_of_rows(values[0])
    if len(tables) > 1 and split not in tables:
        listed = ", ".join(f"{name} ({pluralize(len(rows), 'row')})" for name, rows in tables.items())
        raise UserError(f"{where} holds {len(tables)} lists of objects, {listed:.300}: name one with dataset.split=…")
    if not tables:
        raise UserError(f"{where} holds no list of objects")
    return tables.get(split) or next(iter(tables.values()))


def _json_values(text: str, where: str) -> list[Any]:
    """The JSON values of a text: one, or several in sequence."""
    values: list[Any] = []
    place, decoder = 0, json.JSONDecoder()
    try:
        while (start := BLANKS.match(text, place).end()) < len(text) or not values:  # type: ignore[union-attr]
            value, place = decoder.raw_decode(text, start)
            values.append(value)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is not valid JSON: {error}") from error
    return values


def _tables(value: Any, name: str = "", depth: int = 9) -> dict[str, list[Any]]:
    """The lists of objects in a JSON value, by their dotted keys; those nearest to the top."""
    if isinstance(value, list):
        return {name: value}
    inner = _entries(value, name)
    lists = {key: each for key, each in inner.items() if isinstance(each, list) and dict in map(type, each)}
    objects = {key: each for key, each in inner.items() if isinstance(each, dict) and depth and not lists}
    return lists | {key: rows for path, each in objects.items() for key, rows in _tables(each, path, depth - 1).items()}


def _objects_of_rows(value: Any, name: str = "", depth: int = 9) -> dict[str, list[Any]]:
    """The objects in a JSON value whose values all look like rows, as `{"id1": {"question": "…"}, …}`, as lists."""
    inner = _entries(value, name)
    if inner and all(isinstance(each, dict) and str in map(type, each.values()) for each in inner.values()):
        return {name: list(inner.values())}
    found = (_objects_of_rows(each, path, depth - 1) for path, each in inner.items() if depth)
    return {key: rows for each in found for key, rows in each.items()}


def _entries(value: Any, name: str) -> dict[str, Any]:
    items = value.items() if isinstance(value, dict) else ()
    return {f"{name}.{key}".removeprefix("."): each for key, each in items}


def _read_parquet(path: Path) -> list[dict[str, Any]]:
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        return ParquetFile(io.BytesIO(_read_bytes(path))).read().to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path.absolute()} is not a readable Parquet file: {short_text(error, 300)}") from error
