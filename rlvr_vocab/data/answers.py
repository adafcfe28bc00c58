"""Extracts the bare final answer from a cell of an answer column, or the reason why there is none."""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from rlvr_vocab.data.source import FIELD, fields_of
from rlvr_vocab.verify.scanning import group_end

MISSING_ANSWER = "missing answer"

GROUPED_NUMBER = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
BOX_OPENING = re.compile(r"\\boxed\s*\{")

NEARLY_ALL = 0.9

# Above this, floats skip integers, and their last digits mean nothing.
LARGEST_EXACT_FLOAT = 2.0**53


class UnusableRow(ValueError):
    """A row that cannot be trained on: the reason, and the text that shows it."""

    def __init__(self, reason: str, shown: object) -> None:
        super().__init__(reason)
        self.reason = reason
        self.shown = shown


def cell_answer(value: object, answer_format: str, decimal: str = "point") -> Any:
    r"""The bare final answer in one cell, by the format `hash` or `boxed`; any other format takes the whole cell.

    With `bare` the cell may also be a number, a boolean, a list or a dict. `decimal` is `point`, or `comma` for text
    with numbers like `1.234,5`. Raises UnusableRow if there is no answer.
    """
    text = "" if value is None or is_nan(value) else plain_text(value)
    is_value = isinstance(value, bool | list | dict) or (text and isinstance(value, int | float))
    if is_value and answer_format not in EXTRACTORS:
        return value
    if text is None:
        raise UnusableRow("answer is neither text nor a number", value)
    text = with_decimal_points(text) if decimal == "comma" else text
    answer = EXTRACTORS.get(answer_format, str)(text).strip() if text.strip() else ""
    if not answer:
        raise UnusableRow(MISSING_ANSWER, value)
    return answer


def gold_text(gold: object) -> str | None:
    """A gold answer for rewards that compare text: "" for a missing one; None for a list or an object."""
    if isinstance(gold, bool):
        return str(gold).lower()
    return "" if gold is None or is_nan(gold) else plain_text(gold)


def column_names(rows: Iterable[object]) -> list[str]:
    """The columns that occur in any row, in the order of their first occurrence."""
    return list(dict.fromkeys(name for row in rows if isinstance(row, dict) for name in row))


def cell_at(row: Mapping[str, Any], column: str) -> Any:
    """The cell of a column, of a dotted path in one (`question.stem`, `answers.0`), or columns joined by a template."""
    if column in row:
        return row[column]
    if fields_of(column):
        cells = {name: cell_at(row, name) for name in fields_of(column)}
        texts = {name: "" if is_blank(cell) else cell_text(cell) or "" for name, cell in cells.items()}
        joined = FIELD.sub(lambda name: texts[name[1]], column.replace("\\n", "\n")).strip()
        return joined if any(texts.values()) else ""
    value: Any = row
    for part in column.split("."):
        if isinstance(value, list) and part.isdecimal():
            value = value[int(part)] if int(part) < len(value) else None
        else:
            value = value.get(part) if isinstance(value, Mapping) else None
    return value


def cell_text(value: object) -> str | None:
    """A cell as text: numbers in short, lists and objects as JSON, a missing one still missing."""
    if value is None:
        return None
    text = plain_text(value)
    return text if text is not None else json.dumps(value, ensure_ascii=False, default=str)


def plain_text(value: object) -> str | None:
    """Text as it is, a finite number as its shortest text (72.0 is `72`), None for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or is_nan(value):
        return None
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        exact_integer = value.is_integer() and abs(value) <= LARGEST_EXACT_FLOAT
        return str(int(value)) if exact_integer else repr(value)
    if isinstance(value, Decimal) and value.is_finite():
        digits = format(value, "f")
        return digits.rstrip("0").rstrip(".") if "." in digits else digits
    return None


def is_nan(value: object) -> bool:
    """Whether the value is NaN, which tables use for a missing value."""
    return isinstance(value, float | Decimal) and value != value


def is_blank(value: object) -> bool:
    """Whether a cell is missing or holds no text."""
    return value is None or is_nan(value) or (isinstance(value, str) and not value.strip())


def hash_answer(text: str) -> str:
    """The text after the last `####`, without the thousands separators of a plain number (GSM8K's `1,000`)."""
    _, marker, answer = text.rpartition("####")
    if not marker:
        raise UnusableRow('no "####" in the answer', text)
    answer = answer.strip()
    return answer.replace(",", "") if GROUPED_NUMBER.fullmatch(answer) else answer


def boxed_answer(text: str) -> str:
    r"""The contents of the last `\boxed{...}` whose braces balance."""
    for opening in reversed(list(BOX_OPENING.finditer(text))):
        end = group_end(text, opening.end() - 1)
        if end is not None:
            return text[opening.end() : end - 1]
    raise UnusableRow(r"no complete \boxed{...} in the answer", text)


# A number with a decimal comma; dots, spaces or quotes between its thousands.
_GROUPS = r"[1-9][0-9]{0,2}(?:(?:[.' ~\u00a0\u2009\u202f]|\\[,:; ]|\{\.\})[0-9]{3})+"
_COMMA_NUMBER = re.compile(
    rf"(?<![\w.,])(?P<whole>{_GROUPS}|[0-9]+)(?:(?:,|\{{,\}})(?P<part>[0-9]+))?(?![0-9]|[.,][0-9])"
)
_NUMERAL = re.compile(r"(?<![(\[{0-9])[0-9]+(?:(?:[.,]|[' \u00a0\u202f](?=[0-9]{3}(?![0-9])))[0-9]+)*")
_SURELY_COMMA = re.compile(
    rf"0,[0-9]+|[0-9]+,(?:[0-9]{{1,2}}|[0-9]{{4,}})|{_GROUPS},[0-9]+|[1-9][0-9]{{0,2}}(?:\.[0-9]{{3}})+"
)
_SURELY_POINT = re.compile(r"[0-9,]*\.[0-9]+|[0-9]+(?:,[0-9]+){2,}")


def with_decimal_points(text: str) -> str:
    """A text with its numbers in English notation, without thousands separators; `12.5` and `1,234.5` have it already.

    >>> with_decimal_points("12,5 kg"), with_decimal_points("1.234,56"), with_decimal_points("9.000")
    ('12.5 kg', '1234.56', '9000')
    """
    return _COMMA_NUMBER.sub(
        lambda number: re.sub("[^0-9]", "", number["whole"]) + (f".{number['part']}" if number["part"] else ""), text
    )


def decimal_comma(answers: Sequence[object]) -> str | None:
    """A line with an example if a column's numbers seem to have decimal commas or dots between thousands, else None.

    Numbers that fit both notations, like 12 and 1,234, are not evidence.
    """
    texts = [answer.replace("{,}", ",") for answer in answers if isinstance(answer, str)]
    numerals = {text: found[0] for text in texts if len(found := _NUMERAL.findall(text)) == 1}
    commas = [text for text, numeral in numerals.items() if _SURELY_COMMA.fullmatch(numeral)]
    points = [text for text, numeral in numerals.items() if text not in commas and _SURELY_POINT.fullmatch(numeral)]
    if len(commas) <= max(9 * len(points), len(numerals) / 50):
        return None
    return f"answers such as {commas[0]}: if that means {with_decimal_points(commas[0])}, set dataset.decimal=comma"


def unread_marker(answers: Sequence[object]) -> str | None:
    """The format that answers seem to have but are not read by: `hash` or `boxed` if nearly all contain its marker.

    An answer that consists of a box alone is not a worked solution.
    """
    texts = [answer for answer in answers if isinstance(answer, str)]
    for answer_format, marker in (("hash", "####"), ("boxed", r"\boxed")):
        worked = sum(marker in text and not text.startswith(r"\boxed") for text in texts)
        if worked >= NEARLY_ALL * len(answers) > 0:
            return answer_format
    return None


EXTRACTORS: dict[str, Callable[[str], str]] = {"hash": hash_answer, "boxed": boxed_answer}
