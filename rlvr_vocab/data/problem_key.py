r"""Decides, for the whole package, whether two texts are the same problem.

Two problems are the same if they differ only in case, spacing, punctuation, LaTeX layout, Unicode form of a character
or a leading number. Doubtful cases count as the same: `f(a, b)` is `f(ab)`, `ABC` is `abc`, and `91. Is it prime?` is
`97. Is it prime?`. A wrong match costs a training problem; a missed match would train on a held-out problem.
"""

import hashlib
import html
import re
import unicodedata
from collections.abc import Iterable

PUNCTUATION = frozenset('.,;:?"…`¿¡。、「」『』《》')
SAME_CHARACTERS = {
    **dict.fromkeys("‘’‚‛′", "'"),
    **dict.fromkeys("“”„‟«»", '"'),
    **dict.fromkeys("−–—―‐‑‒", "-"),
    **dict.fromkeys("\u2009\u202f", r"\,"),
    **dict.fromkeys("⋅∙•", "·"),
    "″": "''",
    "º": "°",
}
# Compatibility forms with another meaning than their plain character: x² is not x2, and 1½ is not 11/2.
RAISED_OR_LOWERED, OTHER_MEANING = {"<super>": "^", "<sub>": "_"}, ("<fraction>", "<circle>")


class PlainCharacters(dict[int, str]):
    """For `str.translate`: the lower case of a character's plain form; empty for an invisible character."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        kind = unicodedata.decomposition(character).partition(" ")[0]
        plain = SAME_CHARACTERS.get(character)
        if plain is None and (character.isspace() or unicodedata.category(character).startswith("Z")):
            plain = " "
        elif plain is None and (unicodedata.category(character).startswith("C") or "\ufe00" <= character <= "\ufe0f"):
            plain = ""
        elif plain is None:
            plain = character if kind in OTHER_MEANING else unicodedata.normalize("NFKC", character)
            plain = RAISED_OR_LOWERED.get(kind, "") + plain.replace("\N{MINUS SIGN}", "-")
        self[code] = plain.casefold()
        return self[code]


PLAIN = PlainCharacters()
HTML_ENTITY = re.compile(r"&(?:#\d+|#x[\da-f]+|[a-z]+\d*);", re.IGNORECASE)
ONE_RAISED_NUMBER = re.compile(r"(?<=\^[-+\d])\^(?=\d)|(?<=_\d)_(?=\d)")

# LaTeX, in lower case. Commands for layout become blank; commands with several names get one.
THOUSANDS = re.compile(r"(?<=\d)(?:\{,\}|,?\\[,!:; ])(?=\d{3}(?!\d))")
# Words, with and without a backslash.
FUNCTIONS = (
    *("gcd", "lcm", "max", "min", "det", "lim", "log", "ln", "exp"),
    *("sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan"),
)
SAME_COMMANDS = {
    **dict.fromkeys(("dfrac", "tfrac", "cfrac"), r"\frac"),
    **dict.fromkeys(("dbinom", "tbinom"), r"\binom"),
    **dict.fromkeys(("le", "leq", "leqslant"), "≤"),
    **dict.fromkeys(("ge", "geq", "geqslant"), "≥"),
    **dict.fromkeys(("ne", "neq"), "≠"),
    **dict.fromkeys(("dots", "ldots", "cdots"), "…"),
    **dict.fromkeys(("vert", "lvert", "rvert", "mid"), "|"),
    **dict.fromkeys(("to", "rightarrow"), "→"),
    **dict(zip(("times", "cdot", "div", "pm", "mp", "approx", "equiv"), "×·÷±∓≈≡", strict=True)),
    **dict(zip(("cup", "cap", "lt", "gt", "langle", "rangle", "sqrt"), "∪∩<>⟨⟩√", strict=True)),
    **dict(zip(("infty", "angle", "triangle", "lambda", "varepsilon", "varphi"), "∞∠△λεφ", strict=True)),
    **{unicodedata.name(letter).rpartition(" ")[2].lower(): letter for letter in "αβγδεζηθικμνξπρστυφχψω"},
    **{name: name for name in FUNCTIONS},
}
COMMAND = re.compile(rf"\\({'|'.join(SAME_COMMANDS)})(?![a-z])")
DEGREES_OR_PRIME = re.compile(r"\^\s*+\{?\s*+\\(circ|prime)(?![a-z])(?:\s*+\})?")
LATEX_LAYOUT = re.compile(
    r"(?:\$|\\[)\]])\s*+!"  # behind a formula it is a mark, within one a factorial
    r"|\\\\(?:\[[^\]]*\])?|\\[,;:!>/ ()\[\]-]|\\?\$|~"
    r"|\\(?:quad|qquad|left|right|middle|bigg?[lrm]?|(?:display|text|script)style|limits|noindent|newline|item"
    r"|rm|bf|it|sf|tt|em)(?![a-z])"
    r"|\\[hv]space\*?\s*\{[^{}]*\}"
    r"|\\(?:begin|end)\s*\{(?:equation|displaymath|math|align|aligned|gather|gathered|center|itemize|enumerate)\*?\}"
)
TYPEFACE = re.compile(
    r"\\(?:text|textrm|textbf|textit|textsf|texttt|textnormal|mathrm|mathbf|mathit|mathsf|mathnormal|operatorname"
    r"|mathbb|mbox|hbox|emph|underline|boldsymbol|bm)\*?\s*\{([^{}]*)\}"
)
ESCAPED = re.compile(r"\\([%&#_])")
LATEX_QUOTES = re.compile(r"``([^`']*)''|`([^`']*)'")
QUOTES = re.compile(r"'(?<![\w)\]}']')([^']*)'(?![\w'])")
APOSTROPHE = re.compile(r"'(?=[^\W\d_])(?<=[^\W\d_]{2}')")
DETACHED_FACTORIAL = re.compile(r"(?<=[\d)\]}])\s+(?=!)")
TWO_DIGITS = re.compile(r"\\(frac|binom)\s*(\d)\s*(\d)")
ONE_IN_BRACES = re.compile(r"(?<!\\)\{\s*+([-+]?\s*+(?:\\?[^\W\d_]+|\d+(?:\.\d+)?))\s*+\}")

# A leading number, as opposed to mathematics: `(3) + 4`, `12: 4 =`, `3.14` and `2. 5`.
NUMBER = r"(?:\d{1,3}(?:\.\d{1,3})+|\d{1,6})[a-z]?"
NUMBER_OR_LETTER = rf"(?:{NUMBER}|(?<![^\W\d_])(?:[a-z]|[ivxlc]{{2,6}}))"
NAMED = (
    r"(?:problem|question|exercise|example|task|puzzle|challenge|part|number|prob|ques|quest|ex|q|no|nr"
    r"|aufgabe|frage|beispiel|problema|pregunta|ejercicio|ejemplo|problème|exercice|exemple|задача"
    r"|问题|問題|题目|習題|习题|例题|例題|题|題|例|第)"
)
COUNTED = r"\.?\s*(?:(?:no|nr)\.?|number)?\s*#?\s*[(\[]?\s*"
GOES_ON = r"(?=\s|[^\W\d_]{2})"
SIGN = r"[+*/=<>^!·×÷±≤≥≠≈%|&,]|\\(?:div|pm|mp|cup|cap|equiv|approx|b?mod)"
ENUMERATOR = re.compile(
    r"[ *_>|●▪·]*+(?:#++ )?(?:"
    rf"{NAMED}{COUNTED}{NUMBER_OR_LETTER}\s*[题題]?\s*(?:[.:)\]、|]|-+(?=\s))+(?!\d)"
    rf"|(?:problem|question|task|puzzle|q|问题|題|题){COUNTED}{NUMBER}[)\]]?(?=\s)"
    r"|(?:problem|question|exercise|task|q)\s*:"
    rf"|[(\[]\s*{NUMBER_OR_LETTER}\s*[)\]][.:]?{GOES_ON}(?!\s*(?:{SIGN}|[-(\[]))"
    rf"|#?\s*(?:{NUMBER_OR_LETTER}(?:\s?[)\]]|\.)|{NUMBER}、){GOES_ON}(?!\s*(?:{SIGN}|-\s))"
    rf"|\d{{1,3}}(?::(?=\s+[^\s\d])|\s+-+\s+(?=[^\W\d_]{{3}}))|#\s*{NUMBER}(?=\s)|[\u2460-\u2473]"
    r")[\s*_]*(?=.*[^\s\d.,;:?!])",
    re.DOTALL,
)

LIST_MARK = re.compile(r"\A(?:[-*•·] +)+(?=[^\W\d_]{2})")

CJK = "\u3040-\u30ff\u3400-\u9fff"  # written without spaces: each character counts as a word
WORD = re.compile(
    rf"\\?[^\W\d_{CJK}]+|[{CJK}]"
    r"|\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?"
    r"|\d+(?:\.\d+)?|(?<![\w.])\.\d+"
    # A factorial, or one before a word or a sign; any other exclamation mark is punctuation.
    r"|(?<=[\d)\]}|'!])!|(?<=(?<![^\W\d_])[^\W\d_])!|!(?![\s\"')\]!?.,;:]|$)"
    r"|[^\w\s!]|_+"
)
BETWEEN_NUMBERS = re.compile(r" (?=\d)(?<=\d )")


def problem_key(text: str) -> str:
    """A key that is equal for two spellings of one problem, and else different: `A B C` is `ABC`, `1 2` is not `12`."""
    return BETWEEN_NUMBERS.sub("\t", " ".join(words_of(text))).replace(" ", "")


def hashes(keys: Iterable[str]) -> str:
    """48 bits of the hash of each problem, by its key, as sorted words."""
    return " ".join(sorted({hashlib.sha256(key.encode()).hexdigest()[:12] for key in keys}))


def words_of(text: str) -> tuple[str, ...]:
    r"""Words, numbers and symbols in lower case, without punctuation, a leading number and the typesetting of LaTeX.

    Mathematical characters stay: signs, primes, factorials, braces around more than one symbol, decimals.

    >>> words_of(r"12. Find $\dfrac{1000}{x'}$.")
    ('find', '\\frac', '1000', '{', 'x', "'", '}')
    """
    plain = LIST_MARK.sub("", " ".join(without_latex_layout(plain_text_of(text)).split()))
    while numbered := ENUMERATOR.match(plain):
        plain = plain[numbered.end() :]
    words = tuple(word if word.isalpha() else one_form(word) for word in WORD.findall(plain) if word not in PUNCTUATION)
    return words or tuple(text.split())


def plain_text_of(text: str) -> str:
    """The text in lower case and in plain characters."""
    if "&" in text:
        text = HTML_ENTITY.sub(lambda entity: html.unescape(entity[0].lower()), text)
    plain = unicodedata.normalize("NFC", text).translate(PLAIN)
    return plain if text.isascii() else ONE_RAISED_NUMBER.sub("", plain)


def without_latex_layout(plain: str) -> str:
    """A text in lower case without LaTeX layout, and with one form for each symbol that has several."""
    if "\\" in plain or "$" in plain or "~" in plain or "{" in plain:
        plain = THOUSANDS.sub(",", plain).replace("{,}", ",")
        plain = DEGREES_OR_PRIME.sub(lambda mark: "°" if mark[1] == "circ" else "'", plain)
        plain = COMMAND.sub(lambda command: SAME_COMMANDS[command[1]] + " ", plain)
        plain = replaced_from_within(TYPEFACE, LATEX_LAYOUT.sub(" ", plain))
        plain = TWO_DIGITS.sub(r"\\\1 \2 \3 ", ESCAPED.sub(r"\1", plain))
        plain = replaced_from_within(ONE_IN_BRACES, plain)
    if "'" in plain:
        plain = APOSTROPHE.sub("", QUOTES.sub(r" \1 ", LATEX_QUOTES.sub(r" \1\2 ", plain)))
    return DETACHED_FACTORIAL.sub("", plain.replace("!=", "≠")) if "!" in plain else plain


def replaced_from_within(braces: re.Pattern[str], text: str) -> str:
    """Replace braces by their contents, from the innermost outwards, until the pattern finds none."""
    while (found := braces.sub(r" \1 ", text)) != text:
        text = found
    return text


def one_form(word: str) -> str:
    if word[0] == "_":
        return "_"
    number = word.replace(",", "") if word[0].isdigit() else word
    return f"0{number}" if number[0] == "." else number
