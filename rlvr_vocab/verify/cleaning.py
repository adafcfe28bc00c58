r"""Normalises the spelling of LaTeX and plain text: `\dfrac12`, `\frac{1}{2}` and `{1\over 2}` become the same.

The result is LaTeX without delimiters, sizes and spacing, with `*` for products, `\degree` for degrees and braces
around every argument.
"""

from __future__ import annotations

import re
import unicodedata

from rlvr_vocab.verify.scanning import group_end

LETTER = "A-Za-zÀ-ÖØ-öø-ÿŒœ"  # of the languages of Western Europe, for a character class

_LATEX = str.maketrans(
    {
        **dict.fromkeys("−‒–—―‐‑", "-"), "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": "/",
        "∕": "/", "⁄": "/", "π": r"\pi ", "∞": r"\infty ", "√": r"\sqrt ", "≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ",
        "⩾": r"\ge ", "≠": r"\ne ", "±": r"\pm ", "∓": r"\mp ", "∪": r"\cup ", "∩": r"\cap ", "∅": r"\emptyset ",
        "∈": r"\in ", "°": r"\degree ", "º": r"\degree ", "≈": r"\approx ", "…": r"\dots ", "⟨": r"\langle ",
        "⟩": r"\rangle ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}",
        "ℂ": r"\mathbb{C}", "∠": r"\angle ", "△": r"\triangle ", "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ",
        "δ": r"\delta ", "θ": r"\theta ", "λ": r"\lambda ", "μ": r"\mu ", "ρ": r"\rho ", "σ": r"\sigma ",
        "φ": r"\phi ", "ω": r"\omega ", "′": "'", "’": "'", "‘": "'", "“": '"', "”": '"',
    }
)  # fmt: skip
_SUPERSCRIPT_RUN = re.compile("[⁰¹²³⁴-⁹⁺⁻ⁿ]+")
_SUBSCRIPT_RUN = re.compile("[₀-₉]+")
_VULGAR_FRACTION = re.compile("[¼-¾⅐-⅞]")
_SPACE = re.compile(r"\s")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
# Letters and digits in another width or face. Other compatibility characters mean more than their letters: ② is not 2.
_FACES = ("<wide>", "<narrow>", "<font>")


def ascii_latex(text: str) -> str:
    """A text with its Unicode mathematics as LaTeX and all white space as spaces; the rest is unchanged."""
    if not text.isascii():
        text = _SUPERSCRIPT_RUN.sub(lambda run: f"^{{{unicodedata.normalize('NFKC', run[0])}}}", text)
        text = _SUBSCRIPT_RUN.sub(lambda run: f"_{{{unicodedata.normalize('NFKC', run[0])}}}", text)
        text = _VULGAR_FRACTION.sub(_fraction, unicodedata.normalize("NFC", text)).translate(_LATEX)
        text = _NOT_ASCII.sub(_in_common_face, text)
    return _SPACE.sub(" ", text)


def _fraction(character: re.Match[str]) -> str:
    above, _, below = unicodedata.normalize("NFKC", character[0]).partition("⁄")
    return rf"\frac{{{above}}}{{{below}}}"


def _in_common_face(character: re.Match[str]) -> str:
    kind = unicodedata.decomposition(character[0]).partition(" ")[0]
    return unicodedata.normalize("NFKC", character[0]) if kind in _FACES else character[0]


_LOOKS = """
    displaystyle textstyle scriptstyle scriptscriptstyle limits nolimits left right middle nonumber notag strut
    big Big bigg Bigg bigl Bigl biggl Biggl bigr Bigr biggr Biggr bigm Bigm biggm Biggm rm bf it cal em sf tt
    tiny scriptsize footnotesize small normalsize large Large LARGE huge Huge boldmath centering
    quad qquad thinspace medspace thickspace enspace space negthinspace hfill
"""
_SPELLINGS = {
    **dict.fromkeys(("dfrac", "tfrac", "cfrac"), r"\frac"),
    **dict.fromkeys(("dbinom", "tbinom"), r"\binom"),
    **dict.fromkeys(("leq", "leqslant", "leqq"), r"\le"),
    **dict.fromkeys(("geq", "geqslant", "geqq"), r"\ge"),
    **dict.fromkeys(("times", "cdot", "ast"), "*"),
    **dict.fromkeys(("ldots", "cdots", "dotsc", "dotsb", "dotso"), r"\dots"),
    **dict.fromkeys(("lvert", "rvert", "vert"), "|"),
    **dict.fromkeys(("lVert", "rVert", "Vert"), r"\|"),
    **dict.fromkeys(("lor", "vee"), r"\text{ or }"),
    **dict.fromkeys(("land", "wedge"), r"\text{ and }"),
    **dict.fromkeys(("varnothing", "O"), r"\emptyset"),
    **dict.fromkeys(("infin", "infinity"), r"\infty"),
    **dict.fromkeys(("R", "reals"), r"\mathbb{R}"),
    **dict.fromkeys(("underline", "boxed", "fbox"), ""),
    "bigcup": r"\cup",
    "colon": ":",
    "div": "/",
    "gt": ">",
    "lbrace": r"\{",
    "lbrack": "[",
    "lt": "<",
    "neq": r"\ne",
    "pounds": "£",
    "rbrace": r"\}",
    "rbrack": "]",
    "textdollar": r"\$",
    "tg": r"\tan",
}
_COMMANDS = {f"\\{name}": spelling for name, spelling in _SPELLINGS.items()}
_COMMANDS |= dict.fromkeys([*(f"\\{name}" for name in _LOOKS.split()), r"\,", r"\;", r"\:", r"\>", "\\ "], " ")
_COMMANDS |= {r"\!": "", r"\/": "", r"\-": "", r"\%": "%", r"\#": "#"}
_COMMAND = re.compile(r"\\(?:[A-Za-z]+|.)", re.DOTALL)

_INVISIBLE_DELIMITER = re.compile(r"\\(?:left|right)\s*\.")
_WITH_UNSEEN_ARGUMENT = re.compile(r"\\(?:[hv]?phantom|hspace\*?|vspace\*?|color|textcolor)\s*(?=\{)")
# One or more groups, at least one with a separator that only thousands have; a plain comma may be a list.
_THOUSANDS = re.compile(r"(?<![0-9.,])[1-9][0-9]{0,2}(?:(?:\{,\}|,? ?\\! ?|\\[, ]|,)[0-9]{3})+(?![0-9])")
# A separator of two numbers; without it or the space after it they would be joined: `81, 256` is not 81,256.
_BETWEEN_NUMBERS = re.compile(r"([0-9]) *(?:, +(?=[0-9]{3}(?![0-9]))|(?<!\\)\$[$ ]*(?=[0-9]))")
# More space than thousands have between them.
_WIDE = r"\\(?:q?quad|enspace|hfill)(?![A-Za-z])"
_WIDE_SPACE = re.compile(rf"(?<=[0-9])(?:[ ~]|\\[,;: ])*+{_WIDE}(?:[ ~]|\\[,;: ]|{_WIDE})*+(?=[0-9])")
# Single letters that are units; without a space before the bracket only long words. Other letters are factors.
NUMBER_WITH_UNIT = re.compile(
    r"\(?(?:\\text\{ *)?(?P<number>(?:[A-Za-z] *= *)?[-+]?(?:\\?\$|[€£])?[0-9][0-9.,/ ]*(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\\[dt]?frac\{[0-9]+\}\{[0-9]+\})"
    rf"(?: +|(?=[(\[][{LETTER}]{{4}}))[(\[] *(?P<unit>(?:[{LETTER}][{LETTER}./ '-]*[{LETTER}.]"
    r"|[mgslhLNJWVK])(?:\^\{?[23]\}?)?|\\?[%$]|\\degree ?[CF]?)[)\]]\}?\)?"
)
_DOLLAR = re.compile(r"(?<!\\)\$")
# Money, unlike the sign at one end of a formula.
_LONE_DOLLAR = re.compile(r"^ *(?:([-+]?) *\$ *([0-9][0-9., ]*)|([-+]?[0-9][0-9., ]*)\$) *$")
# Other words for `and` and `or`. Short ones only between numbers.
_JOINTS = {**dict.fromkeys(("und", "sowie", "et", "y", "e"), "and"), **dict.fromkeys(("oder", "ou", "o"), "or")}
_JOINT = re.compile(rf"(?<![{LETTER}\\])(?:und|sowie|oder)(?![{LETTER}])|(?<=[0-9}}] )(?:et|ou|y|e|o)(?= -?[0-9\\])")
_INTRODUCTION = re.compile(r"^(?:\\text\{ *(?:[Tt]he )?(?:[Ff]inal )?[Aa]nswer is:? *\}|=)")
# Names that plain text writes without a backslash. A letter before one makes it part of a word.
PLAIN_NAMES = re.compile(
    rf"(?<![{LETTER}\\])(?:(pi|infty|infinity|sqrt)(?![{LETTER}])"
    r"|((?:arc)?(?:sin|cos|tan)h?|cot|sec|csc|ln|log|exp)(?=[ (^_{0-9]))"
)
_RELATIONS = {"!=": r"\ne ", "<=": r"\le ", ">=": r"\ge ", "**": "^"}
_RELATION = re.compile(r"!=|<=|>=|\*\*|\\not *=")
_DEGREE = re.compile(r"\^ *(?:\\(?:circ|degree)(?![A-Za-z])|\{ *\\(?:circ|degree) *\})")
_PRIMES = re.compile(r"\^ *\{? *((?:\\prime *)+)\}?")
# Braces around a single number, letter or sign have no meaning, unless they enclose an argument.
_NEEDLESS_GROUP = re.compile(
    r"(?:(?<![A-Za-z^_}\]])|(?<=\\pm)|(?<=\\mp))\{ *([-+]?(?:\\\$)?[0-9][0-9.,]*%?|[A-Za-z.:-]) *\}"
)
_POSITIVE_INFINITY = re.compile(r"(?:^|(?<=[(\[,=]))\+\\infty")
_BRACE_OR_INFIX = re.compile(r"\\(?:over|choose)(?![A-Za-z])|\\.|[{}]", re.DOTALL)
_INFIX = {r"\over": r"\frac", r"\choose": r"\binom"}
_WRAPPERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"), ("`", "`"))
_NEEDLESS_AT_END = " .,;:\\"
_FULL_STOP = re.compile(r"(?<![0-9])\.$|(?<=[0-9}\])$])\.$")


def clean(text: str) -> str:
    """The normal spelling of an answer; the input is ASCII from `ascii_latex`."""
    text = _without_wrappers(text.replace("...", r"\dots "))
    if with_unit := NUMBER_WITH_UNIT.fullmatch(text):
        text = with_unit["number"] + (r"\text{%s}" if with_unit["unit"][0].isalpha() else "%s") % with_unit["unit"]
    text = _THOUSANDS.sub(_without_separators, text)
    text = _WIDE_SPACE.sub(";", _without_unseen(_INVISIBLE_DELIMITER.sub(" ", text)))
    text = _COMMAND.sub(lambda command: _COMMANDS.get(command[0], command[0]), text).replace("~", " ")
    text = _JOINT.sub(lambda word: _JOINTS[word[0]], without_fonts(text))
    text = _DOLLAR.sub(" ", _BETWEEN_NUMBERS.sub(r"\1;", _LONE_DOLLAR.sub(r"\1\$\2\3", text)))
    text = _RELATION.sub(lambda sign: _RELATIONS.get(sign[0], r"\ne "), _INTRODUCTION.sub("", text))
    text = PLAIN_NAMES.sub(lambda name: rf"\{name[0]} ", text).replace(r"\infinity", r"\infty")
    text = _DEGREE.sub(r"\\degree ", _PRIMES.sub(lambda primes: "'" * primes[1].count("prime"), text))
    text = _NEEDLESS_GROUP.sub(r"\1", with_braces(_fractions_from_infix(text)))
    text = _without_needless_spaces(_without_wrappers(text.rstrip(_NEEDLESS_AT_END)))
    return _POSITIVE_INFINITY.sub(r"\\infty", text)


def _without_wrappers(text: str) -> str:
    before = None
    while before != text:
        before, text = text, _FULL_STOP.sub("", text.strip())
        for opened, closed in _WRAPPERS:
            if len(text) < len(opened) + len(closed) or not (text.startswith(opened) and text.endswith(closed)):
                continue
            inner = text[len(opened) : -len(closed)]
            if opened not in inner and closed not in inner and not inner.endswith("\\"):
                text = inner
        start = next((len(macro) for macro in (r"\boxed", r"\fbox", "") if text.startswith(macro + "{")), None)
        if start is not None and group_end(text, start) == len(text):
            text = text[start + 1 : -1]
    return text


def _without_separators(number: re.Match[str]) -> str:
    """`1{,}234` as 1234; `1,234` is unchanged, since it may be a list."""
    return number[0] if re.fullmatch("[0-9,]+", number[0]) else re.sub("[^0-9]", "", number[0])


def _without_unseen(text: str) -> str:
    while found := _WITH_UNSEEN_ARGUMENT.search(text):
        text = rf"{text[: found.start()]}\quad {text[group_end(text, found.end()) or len(text) :]}"
    return text


def _fractions_from_infix(text: str) -> str:
    r"""`{a \over b}` → `{\frac{a}{b}}`, `{n \choose k}` → `{\binom{n}{k}}`; without braces it is the whole text."""
    edits: list[tuple[int, int, str]] = []
    open_groups = [(0, "")]  # the start of each, and the first infix in it
    for token in [*_BRACE_OR_INFIX.finditer(text), None]:
        begin, end, found = (len(text), len(text), "") if token is None else (*token.span(), token[0])
        start, infix = open_groups[-1]
        if found == "{":
            open_groups.append((end, ""))
        elif found in _INFIX and not infix:
            open_groups[-1] = (start, found)
            edits.append((begin, end, "}{"))
        elif token is None or (found == "}" and len(open_groups) > 1):
            open_groups.pop()
            if infix:
                edits += [(start, start, _INFIX[infix] + "{"), (begin, begin, "}")]
    for begin, end, inserted in sorted(edits, reverse=True):
        text = text[:begin] + inserted + text[end:]
    return text


def _without_needless_spaces(text: str) -> str:
    """Keep only spaces that separate two words or numbers, or a macro from a letter."""
    text = re.sub(r" +", " ", text).strip()
    text = re.sub(r"(\\[A-Za-z]+) (?![A-Za-z])", r"\1", text)
    text = re.sub(rf"(?<![{LETTER}0-9.%)\]]) ", "", text)
    return re.sub(rf" (?![{LETTER}0-9.])", "", text)


_NUM_ARGUMENTS = {r"\frac": 2, r"\binom": 2} | dict.fromkeys(
    ("^", "_", r"\sqrt", r"\overline", r"\bar", r"\hat", r"\vec", r"\tilde", r"\text", r"\mathbb", r"\begin", r"\end"),
    1,
)
_TOKEN = re.compile(r"\\(?:[A-Za-z]+|.)|.", re.DOTALL)


def with_braces(text: str) -> str:
    """The text with braces around the arguments of powers, indices, fractions, roots and accents.

    In plain text an exponent is a whole number (`2^10`) or the contents of round brackets (`x^(n+1)`).
    """
    tokens = _TOKEN.findall(text)
    units: list[str] = []  # of the text after this point, nearest last: groups, macros with arguments, characters
    num_closed = 0  # closing braces among the units
    for position in reversed(range(len(tokens))):
        token = tokens[position]
        if token == "{" and num_closed:
            units.append("{" + _taken(units, "}").strip() + "}")
            num_closed -= 1
        elif token in _NUM_ARGUMENTS:
            is_script = token == "^" or (token == "_" and tokens[position - 1 : position] != [r"\log"])
            units.append(token + _arguments(units, token, is_script))
        else:
            units.append(token)
            num_closed += token == "}"
    return "".join(reversed(units))


def _taken(units: list[str], closing: str) -> str:
    """Remove the units up to the nearest `closing`, and return their text."""
    start = len(units) - 1
    while units[start] != closing:
        start -= 1
    inside = "".join(reversed(units[start + 1 :]))
    del units[start:]
    return inside


def _arguments(units: list[str], macro: str, is_script: bool) -> str:
    _skip_spaces(units)
    optional = f"[{_taken(units, ']')[1:]}]" if macro == r"\sqrt" and units[-1:] == ["["] and "]" in units else ""
    found = [_argument(units, is_script) for _ in range(_NUM_ARGUMENTS[macro])]
    return optional + "".join(f"{{{argument}}}" for argument in found if argument is not None)


def _argument(units: list[str], is_script: bool) -> str | None:
    _skip_spaces(units)
    if not units or units[-1] == "}":
        return None
    argument = units.pop()
    if len(argument) > 1 and argument[0] == "{":
        return argument[1:-1]
    if argument == "(" and (end := _closing_bracket(units)) is not None:
        inside = "".join(reversed(units[end + 1 :]))
        del units[end:]
        return inside.strip()
    while is_script and units and units[-1].isdigit() and (argument == "-" or argument.lstrip("-").isdigit()):
        argument += units.pop()
    return argument


def _closing_bracket(units: list[str]) -> int | None:
    """The index of the bracket that closes the bracket just removed."""
    depth = 1
    for position in reversed(range(len(units))):
        depth += (units[position] == "(") - (units[position] == ")")
        if depth == 0:
            return position
    return None


def _skip_spaces(units: list[str]) -> None:
    while units and units[-1] == " ":
        units.pop()


_FONT = re.compile(
    r"\\(?:(?P<text>text(?:bf|it|rm|sf|tt|normal|sc|up)?|mbox|hbox|operatorname\*?)"
    r"|math(?:rm|bf|it|sf|tt|normal)|boldsymbol|bm|pmb) *(?=\{)"
)

_TEXT_GROUP = re.compile(r"\\text\{([^{}]*)\}")
_FUNCTION = re.compile(r"(?:arc)?(?:sin|cos|tan)h?|cot|sec|csc|ln|log|exp")
_WORDS = re.compile(rf"[{LETTER} ./'-]{{2,}}")
_POWER_OF_UNIT = re.compile(r"([A-Za-z ./]+)\^\{?([23])\}?")
# Single upright letters that are units after a number, and names of numbers elsewhere.
_UNIT_LETTERS = frozenset("mgslhLNJWVK")
_BEHIND_NUMBER = re.compile(r"[0-9)}/]\s*$")
_UNIT = rf"\\text\{{ *([{LETTER}]+) *\}}"
_RATIO = re.compile(rf"{_UNIT} */ *{_UNIT}")
_FRACTION = re.compile(rf"\\frac *\{{ *{_UNIT} *\}} *\{{ *{_UNIT} *\}}")


def without_fonts(text: str) -> str:
    r"""Words and units as `\text{…}`, everything else without its font."""
    for font in reversed(list(_FONT.finditer(text))):
        end = group_end(text, font.end())
        if end is None:
            continue
        before, inner = text[: font.start()], text[font.end() + 1 : end - 1]
        behind_number = _BEHIND_NUMBER.search(before[-9:]) is not None
        text = before + _without_font(inner, font["text"] is not None, behind_number) + text[end:]
    return _RATIO.sub(r"\\text{\1/\2}", _FRACTION.sub(r"\\text{\1/\2}", text))


def _without_font(inner: str, is_text: bool, behind_number: bool) -> str:
    inner = _TEXT_GROUP.sub(r"\1", inner)
    bare = inner.strip()
    if not re.search("[A-Za-z]", inner):
        return inner
    if _FUNCTION.fullmatch(bare):
        return f"\\{bare} "
    if raised := _POWER_OF_UNIT.fullmatch(bare):
        return rf"\text{{{raised[1]}}}^{{{raised[2]}}}"
    if len(bare) == 1 and not (is_text and bare != "i") and not (behind_number and bare in _UNIT_LETTERS):
        return bare
    is_words = is_text or len(bare) == 1 or _WORDS.fullmatch(bare)
    return rf"\text{{{inner}}}" if is_words else f"{{{inner}}}"


_MACRO = re.compile(r"\\[A-Za-z]+")
_QUOTED = re.compile(r"(?<![A-Za-z0-9}])'([^']*)'(?![A-Za-z0-9])")
_QUOTES = re.compile(r"[\"`]|''")
_TYPESETTING = re.compile(r"\\([$&_])|(?<=[A-Za-z])_|[{}]")
_SPACES_THAT_JOIN_NOTHING = re.compile(r"(?<![0-9]) +(?![A-Za-z])|(?<![A-Za-z]) +(?![0-9])")
_DASHES = re.compile(r"-{2,3}")
_PUNCTUATION = re.compile(r"\.(?![0-9])|(?<![0-9])\.|(?<=[A-Za-z]{2})[:!?]+(?= |$)")
_COMMA = re.compile(r"[,;]+(?![0-9])|(?<![0-9])[,;]+")
_END_OF_LIST = re.compile(r" , and(?= )")
_WORD = re.compile(rf"[{LETTER}]+(?:['-][{LETTER}]+)*")
_SHORT_WORDS = "a an and at by if in is it no nor of on or to we he yes odd even true false none"
WORDS_OF_TWO_LETTERS = tuple(word for word in _SHORT_WORDS.split() if len(word) == 2)

_NEVER_IN_FORMULAS = re.compile(r"[^\x00-\x7f]|[\"@#~`?:]")
_WORD_ALONE = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{3,}(?=[ .]|$)|[A-Za-z]{4,}|[A-Za-z]{2,} [A-Za-z]{2,}")
_TWO_VARIABLES = re.compile(r"[a-z]{2}")


def plain_words(cleaned: str) -> str:
    """A text without punctuation and quotes, with words in lower case. Commas stay, see `same_words`."""
    text = _QUOTED.sub(r" \1 ", _QUOTES.sub(" ", _TEXT_GROUP.sub(r" \1 ", cleaned)))
    text = _COMMA.sub(" , ", _DASHES.sub("-", _PUNCTUATION.sub(" ", text)))
    words = " ".join(map(_without_capitals, text.split()))
    return _END_OF_LIST.sub(" ,", words).strip(" ,")


def same_words(one: str, other: str) -> bool:
    """Whether two results of `plain_words` are equal; a comma between list items may be `and`, or be missing."""
    return any(one.replace(" ,", comma) == other.replace(" ,", comma) for comma in (" and", ""))


def without_typesetting(cleaned: str) -> str:
    """A code without typesetting, with one kind of dash and comma, and spaces only between words or numbers."""
    text = _TYPESETTING.sub(lambda part: part[1] or "", _TEXT_GROUP.sub(r"\1", cleaned))
    text = _DASHES.sub("-", _SPACES_THAT_JOIN_NOTHING.sub("", text.strip()))
    return text.replace(";", ",")


def _without_capitals(word: str) -> str:
    """Short words in capitals stay: they may be points, or products of upper-case variables."""
    if not _WORD.fullmatch(word):
        return word
    is_lower_or_title = word[1:].islower() and len(word) > 2
    is_loud = word.isupper() and len(word) > 5
    return word.lower() if is_lower_or_title or is_loud or word.lower() in _SHORT_WORDS.split() else word


def is_formula(cleaned: str) -> bool:
    """Whether a cleaned text is mathematics rather than words, judged by its letters."""
    letters = _MACRO.sub("\\\\", cleaned)
    if r"\text" in cleaned or _NEVER_IN_FORMULAS.search(cleaned) or _WORD_ALONE.search(letters):
        return False
    if cleaned.isalpha() and len(cleaned) > 1:
        return _TWO_VARIABLES.fullmatch(cleaned) is not None and cleaned not in _SHORT_WORDS.split()
    return re.search(r"[A-Za-z0-9]", cleaned) is not None
