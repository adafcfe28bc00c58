r"""Reads an answer as a number, text, letter, tuple, interval, set, matrix, equation or expression.

This module reads the structure of cleaned LaTeX; algebra reads the formulas between commas and relation signs.
A gold answer is read as mathematics, or compared as text if it is ambiguous. `7-11` is a difference, a score or a shop:
as mathematics it would accept `-4`. For the difference, write `$7-11$`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from rlvr_vocab.verify.cleaning import (
    LETTER,
    NUMBER_WITH_UNIT,
    PLAIN_NAMES,
    WORDS_OF_TWO_LETTERS,
    ascii_latex,
    clean,
    is_formula,
    plain_words,
    without_typesetting,
)
from rlvr_vocab.verify.quantities import DEGREE, DENIALS, UNITS_OF_TWO_LETTERS, Unit, read_number, split_unit
from rlvr_vocab.verify.readings import (
    INFINITY,
    MINUS_INFINITY,
    Approximation,
    BasedNumeral,
    Bracketed,
    Choice,
    Collection,
    Equality,
    Expression,
    Inequality,
    Items,
    Matrix,
    Number,
    Reading,
    Text,
    Union,
    Written,
    as_latex,
    expressions,
)
from rlvr_vocab.verify.scanning import ROUND, TooLarge, Unreadable, group_end, require_bounded, separators, split_at

_MOST_ITEMS = 200
_SOMETHING = re.compile(r"[^\W_]|\\emptyset|\\infty|\\\{")
_ONLY_TEXT = re.compile(r"\\text\{([^{}]+)\}[.):]?")
_COMMAS = separators("[,;]")
_COMMAS_OF_LIST = separators("[,;]", except_in=r"(?<![0-9.,])[1-9][0-9]{0,2}(?:,[0-9]{3})+(?![0-9,])")
_AND_OR = separators(rf"\\text\{{ *,? *(?:or|and) *,? *\}}|(?<![{LETTER}\\])(?:or|and)(?![{LETTER}])")
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
    """Read an answer; raises Unreadable for an empty one, TooLarge for one that exceeds the bounds of `scanning`."""
    cleaned = cleaned_answer(text)
    try:
        return _read(cleaned)
    except Unreadable:
        return Text(plain_words(cleaned))


def cleaned_answer(text: str) -> str:
    """An answer in the spelling of `clean`; raises like `read`."""
    require_bounded(text)
    text = ascii_latex(text)
    require_bounded(text)
    cleaned = clean(text)
    if not _SOMETHING.search(cleaned):
        raise Unreadable("empty")
    require_bounded(cleaned)
    return cleaned


def _read(text: str) -> Reading:
    text = _HALF_BRACKET.sub(r"\g<text>(\g<letter>)", text)
    if words := _ONLY_TEXT.fullmatch(text):
        return _read(words[1].strip(" .,;:"))
    if letter := _LETTER.fullmatch(text):
        return Choice(letter["letter"])
    return (
        _several(text)
        or _labelled(text)
        or _relation(text)
        or _union(text)
        or _bracketed(text)
        or _matrix(text)
        or _based(text)
        or _quantity(text)
    )


def _read_all(parts: Sequence[str], where: str) -> list[Reading]:
    if len(parts) > _MOST_ITEMS:
        raise TooLarge(f"{len(parts)} items")
    if not all(parts):
        raise Unreadable(f"an empty place in a {where}")
    return [_read(part) for part in parts]


def _several(text: str) -> Reading | None:
    """Several answers. Words are not a list: for them `and` and `or` differ."""
    joined = split_at(text, _AND_OR)
    parts = [part.strip(" ,") for _, part in (joined if len(joined) > 1 else split_at(text, _COMMAS_OF_LIST))]
    if len(parts) == 1:
        return _plus_minus(text)
    items = _flat(_read_all(parts, "list"))
    if any(isinstance(item, Text) for item in items):
        return Text(plain_words(text))
    return _one_range(items, text, joined=len(joined) > 1) or Items(items)


def _flat(readings: list[Reading]) -> tuple[Reading, ...]:
    return tuple(flat for item in readings for flat in (item.items if isinstance(item, Items) else (item,)))


def _one_range(items: tuple[Reading, ...], text: str, joined: bool) -> Reading | None:
    """The range of x in `x < 1` or `x > 3`, or in `x > 1` and `x < 3`; None for other items."""
    bounds = [item for item in items if isinstance(item, Inequality) and item.solved]
    if not joined or len(bounds) < len(items) or len({item.name for item in bounds}) > 1:
        return None
    ranges = [item.solved for item in bounds if item.solved]
    if "and" not in text:
        return Union(tuple(ranges))
    if len(ranges) != 2 or "or" in text:
        return None
    lower, upper = ranges if ranges[0].items[1] == INFINITY else ranges[::-1]
    if lower.items[1] != INFINITY or upper.items[0] != MINUS_INFINITY:
        return None
    return Bracketed(lower.opened, (lower.items[0], upper.items[1]), upper.closed)


def _plus_minus(text: str) -> Reading | None:
    r"""`a \pm b` is two answers; more than one independent sign is ambiguous."""
    signs = [sign[1] for sign in _SIGN.finditer(text)]
    if not signs or signs.count("pm") > 1 or text.startswith((r"\{", r"\begin")):
        return None
    upper = _SIGN.sub(lambda sign: "+" if sign[1] == "pm" else "-", text)
    lower = _SIGN.sub(lambda sign: "-" if sign[1] == "pm" else "+", text)
    return Items(tuple(_read(re.sub(r"(^|[=(])\+", r"\1", one)) for one in (upper, lower)))


def _union(text: str) -> Reading | None:
    parts = split_at(text, _CUP)
    return Union(tuple(_read(part) for _, part in parts)) if len(parts) > 1 else None


def _bracketed(text: str) -> Reading | None:
    pair = next((pair for pair in _PAIRS if text.startswith(pair[0]) and text.endswith(pair[1])), None)
    if pair is None:
        return None
    inner = text[len(pair[0]) : -len(pair[1])].strip()
    try:
        parts = [part for _, part in split_at(inner, _COMMAS)]
    except Unreadable:
        return None  # `(a)(b)`: the brackets at both ends are not one pair
    if pair[0] == r"\{":
        return _collection(inner, parts)
    if len(parts) == 1:
        return _read(inner) if pair == ("(", ")") and inner else None
    items, (opened, closed) = tuple(_read_all(parts, "tuple")), pair
    if len(items) == 2:  # an interval is open at infinity
        opened = "(" if items[0] == MINUS_INFINITY and opened == "[" else opened
        closed = ")" if items[1] == INFINITY and closed == "]" else closed
    return Bracketed(opened, items, closed)


def _collection(inner: str, parts: list[str]) -> Reading:
    if not inner:
        return Expression(r"\emptyset")
    condition = split_at(inner, _SUCH_THAT)
    if len(condition) == 2 and plain_name(condition[0][1].removesuffix(r"\in\mathbb{R}")):
        return _read(condition[1][1])
    return Collection(_flat(_read_all(parts, "set")))


def _based(text: str) -> Reading | None:
    r"""`1011_{2}`. Lower-case letters without a digit are variables with an index, as is a single upper-case letter."""
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
    bare = rest[1:-1] if rest.startswith("(") and group_end(rest, 0, ROUND) == len(rest) else rest
    value = read_number(bare)
    if value is not None:
        return Number(value * scale, unit)
    return Expression(rest, unit) if scale == 1 and is_formula(rest) else Text(plain_words(text))


_LETTER = re.compile(r"(?:(?:[Oo]ption|[Cc]hoice|[Aa]nswer)[: ]*)?\(?(?P<letter>[A-J])\)?[.):]?")
_HALF_BRACKET = re.compile(r"^(?P<text>\\text\{ *)?(?P<letter>[A-J])\)")
# A bare letter in brackets may be a factor, so the text after it must begin a new term.
_LABELLED = re.compile(
    r"(?:\\text\{ *\(?(?P<text>[A-J])[.):]+ *\} *|\\text\{ *(?P<bold>[A-J]) *\}[.):] ?"
    rf"|\((?P<bracketed>[A-J])\) ?(?=[0-9{LETTER}\\])|(?P<marked>[A-J])[.):] ?(?=[0-9{LETTER}\\]))(?P<content>.+)",
    re.DOTALL,
)
# Words that withdraw a letter, or add another one.
_SAYS_MORE = re.compile(
    rf"(?:^| )(?:[A-J]|[b-j]|both|all|or|and|is(?:n't)?|was|right|only|but|{'|'.join(sorted(DENIALS))})(?: |$)"
)


def _labelled(text: str) -> Choice | None:
    """The choice letter before its content; None if the content withdraws it."""
    found = _LABELLED.fullmatch(text)
    if found is None or _LABELLED.match(found["content"]):  # two labels in a row name no choice
        return None
    match content := _read(found["content"]):
        case Number():
            is_content = True
        case Expression(latex):
            is_content = not _SAYS_MORE.fullmatch(latex)
        case Text(words):
            is_content = re.search("[A-Za-z0-9]", words) is not None and not _SAYS_MORE.search(words)
        case _:
            is_content = False
    return Choice(next(filter(None, found.groups())), content) if is_content else None


_ENVIRONMENT = re.compile(
    r"(?P<factor>[^&]*?)(?P<opened>[(\[|]?)\\begin\{(?P<kind>[pbvBV]?matrix|array)\}(?:\{[lcr| ]*\})?"
    r"(?P<body>.*)\\end\{(?P=kind)\}(?P<closed>[)\]|]?)",
    re.DOTALL,
)
_ROW_END = re.compile(r"\\\\(?:\[[^\]]*\])?|\\cr(?![A-Za-z])")
_DELIMITERS = {"pmatrix": "()", "bmatrix": "[]", "vmatrix": "||", "Bmatrix": "{}", "Vmatrix": r"\|"}


def _matrix(text: str) -> Matrix | None:
    found = _ENVIRONMENT.fullmatch(text)
    if found is None or r"\begin" in found["body"]:
        return None
    delimiters = _DELIMITERS.get(found["kind"], "") or found["opened"] + found["closed"]
    if found["opened"] and found["kind"] in _DELIMITERS:
        raise Unreadable("a matrix in brackets")
    factor = _read(found["factor"].removesuffix("*")) if found["factor"] else None
    rows = [row for row in _ROW_END.split(found["body"].replace(r"\hline", "")) if row.strip()]
    cells = tuple(tuple(_entry(factor, cell.strip()) for cell in row.split("&")) for row in rows)
    if len({len(row) for row in cells}) != 1:
        raise Unreadable("rows of different lengths")
    return Matrix(cells, kind="" if delimiters in ("", "()", "[]") else delimiters)


def _entry(factor: Reading | None, cell: str) -> Reading:
    if not cell:
        raise Unreadable("an empty place in a matrix")
    entry = _read(cell)
    if factor is None:
        return entry
    if isinstance(factor, Number) and isinstance(entry, Number):
        return Number(factor.value * entry.value)
    if isinstance(factor, Number | Expression) and isinstance(entry, Number | Expression):
        return Expression(f"({as_latex(factor)})*({as_latex(entry)})")
    raise Unreadable("a matrix with entries that are not values")


_RELATION = re.compile(r"[=<>]|\\(?:approx|simeq|doteq|le|ge|ne|in)(?![A-Za-z])")
_ABOUT = separators(r"\\(?:approx|simeq|doteq)(?![A-Za-z])")
_IN = separators(r"\\in(?![A-Za-z])")
_EQUALS = separators("=")
_ORDER = separators(r"\\(?:le|ge|ne)(?![A-Za-z])|[<>]")
_MIRRORED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le", r"\ne": r"\ne"}
_MOST_SIDES = 20
_LEFT_BRACKET, _RIGHT_BRACKET = {"<": "(", r"\le": "["}, {"<": ")", r"\le": "]"}


def _relation(text: str) -> Reading | None:
    r"""The relation that a text states, or None; `x \in S` names a set as `x = 5` names a number."""
    if not _RELATION.search(text):
        return None
    about = [part for _, part in split_at(text, _ABOUT)]
    members = [part for _, part in split_at(text, _IN)]
    equal = [part for _, part in split_at(text, _EQUALS)]
    ordered = split_at(text, _ORDER)
    if max(len(about), len(members), len(equal), len(ordered)) > _MOST_SIDES:
        raise TooLarge("a chain of many relations")
    if len(about) > 1:
        return _approximation(about)
    if len(members) == 2 and (name := plain_name(members[0])):
        elements = _read(members[1])
        if isinstance(elements, Bracketed):
            return Inequality((Expression(name), elements), (r"\in",), name, elements)
        is_named_set = isinstance(elements, Expression) and elements.latex.startswith((r"\mathbb", r"\emptyset"))
        if not is_named_set and not isinstance(elements, Collection | Union):
            raise Unreadable("a value where a set is expected")
        return Equality((Expression(name), elements), (name, None))
    if (len(members) > 1) + (len(equal) > 1) + (len(ordered) > 1) > 1 or len(members) > 1:
        raise Unreadable("relations of several kinds")
    if len(equal) > 1:
        return Equality(tuple(map(_read, equal)), tuple(map(plain_name, equal)))
    return _inequality(ordered) if len(ordered) > 1 else None


def _approximation(parts: Sequence[str]) -> Reading:
    r"""`x \approx 3.14` is 3.14; `\sqrt{2} \approx 1.41` is its exact side, if the other is its rounding."""
    if not all(parts[1:]):
        raise Unreadable("nothing behind an approximation sign")
    exact = [part for part in parts if part and not plain_name(part)]
    if len(exact) == 1:
        return _read(exact[0])
    about = _read(exact[1]) if len(exact) == 2 else None
    if not isinstance(about, Number):
        raise Unreadable("more than one approximation")
    shown = re.search(r"\.([0-9]+)", exact[1])
    return Approximation(_read(exact[0]), about, Fraction(1, 10 ** len(shown[1]) if shown else 1))


def _inequality(ordered: Sequence[tuple[str, str]]) -> Inequality:
    """An inequality with `<` and `≤` only, from the smaller to the larger side, solved for its one name."""
    signs = tuple(sign for sign, _ in ordered[1:])
    texts = [part for _, part in ordered]
    if all(sign in (">", r"\ge") for sign in signs):
        signs, texts = tuple(_MIRRORED[sign] for sign in reversed(signs)), texts[::-1]
    sides, names = tuple(map(_read, texts)), [plain_name(part) for part in texts]
    name: str | None = None
    solved: Bracketed | None = None
    if all(sign in _LEFT_BRACKET for sign in signs):
        match names:
            case [str(name), None]:
                solved = Bracketed("(", (MINUS_INFINITY, sides[1]), _RIGHT_BRACKET[signs[0]])
            case [None, str(name)]:
                solved = Bracketed(_LEFT_BRACKET[signs[0]], (sides[0], INFINITY), ")")
            case [None, str(name), None]:
                solved = Bracketed(_LEFT_BRACKET[signs[0]], (sides[0], sides[2]), _RIGHT_BRACKET[signs[1]])
    return Inequality(sides, signs, name if solved else None, solved)


_VARIABLE = r"(?:[A-Za-z]|\\(?!(?:pi|infty|emptyset|frac|sqrt|text|begin|ln|log|exp)(?![A-Za-z]))[a-z]+)"
_INDEX = r"(?:_\{[^{}]*\})?'*"
_NAME = re.compile(
    rf"(?:{_VARIABLE}{_INDEX}"  # x, \theta, a_1
    rf"|{_VARIABLE}{_INDEX}(?:\^\{{-1\}})?\([^()]*\)"  # f(x), f^{-1}(x), P(A)
    rf"|[{LETTER}][a-zß-öø-ÿœ]{{2,}}(?: [a-zß-öø-ÿœ]+)*"  # Area, Fläche
    r"|\[?[A-Z]{2,4}\]?|\|[A-Z]{2}\||\\overline\{[A-Z]{2}\}"  # AB, [ABC]
    r"|m?\\angle ?[A-Z]{1,3})"
)
_COORDINATES = re.compile(r"\(([a-z](?:,[a-z]){1,5})\)")
_POLAR = (r"(r,\theta)", r"(r,\theta,z)", r"(\rho,\theta,\phi)")
_NOT_A_NAME = frozenset(("e", "i"))
_TAKES_BACK = re.compile(
    rf"\b(?:{'|'.join(sorted(DENIALS))}|minus|negative|half|twice|double|triple|halb\w*|hälfte|doppelt\w*|mitad|moitié)\b"
)


def plain_name(text: str) -> str | None:
    """The name if a side of an equation is a name; None if it is a value.

    Several names in brackets, `(x,y)`, must be in the usual order; otherwise the values would be in another order too.
    """
    text = text.strip()
    if words := re.fullmatch(rf"\\text\{{ *([{LETTER} ]+?) *\}}", text):
        return None if _TAKES_BACK.search(words[1].lower()) else words[1]
    if letters := _COORDINATES.fullmatch(text):
        return text if letters[1] == ",".join(sorted(letters[1].split(","))) else None
    if text in _POLAR:
        return text
    return text if _NAME.fullmatch(text) and text not in _NOT_A_NAME and not _TAKES_BACK.search(text.lower()) else None


# Dollars as in Pandoc: the closing one follows a character and precedes no digit, unlike in `$5-$10`.
_IN_DOLLARS = re.compile(r"\A\s*\$[^$]+\$\s*\Z|(?<![\\\w])\$(?=[^\s$])[^$]*(?<=[^\s\\$])\$(?![0-9])")
_CURRENCY = re.compile(r"(?<!\\)\$(?=[0-9.])")
_SAYS_MATHEMATICS = re.compile(
    r"\\(?!(?:text[a-z]*|mbox|hbox|q?quad|l?dots)(?![A-Za-z]))[A-Za-z({\[]"
    r"|[\^_=<>|÷]|(?<!\*)\*(?!\*)|[\w)\]}]!|[A-Za-z]['(]"
    r"|[\w)\]}]\s*\+\s*[\w(.]"
)
# These are typeset in dimensions, coordinates and chemistry too.
_NOT_MATHEMATICS_ALONE = str.maketrans(dict.fromkeys("×°º₀₁₂₃₄₅₆₇₈₉", " "))

_COMMAND_OR_INDEX = re.compile(r"\\[a-z]+|[_{}]")
# Signs of a code, absent from formulas in variables: `e4`, `0xFF`, `F-16`, `221B`, `10-km`, `9am`, `at -5`, `iv`.
_CODE = re.compile(
    r"[A-Za-z][ .]{0,2}[0-9]|(?<![0-9.])0[0-9A-Za-z]|[a-z]{3,}"
    r"|[A-Z][ -]?[A-Za-z0-9]|[A-Za-z][ -]?[A-Z]|[0-9](?:-|(?<=[0-9.][0-9]) ?)[A-Z]"
    r"|[0-9] ?(?:st|nd|rd|th|am|pm)(?![a-z])|\A[ivx]{2}\Z"
    rf"|(?:\A|[0-9]-)(?:{'|'.join(UNITS_OF_TWO_LETTERS)})(?![a-z])"
    rf"|(?<![a-z])(?:{'|'.join(WORDS_OF_TWO_LETTERS)})(?![a-z])"
)
# Leading zeros, as in a month or a postal code. Exceptions are numbers: the AIME pads its answers to three digits, and
# Python the exponent of `2e-05`.
_PADDED = re.compile(r"(?<![0-9.,])(?<![0-9] )(?<![0-9.][eE])(?<![0-9.][eE][-+])0[0-9](?!(?<=\A0[0-9])[0-9]\Z)")
# Numbers grouped as in German and in Indian English, which read as lists here.
_GROUPED_ELSEWHERE = re.compile(r"[+-]?(?:[0-9]{1,3}(?:[. ][0-9]{3})+,[0-9]+|[0-9]{1,2}(?:,[0-9]{2})+,[0-9]{3})")


@lru_cache(maxsize=1_024)
def read_gold(text: str | None) -> Reading:
    """Read a gold answer: `Written` if it may or may not be mathematics, None if it is no text; raises like `read`."""
    if text is None:
        raise Unreadable("a list or an object, which cannot be compared as text")
    reading = read(text)
    cleaned = cleaned_answer(text)
    if isinstance(reading, Text):
        if given := NUMBER_WITH_UNIT.fullmatch(text.strip()):  # `14 (times)` is 14
            value = read_number(cleaned_answer(given["number"]))
            return reading if value is None else Number(value, Unit(plain_words(given["unit"])))
        labelled = _LABELLED.fullmatch(_HALF_BRACKET.sub(r"\g<text>(\g<letter>)", cleaned))  # `E) none of these`
        return Choice(next(filter(None, labelled.groups())), reading) if labelled else reading
    if _says_mathematics(text):
        return reading
    may_be_a_code = _PADDED.search(cleaned) or _GROUPED_ELSEWHERE.fullmatch(cleaned)
    return as_written(text) if may_be_a_code or any(map(_looks_like_a_code, expressions(reading))) else reading


def as_written(text: str) -> Written:
    """An answer in the form for comparison with an ambiguous gold answer; raises like `read_gold`."""
    if not _IN_DOLLARS.search(text):
        text = _CURRENCY.sub(r"\\$", text)
    return Written(without_typesetting(cleaned_answer(text)))


def _says_mathematics(text: str) -> bool:
    """Whether a text has a sign, macro or function that only mathematics has, or is between dollars."""
    signs = ascii_latex(text.translate(_NOT_MATHEMATICS_ALONE))
    return bool(_IN_DOLLARS.search(text) or _SAYS_MATHEMATICS.search(signs) or PLAIN_NAMES.search(signs))


def _looks_like_a_code(latex: str) -> bool:
    """Whether a formula is digits joined by `-`, `/` and the like, or has letters that are unlikely to be variables."""
    plain = _COMMAND_OR_INDEX.sub("", latex)
    return re.search("[A-Za-z]", plain) is None or _CODE.search(plain) is not None
