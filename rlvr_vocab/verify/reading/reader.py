r"""Reads an answer as what it is: number, text, letter, tuple, interval, set, matrix, equation, expression.

Structure is read here, from cleaned LaTeX; only what stands between commas and relation signs is left to algebra.
"""

from __future__ import annotations

import re
from functools import lru_cache, partial

from rlvr_vocab.verify.limits import TooLarge, Unreadable, require_bounded
from rlvr_vocab.verify.reading.cleaning import ascii_latex, clean
from rlvr_vocab.verify.reading.numbers import read_number
from rlvr_vocab.verify.reading.readings import (
    BasedNumeral,
    Bracketed,
    Choice,
    Collection,
    Expression,
    Inequality,
    Items,
    Matrix,
    Number,
    Reading,
    Text,
    Union,
    as_latex,
)
from rlvr_vocab.verify.reading.relations import (
    INFINITY,
    MINUS_INFINITY,
    ReadPart,
    intersection,
    plain_name,
    read_relation,
)
from rlvr_vocab.verify.reading.scanning import bracket_end, separators, split_at
from rlvr_vocab.verify.reading.units import DEGREE, DENIALS, split_unit
from rlvr_vocab.verify.reading.wording import is_formula, plain_words

_DEEPEST = 8
_MOST_ITEMS = 200
_SOMETHING = re.compile(r"[^\W_]|\\emptyset|\\infty|\\\{")
_ONLY_TEXT = re.compile(r"\\text\{([^{}]+)\}[.):]?")
_COMMAS = separators("[,;]")
_COMMAS_OF_LIST = separators("[,;]", except_in=r"(?<![0-9.,])[1-9][0-9]{0,2}(?:,[0-9]{3})+(?![0-9,])")
_AND_OR = separators(r"\\text\{ *,? *(?:or|and) *,? *\}|(?<![A-Za-z\\])(?:or|and)(?![A-Za-z])")
_CUP = separators(r"\\cup(?![A-Za-z])")
_SUCH_THAT = separators(r"\\mid(?![A-Za-z])|[:|]")
_SIGN = re.compile(r"\\(pm|mp)(?![A-Za-z]) ?")
_PAIRS = ((r"\{", r"\}"), (r"\langle", r"\rangle"), ("(", ")"), ("[", "]"), ("(", "]"), ("[", ")"))
_REALS = (r"\mathbb{R}", "all real numbers", "all reals")
_BASED = re.compile(
    r"(?P<sign>-?)(?P<opened>\\text\{|[({])?(?P<digits>[0-9A-Fa-f]+)(?(opened)[})])"
    r"_\{\(?(?:\\text\{)?(?: *base ?)?\}?(?P<base>[0-9]{1,2}|[a-z]+)\}?\)?\}"
)
_NEGATED = re.compile(r"-\(([^()]*)\)")
_BASE_WORDS = {
    **dict(zip(("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), range(2, 11), strict=True)),
    "twelve": 12,
    "sixteen": 16,
}
_OF_AN_ANGLE = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc|degree)(?![A-Za-z])")


@lru_cache(maxsize=1_024)
def read(text: str) -> Reading:
    """Read an answer.

    Raises:
        TooLarge: it is longer, deeper or bigger than an answer can be.
        Unreadable: there is nothing in it.

    >>> str(read(r"$\\left(-\\infty, \\tfrac12\\right]$")), str(read("x = 1,234")), str(read("Friday."))
    ('(-\\\\infty, 1/2]', 'x = 1234', "'friday'")
    """
    cleaned = cleaned_answer(text)
    try:
        return _read(cleaned, _DEEPEST)
    except Unreadable:
        return Text(plain_words(cleaned))


def cleaned_answer(text: str) -> str:
    """An answer in the one spelling of `clean`.

    Raises:
        TooLarge: it is longer or deeper than an answer can be.
        Unreadable: there is nothing in it.
    """
    require_bounded(text)
    text = ascii_latex(text)
    require_bounded(text)
    cleaned = clean(text)
    if not _SOMETHING.search(cleaned):
        raise Unreadable("empty")
    require_bounded(cleaned)
    return cleaned


def _read(text: str, depth: int) -> Reading:
    if depth == 0:
        raise TooLarge("tuples within tuples within tuples")
    read_part = partial(_read, depth=depth - 1)
    text = _HALF_BRACKET.sub(r"\g<text>(\g<letter>)", text)
    if words := _ONLY_TEXT.fullmatch(text):
        return read_part(words[1].strip(" .,;:"))
    return (
        read_letter(text)
        or _several(text, read_part)
        or read_labelled(text, read_part)
        or read_relation(text, read_part)
        or _union(text, read_part)
        or _bracketed(text, read_part)
        or read_matrix(text, read_part)
        or _based(text)
        or _quantity(text)
    )


def _several(text: str, read_part: ReadPart) -> Reading | None:
    """Answers side by side. Words are no list: whether `and` or `or` joins them makes a difference."""
    joined = split_at(text, _AND_OR)
    parts = [part.strip(" ,") for _, part in (joined if len(joined) > 1 else split_at(text, _COMMAS_OF_LIST))]
    if len(parts) == 1:
        return _plus_minus(text, read_part)
    if len(parts) > _MOST_ITEMS:
        raise TooLarge(f"{len(parts)} items")
    if not all(parts):
        raise Unreadable("an empty place in a list")
    items = _flat([read_part(part) for part in parts])
    if any(isinstance(item, Text) for item in items):
        return Text(plain_words(text))
    return _one_range(items, text, joined=len(joined) > 1) or Items(items)


def _flat(readings: list[Reading]) -> tuple[Reading, ...]:
    return tuple(flat for item in readings for flat in (item.items if isinstance(item, Items) else (item,)))


def _one_range(items: tuple[Reading, ...], text: str, joined: bool) -> Reading | None:
    """What `x < 1` or `x > 3` allows x to be, or `x > 1` and `x < 3`; None where the items are something else."""
    bounds = [item for item in items if isinstance(item, Inequality) and item.solved]
    if not joined or len(bounds) < len(items) or len({item.name for item in bounds}) > 1:
        return None
    if "and" not in text:
        return Union(tuple(item.solved for item in bounds if item.solved))
    return intersection(*bounds) if len(bounds) == 2 and "or" not in text else None


def _plus_minus(text: str, read_part: ReadPart) -> Reading | None:
    r"""`a \pm b` is two answers; with more than one independent sign nobody knows which are meant."""
    signs = [sign[1] for sign in _SIGN.finditer(text)]
    if not signs or signs.count("pm") > 1 or text.startswith((r"\{", r"\begin")):
        return None
    upper = _SIGN.sub(lambda sign: "+" if sign[1] == "pm" else "-", text)
    lower = _SIGN.sub(lambda sign: "-" if sign[1] == "pm" else "+", text)
    return Items(tuple(read_part(re.sub(r"(^|[=(])\+", r"\1", one)) for one in (upper, lower)))


def _union(text: str, read_part: ReadPart) -> Reading | None:
    parts = split_at(text, _CUP)
    return Union(tuple(read_part(part) for _, part in parts)) if len(parts) > 1 else None


def _bracketed(text: str, read_part: ReadPart) -> Reading | None:
    pair = next((pair for pair in _PAIRS if text.startswith(pair[0]) and text.endswith(pair[1])), None)
    if pair is None:
        return None
    inner = text[len(pair[0]) : -len(pair[1])].strip()
    try:
        parts = [part for _, part in split_at(inner, _COMMAS)]
    except Unreadable:
        return None  # `(a)(b)`: the brackets at both ends are not one pair
    if pair[0] == r"\{":
        return _collection(inner, parts, read_part)
    if len(parts) == 1:
        return read_part(inner) if pair == ("(", ")") and inner else None
    if len(parts) > _MOST_ITEMS:
        raise TooLarge(f"{len(parts)} items")
    if not all(parts):
        raise Unreadable("an empty place in a tuple")
    return _open_at_infinity(pair[0], tuple(map(read_part, parts)), pair[1])


def _open_at_infinity(opened: str, items: tuple[Reading, ...], closed: str) -> Bracketed:
    if len(items) == 2:
        opened = "(" if items[0] == MINUS_INFINITY and opened == "[" else opened
        closed = ")" if items[1] == INFINITY and closed == "]" else closed
    return Bracketed(opened, items, closed)


def _collection(inner: str, parts: list[str], read_part: ReadPart) -> Reading:
    if not inner:
        return Expression(r"\emptyset")
    condition = split_at(inner, _SUCH_THAT)
    if len(condition) == 2 and plain_name(condition[0][1].removesuffix(r"\in\mathbb{R}")):
        return read_part(condition[1][1])
    if len(parts) > _MOST_ITEMS:
        raise TooLarge(f"{len(parts)} items")
    if not all(parts):
        raise Unreadable("an empty place in a set")
    return Collection(_flat([read_part(part) for part in parts]))


def _based(text: str) -> Reading | None:
    r"""`1011_{2}`. Small letters without a digit are variables with an index, and so is a large one alone."""
    found = _BASED.fullmatch(_NEGATED.sub(r"-\1", text))
    if found is None:
        return None
    digits, written = found["digits"], found["base"]
    base = int(written) if written.isdigit() else _BASE_WORDS.get(written, 0)
    is_numeral = re.search("[0-9]", digits) or (digits.isupper() and len(digits) > 1)
    if not is_numeral or not 2 <= base <= 36 or len(digits) > 200 or any(int(digit, 16) >= base for digit in digits):
        return None
    return BasedNumeral(int(found["sign"] + digits, base), base)


def _quantity(text: str) -> Reading:
    if text in _REALS:
        return Bracketed("(", (MINUS_INFINITY, INFINITY), ")")
    rest, unit, scale = split_unit(text)
    if unit == DEGREE and _OF_AN_ANGLE.search(rest):
        rest, unit = text, None
    bare = rest[1:-1] if rest.startswith("(") and bracket_end(rest, 0) == len(rest) else rest
    value = read_number(bare)
    if value is not None:
        return Number(value * scale, unit)
    return Expression(rest, unit) if scale == 1 and is_formula(rest) else Text(plain_words(text))


_LETTER = re.compile(r"(?:(?:[Oo]ption|[Cc]hoice|[Aa]nswer)[: ]*)?\(?(?P<letter>[A-J])\)?[.):]?")
_HALF_BRACKET = re.compile(r"^(?P<text>\\text\{ *)?(?P<letter>[A-J])\)")
# A bare letter in brackets may be a factor too, so what follows it must begin like a new thing.
_LABELLED = re.compile(
    r"(?:\\text\{ *\(?(?P<text>[A-J])[.):]+ *\} *|\\text\{ *(?P<bold>[A-J]) *\}[.):] ?"
    r"|\((?P<bracketed>[A-J])\) ?(?=[0-9A-Za-z\\])|(?P<marked>[A-J])[.):] ?(?=[0-9A-Za-z\\]))(?P<content>.+)",
    re.DOTALL,
)
# Words that take a letter back, or put another beside it.
_SAYS_MORE = re.compile(
    rf"(?:^| )(?:[A-J]|[b-j]|both|all|or|and|is(?:n't)?|was|right|only|but|{'|'.join(sorted(DENIALS))})(?: |$)"
)


def read_letter(text: str) -> Choice | None:
    """The choice that a cleaned text consists of."""
    alone = _LETTER.fullmatch(text)
    return Choice(alone["letter"]) if alone else None


def read_labelled(text: str, read_part: ReadPart) -> Choice | None:
    """The choice at the head of what it stands for; None where what follows says more than that."""
    found = _LABELLED.fullmatch(text)
    if found is None:
        return None
    content = read_part(found["content"])
    says_no_more = (
        isinstance(content, Number)
        or (isinstance(content, Expression) and not _SAYS_MORE.fullmatch(content.latex))
        or (
            isinstance(content, Text)
            and re.search("[A-Za-z0-9]", content.words)
            and not _SAYS_MORE.search(content.words)
        )
    )
    return Choice(next(filter(None, found.groups())), content) if says_no_more else None


def label_of(text: str) -> str | None:
    """The letter of the choice that a cleaned gold answer begins with, whatever its words are."""
    found = _LABELLED.fullmatch(_HALF_BRACKET.sub(r"\g<text>(\g<letter>)", text))
    return next(filter(None, found.groups())) if found else None


_ENVIRONMENT = re.compile(
    r"(?P<factor>[^&]*?)(?P<opened>[(\[|]?)\\begin\{(?P<kind>[pbvBV]?matrix|array)\}(?:\{[lcr| ]*\})?"
    r"(?P<body>.*)\\end\{(?P=kind)\}(?P<closed>[)\]|]?)",
    re.DOTALL,
)
_ROW_END = re.compile(r"\\\\(?:\[[^\]]*\])?|\\cr(?![A-Za-z])")
_DELIMITERS = {"pmatrix": "()", "bmatrix": "[]", "vmatrix": "||", "Bmatrix": "{}", "Vmatrix": r"\|"}


def read_matrix(text: str, read_part: ReadPart) -> Matrix | None:
    """The matrix that a text is, None where it is none.

    Raises:
        Unreadable: rows of different lengths, or entries that a factor cannot multiply.
    """
    found = _ENVIRONMENT.fullmatch(text)
    if found is None or r"\begin" in found["body"]:
        return None
    delimiters = _DELIMITERS.get(found["kind"], "") or found["opened"] + found["closed"]
    if found["opened"] and found["kind"] in _DELIMITERS:
        raise Unreadable("a matrix in brackets")
    factor = read_part(found["factor"].removesuffix("*")) if found["factor"] else None
    rows = [row for row in _ROW_END.split(found["body"].replace(r"\hline", "")) if row.strip()]
    cells = tuple(tuple(_entry(factor, cell.strip(), read_part) for cell in row.split("&")) for row in rows)
    if len({len(row) for row in cells}) != 1:
        raise Unreadable("rows of different lengths")
    return Matrix(cells, kind="" if delimiters in ("", "()", "[]") else delimiters)


def _entry(factor: Reading | None, cell: str, read_part: ReadPart) -> Reading:
    if not cell:
        raise Unreadable("an empty place in a matrix")
    entry = read_part(cell)
    if factor is None:
        return entry
    if isinstance(factor, Number) and isinstance(entry, Number):
        return Number(factor.value * entry.value)
    if isinstance(factor, Number | Expression) and isinstance(entry, Number | Expression):
        return Expression(f"({as_latex(factor)})*({as_latex(entry)})")
    raise Unreadable("a matrix of something else than values")
